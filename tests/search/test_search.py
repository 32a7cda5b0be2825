"""Beam search against a plain loop, and sampling against exact distributions. test_required.py enumerates outputs."""

import math
import random
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from toy_language import BOS, EOS, History, Language, Scripted, begun

from nmt.config import SearchConfig
from nmt.search.api import Required, SearchBatch, TokenHypothesis
from nmt.search.beam import BeamSearch, beam_search, largest
from nmt.search.sampling import sample

SEEDS = st.integers(0, 10_000)


def test_search_stops_as_soon_as_nothing_live_can_win() -> None:
    """A model that is certain to end at once needs one step, even if a long output is allowed."""
    language = Scripted(lambda _: [1e-30, 1, 1e-30, 1e-30])
    assert language.search([50], SearchConfig(beam=4))[0][0].tokens == []
    assert language.steps == 1


SIZES = st.sampled_from([1, 7, 63, 64, 65, 100, 127, 128, 130, 700])  # `largest` looks at blocks of 64


@given(SEEDS, st.integers(1, 3), st.integers(1, 5), SIZES, st.integers(1, 10))
def test_largest_gives_the_same_numbers_as_topk(seed: int, sentences: int, width: int, vocabulary: int, k: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(sentences, width, vocabulary, generator=generator)
    offsets = torch.randn(sentences, width, generator=generator)
    values, places = largest(x, offsets, k)
    totals = (x + offsets[:, :, None]).flatten(1)
    assert torch.equal(values, totals.topk(min(k, width * vocabulary)).values)
    assert torch.equal(totals.gather(1, places), values)


def expected_outputs(language: Language, longest: int, config: SearchConfig) -> list[tuple[int, ...]]:
    """Beam search and diverse beam search as a loop over groups and hypotheses, for one sentence."""
    groups, width = config.beam_groups, config.beam // config.beam_groups
    beams = [[((), 0.0)] for _ in range(groups)]
    finished: list[dict[tuple[int, ...], float]] = [{} for _ in range(groups)]
    for length in range(1, longest + 1):
        counts = Counter[int]()
        for group in range(groups):
            grown = []
            for tokens, total in beams[group]:
                for token, log_prob in enumerate(language.log_probs(0, (BOS, *tokens)).tolist()):
                    if length < longest or token == EOS:
                        rank = total + log_prob - config.diversity * counts[token]
                        grown.append((rank, tokens, token, total + log_prob))
            grown.sort(key=lambda item: -item[0])
            for _, tokens, token, total in grown[:width]:
                if token == EOS:
                    finished[group][tokens] = total / ((5 + length) / 6) ** config.alpha
            live = [(tokens, token, total) for _, tokens, token, total in grown if token != EOS][:width]
            counts.update(token for _, token, _ in live)
            kept = sorted(finished[group].values(), reverse=True)[: min(config.n_best, width)]
            bound = max((total for *_, total in live), default=-math.inf) / ((5 + longest) / 6) ** config.alpha
            done = len(kept) == min(config.n_best, width) and (width == 1 or bound <= kept[-1])
            beams[group] = [] if done else [((*tokens, token), total) for tokens, token, total in live]
    union: dict[tuple[int, ...], float] = {}
    for ended in finished:
        union |= dict(sorted(ended.items(), key=lambda item: -item[1])[: min(config.n_best, width)])
    return [tokens for tokens, _ in sorted(union.items(), key=lambda item: -item[1])][: config.n_best]


@settings(max_examples=150)
@given(SEEDS, st.integers(1, 5), st.integers(1, 4), st.integers(1, 9), st.floats(0, 3), st.data())
def test_search_as_in_a_loop_over_hypotheses(
    seed: int, width: int, groups: int, longest: int, alpha: float, data: st.DataObject
) -> None:
    language, n_best = Language(seed), data.draw(st.integers(1, width * groups))
    penalty = {"diversity": data.draw(st.sampled_from([0, 0.1, 0.7, 2]))} if groups > 1 else {}
    config = SearchConfig(beam=width * groups, beam_groups=groups, n_best=n_best, alpha=alpha, **penalty)
    hypotheses = language.search([longest], config)[0]
    assert [tuple(h.tokens) for h in hypotheses] == expected_outputs(language, longest, config)
    for hypothesis in hypotheses:
        assert hypothesis.log_probs == pytest.approx(language.token_log_probs(0, hypothesis.tokens), abs=1e-4)
        assert hypothesis.score == pytest.approx(language.score(0, hypothesis.tokens, alpha), abs=1e-4)


@settings(max_examples=100)
@given(SEEDS, st.integers(1, 4), st.integers(0, 3), st.sampled_from([None, 1, 2]))
def test_sentences_that_join_a_search_get_what_they_would_get_alone(
    seed: int, beam: int, min_length: int, ngram: int | None
) -> None:
    language, draw = Language(seed, vocabulary=6), random.Random(seed)
    config = SearchConfig(beam=beam, n_best=draw.randint(1, beam), min_length=min_length, no_repeat_ngram=ngram)
    lengths = [draw.randint(1, 8) for _ in range(draw.randint(2, 12))]

    def begin(sentences: list[int]) -> tuple[list[History], SearchBatch]:
        caches, batch = begun([lengths[sentence] for sentence in sentences], config, sentences)
        return caches, replace(batch, never=(BOS,))

    expected = [beam_search(language.step, *begin([sentence]))[0] for sentence in range(len(lengths))]
    running, ended, waiting = BeamSearch(language.step, *begin([0])), dict[int, list[TokenHypothesis]](), lengths[1:]
    while len(ended) < len(lengths):
        count, first = min(len(waiting), draw.randint(0, 4)), len(lengths) - len(waiting)
        if count:
            running.join(*begin(list(range(first, first + count))))
        waiting = waiting[count:]
        if running.live:
            ended |= running.advance()
    assert [ended[sentence] for sentence in range(len(lengths))] == expected


# Sampling, and bad options of search


@dataclass(frozen=True)
class Position:
    number: int

    def select(self, parents_BW: Tensor, sentences_B: Tensor | None) -> "Position":  # noqa: ARG002
        return self


def drawn(logits: Tensor, config: SearchConfig, lines: int) -> list[Any]:
    """All samples of all lines, from logits that depend on the position and the last token."""

    def step(last_R: Tensor, positions: list[Position]) -> tuple[Tensor, list[Position]]:
        (position,) = positions
        return logits[position.number][last_R], [Position(position.number + 1)]

    limits = torch.full((lines,), len(logits))
    options = {"required": [Required()] * len(limits), "streams": [(i,) for i in range(len(limits))]}
    first_B = torch.full_like(limits, BOS)
    batch = SearchBatch(max_lengths_B=limits, first_B=first_B, bos=BOS, eos=EOS, config=config, **options)  # type: ignore[arg-type]
    line_samples = sample(step, [Position(0)], batch)
    return [sample for samples in line_samples for sample in samples]


def filtered(logits: list[float], config: SearchConfig) -> list[float]:
    """The probabilities of a token after epsilon, temperature, top-k and top-p, by the definitions, in float64."""
    least = min(config.epsilon * sum(map(math.exp, logits)), math.exp(max(logits)))
    weights = [math.exp(logit / config.temperature) * (math.exp(logit) >= least) for logit in logits]
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


@pytest.mark.parametrize("options", [
    {}, {"top_k": 2}, {"top_p": 0.6}, {"temperature": 0.6, "top_k": 3, "top_p": 0.75},
    {"epsilon": 0.2, "temperature": 2.0},
])  # fmt: skip
def test_samples_follow_the_exact_distribution(options: dict[str, Any]) -> None:
    config, lines = SearchConfig(sample=True, samples=1250, **options), 20
    logits = torch.randn(3, 4, 4, generator=torch.Generator().manual_seed(10)) * 0.7
    counts = Counter(tuple(hypothesis.tokens) for hypothesis in drawn(logits, config, lines))
    expected = exact(logits, config)
    assert sum(expected.values()) == pytest.approx(1)
    assert sum(p > 0.005 for p in expected.values()) > 2  # it is a choice
    assert set(counts) <= {output for output, p in expected.items() if p > 0}
    variation = sum(abs(counts[output] / 25_000 - p) for output, p in expected.items()) / 2
    assert variation <= 0.01


GREEDY = [{"top_k": 1}, {"temperature": 1e-4}, {"temperature": 1e-300}, {"top_p": 1e-9}, {"epsilon": 0.999}]


@settings(max_examples=40)
@given(SEEDS, st.sampled_from(GREEDY), st.integers(1, 9))
def test_without_a_choice_sampling_is_greedy_search(seed: int, options: dict[str, Any], longest: int) -> None:
    language = Language(seed)
    (greedy,) = language.search([longest], SearchConfig(beam=1))[0]
    for hypothesis in language.search([longest], SearchConfig(sample=True, samples=2, **options))[0]:
        assert hypothesis.tokens == greedy.tokens
        assert hypothesis.log_probs == pytest.approx(greedy.log_probs, abs=1e-5)
        assert hypothesis.score == pytest.approx(greedy.score, abs=1e-5)


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
        outputs = language.search([longest[line]], config, [line], streams=[line])
        assert outputs[0] == together[place][:samples]


def test_samples_of_other_lines_seeds_and_numbers_differ() -> None:
    language = Language(3, vocabulary=1000)

    def tokens(seed: int, line: int) -> list[list[int]]:
        config = SearchConfig(sample=True, samples=2, seed=seed, min_length=5)
        return [hypothesis.tokens for hypothesis in language.search([9], config, streams=[line])[0]]

    several = [*tokens(1, 0), *tokens(1, 1), *tokens(2, 0), *tokens(2, 1)]
    assert len({tuple(sequence) for sequence in several}) == 8


def test_long_outputs_have_new_random_numbers_all_along() -> None:
    """Random numbers are made for many positions at once, and these blocks must not repeat."""
    logits = torch.zeros(200, 50, 50)
    logits[:, :, EOS] = -1e4
    (hypothesis,) = drawn(logits, SearchConfig(sample=True), 1)
    assert len(hypothesis.tokens) == 199
    assert hypothesis.tokens[:64] != hypothesis.tokens[64:128] != hypothesis.tokens[128:192]


@settings(max_examples=40)
@given(SEEDS, st.floats(0.3, 3), st.none() | st.integers(1, 5), st.floats(0.1, 1), st.integers(1, 9))
def test_log_probs_are_the_models_own(
    seed: int, temperature: float, top_k: int | None, top_p: float, longest: int
) -> None:
    language = Language(seed)
    config = SearchConfig(sample=True, samples=3, temperature=temperature, top_k=top_k, top_p=top_p)
    for hypothesis in language.search([longest], config)[0]:
        assert len(hypothesis.tokens) < longest
        assert hypothesis.log_probs == pytest.approx(language.token_log_probs(0, hypothesis.tokens), abs=1e-4)
        assert hypothesis.score == pytest.approx(language.score(0, hypothesis.tokens, config.alpha), abs=1e-4)


def test_of_equal_tokens_the_first_are_drawn() -> None:
    for options in ({"top_k": 2}, {"top_p": 0.5}):
        samples = drawn(torch.zeros(1, 4, 4).repeat(2, 1, 1), SearchConfig(sample=True, samples=500, **options), 1)
        assert {tuple(sample.tokens) for sample in samples} <= {(), (0,)}  # tokens 0 and 1, which is EOS


def test_top_p_of_a_flat_distribution() -> None:
    """It keeps more tokens than are sorted at first."""
    logits = (torch.arange(1000) * -1e-4).expand(2, 1000, -1)
    samples = drawn(logits, SearchConfig(sample=True, samples=400, top_p=0.6), 1)
    weights = logits[0, 0].double().softmax(0)
    last = int((weights.cumsum(0) < 0.6).sum())
    tokens = [sample.tokens[0] for sample in samples if sample.tokens]
    assert last - 20 < max(tokens) <= last


def test_probabilities_that_are_no_numbers_give_no_samples() -> None:
    assert drawn(torch.full((9, 4, 4), torch.nan), SearchConfig(sample=True, samples=3), 2) == []
