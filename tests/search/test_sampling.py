"""Sampling against exact distributions, against greedy search, and in other batches; bad options of search."""

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from toy_language import BOS, EOS, Language

from nmt.config import SearchConfig
from nmt.errors import NmtError
from nmt.search import search
from nmt.search.api import Required, SearchBatch

SEEDS = st.integers(0, 10_000)


@dataclass(frozen=True)
class Position:
    number: int

    def select(self, parents_BW: Tensor, sentences_B: Tensor | None) -> "Position":  # noqa: ARG002
        return self


def drawn(logits: Tensor, config: SearchConfig, lines: int) -> list[Any]:
    """All samples of all lines, from logits that depend on the position and the last token."""

    def step(last_R: Tensor, position: Position) -> tuple[Tensor, Position]:
        return logits[position.number][last_R], Position(position.number + 1)

    limits = torch.full((lines,), len(logits))
    options = {"required": [Required()] * len(limits), "streams": range(len(limits))}
    batch = SearchBatch(max_lengths_B=limits, bos=BOS, eos=EOS, config=config, **options)  # type: ignore[arg-type]
    found = search(step, Position(0), batch)  # type: ignore[arg-type]
    return [sample for samples in found for sample in samples]


def filtered(logits: list[float], config: SearchConfig) -> list[float]:
    """The probabilities of a token after temperature, top-k and top-p, by the definitions, in float64."""
    weights = [math.exp(logit / config.temperature) for logit in logits]
    ranked = sorted(range(len(weights)), key=lambda token: -weights[token])[: config.top_k]
    whole, kept, mass = sum(weights[token] for token in ranked), list[int](), 0.0
    for token in ranked:
        if mass / whole >= config.top_p:
            break
        kept.append(token)
        mass += weights[token]
    return [weights[token] / mass if token in kept else 0.0 for token in range(len(weights))]


def exact(logits: Tensor, config: SearchConfig, last: int = BOS) -> dict[tuple[int, ...], float]:
    """The probability of every output of at most as many tokens as there are logits, EOS included."""
    if len(logits) == 1:
        return {(): 1.0}
    probabilities = dict[tuple[int, ...], float]()
    for token, p in enumerate(filtered(logits[0, last].tolist(), config)):
        if token == EOS:
            probabilities[()] = p
        else:
            later = exact(logits[1:], config, token)
            probabilities |= {(token, *tokens): p * q for tokens, q in later.items()}
    return probabilities


@pytest.mark.parametrize("options", [{}, {"top_k": 2}, {"top_p": 0.6}, {"temperature": 0.6, "top_k": 3, "top_p": 0.75}])
def test_samples_follow_the_exact_distribution(options: dict[str, Any]) -> None:
    config, lines = SearchConfig(sample=True, samples=1250, **options), 20
    logits = torch.randn(3, 4, 4, generator=torch.Generator().manual_seed(10)) * 0.7
    counts = Counter(tuple(found.tokens) for found in drawn(logits, config, lines))
    expected = exact(logits, config)
    assert sum(expected.values()) == pytest.approx(1)
    assert sum(p > 0.005 for p in expected.values()) > 2  # it is a choice
    assert set(counts) <= {output for output, p in expected.items() if p > 0}
    variation = sum(abs(counts[output] / 25_000 - p) for output, p in expected.items()) / 2
    assert variation <= 0.01


GREEDY = [{"top_k": 1}, {"temperature": 1e-4}, {"temperature": 1e-300}, {"top_p": 1e-9}]


@settings(max_examples=40)
@given(SEEDS, st.sampled_from(GREEDY), st.integers(1, 9))
def test_without_a_choice_sampling_is_greedy_search(seed: int, options: dict[str, Any], longest: int) -> None:
    language = Language(seed)
    (greedy,) = language.search([longest], SearchConfig(beam=1))[0]
    for found in language.search([longest], SearchConfig(sample=True, samples=2, **options))[0]:
        assert found.tokens == greedy.tokens
        assert found.log_probs == pytest.approx(greedy.log_probs, abs=1e-5)
        assert found.score == pytest.approx(greedy.score, abs=1e-5)


@settings(max_examples=20)
@given(SEEDS, st.integers(1, 4), st.integers(0, 3), st.lists(st.integers(1, 8), min_size=1, max_size=6), st.randoms())
def test_samples_depend_on_seed_line_and_number_alone(
    seed: int, samples: int, more: int, longest: list[int], random: Any
) -> None:
    """Each line alone gives what it gives in a batch of any order, and the first samples of more samples."""
    language, config = Language(seed), SearchConfig(sample=True, top_p=0.95, seed=seed, samples=samples)
    order = random.sample(range(len(longest)), len(longest))
    lengths, more_samples = [longest[line] for line in order], replace(config, samples=samples + more)
    together = language.search(lengths, more_samples, order, streams=order)
    for place, line in enumerate(order):
        alone = language.search([longest[line]], config, [line], streams=[line])
        assert alone[0] == together[place][:samples]


def test_samples_of_other_lines_seeds_and_numbers_differ() -> None:
    language = Language(3, vocabulary=1000)

    def tokens(seed: int, line: int) -> list[list[int]]:
        config = SearchConfig(sample=True, samples=2, seed=seed, min_length=5)
        return [found.tokens for found in language.search([9], config, streams=[line])[0]]

    several = [*tokens(1, 0), *tokens(1, 1), *tokens(2, 0), *tokens(2, 1)]
    assert len({tuple(one) for one in several}) == 8


def test_long_outputs_have_new_random_numbers_all_along() -> None:
    """Random numbers are made for many positions at once, and these blocks must not repeat."""
    logits = torch.zeros(200, 50, 50)
    logits[:, :, EOS] = -1e4
    (found,) = drawn(logits, SearchConfig(sample=True), 1)
    assert len(found.tokens) == 199
    assert found.tokens[:64] != found.tokens[64:128] != found.tokens[128:192]


@settings(max_examples=40)
@given(SEEDS, st.floats(0.3, 3), st.none() | st.integers(1, 5), st.floats(0.1, 1), st.integers(1, 9))
def test_log_probs_are_the_models_own(
    seed: int, temperature: float, top_k: int | None, top_p: float, longest: int
) -> None:
    language = Language(seed)
    config = SearchConfig(sample=True, samples=3, temperature=temperature, top_k=top_k, top_p=top_p)
    for found in language.search([longest], config)[0]:
        assert len(found.tokens) < longest
        assert found.log_probs == pytest.approx(language.token_log_probs(0, found.tokens), abs=1e-4)
        assert found.score == pytest.approx(language.score(0, found.tokens, config.alpha), abs=1e-4)


def test_of_equal_tokens_the_first_are_drawn() -> None:
    for options in ({"top_k": 2}, {"top_p": 0.5}):
        found = drawn(torch.zeros(1, 4, 4).repeat(2, 1, 1), SearchConfig(sample=True, samples=500, **options), 1)
        assert {tuple(sample.tokens) for sample in found} <= {(), (0,)}  # tokens 0 and 1, which is EOS


def test_top_p_of_a_flat_distribution() -> None:
    """It keeps more tokens than are sorted at first."""
    logits = (torch.arange(1000) * -1e-4).expand(2, 1000, -1)
    found = drawn(logits, SearchConfig(sample=True, samples=400, top_p=0.6), 1)
    weights = logits[0, 0].double().softmax(0)
    last = int((weights.cumsum(0) < 0.6).sum())
    tokens = [sample.tokens[0] for sample in found if sample.tokens]
    assert last - 20 < max(tokens) <= last


def test_probabilities_that_are_no_numbers_give_no_samples() -> None:
    assert drawn(torch.full((9, 4, 4), torch.nan), SearchConfig(sample=True, samples=3), 2) == []


@pytest.mark.parametrize("options, message", [
    ({"sample": True, "temperature": 0.0}, "--temperature must be above 0 and at most 1000, but is 0.0"),
    ({"sample": True, "top_p": 0.0}, "--top-p must be above 0 and at most 1, but is 0.0"),
    ({"sample": True, "top_p": 1.1}, "--top-p must be above 0 and at most 1, but is 1.1"),
    ({"sample": True, "top_k": 0}, "--top-k must be at least 1, but is 0"),
    ({"sample": True, "samples": 0}, "--samples must be at least 1 and at most 10000, but is 0"),
    ({"sample": True, "seed": -1}, "--seed must be at least 0, but is -1"),
    ({"sample": True, "n_best": 3}, "--n-best is 3, but --sample was given; use --samples 3 instead"),
    ({"sample": True, "beam_groups": 2}, "--beam-groups is 2, but --sample was given; leave out one of the two"),
    ({"samples": 3}, "--samples is 3, but needs --sample; add it"),
    ({"top_p": 0.5}, "--top-p is 0.5, but needs --sample; add it"),
    ({"beam_groups": 3}, "--beam-groups must divide --beam (4), but is 3; change one of the two"),
    ({"diversity": 0.9}, "--diversity is 0.9, but there is one group; also give --beam-groups"),
    ({"diversity": -1.0, "beam_groups": 2}, "--diversity must be at least 0 and at most 1000, but is -1.0"),
    ({"n_best": 5}, "--n-best must be at most --beam (4), but is 5"),
    ({"alpha": 1e308}, "--alpha must be at least 0 and at most 10, but is 1e+308"),
    ({"min_length": -1}, "--min-length must be at least 0 and at most 100000, but is -1"),
    ({"no_repeat_ngram": 0}, "--no-repeat-ngram must be at least 1, but is 0"),
])  # fmt: skip
def test_options_that_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(NmtError) as error:
        SearchConfig(**options)
    assert str(error.value) == message
