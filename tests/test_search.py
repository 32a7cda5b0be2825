"""Beam search and diverse beam search against enumeration and a plain loop, and for sentences alone and in batches."""

import math
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_language import BOS, EOS, Language, Scripted

from nmt.config import SearchConfig
from nmt.search.beam import Required, largest

SEEDS = st.integers(0, 10_000)
PREFIXES = st.lists(st.sampled_from([0, 2, 3]), max_size=2)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.5])
def test_a_wide_beam_finds_what_enumeration_finds(alpha: float) -> None:
    language, lengths = Language(1), [4, 1, 5]
    found = language.search(lengths, SearchConfig(beam=200, alpha=alpha, n_best=3))
    for sentence, longest in enumerate(lengths):
        best = sorted(language.outputs(longest), key=lambda output: -language.score(sentence, output, alpha))
        assert [tuple(f.tokens) for f in found[sentence]] == best[:3]


CONFIGS = [SearchConfig(beam=beam, n_best=(beam + 1) // 2) for beam in range(1, 6)]


@settings(max_examples=60)
@given(
    SEEDS,
    st.sampled_from([*CONFIGS, SearchConfig(beam=6, beam_groups=3, n_best=4)]),
    st.lists(st.tuples(st.integers(1, 9), PREFIXES), min_size=1, max_size=8),
)
def test_a_sentence_has_the_same_hypotheses_alone_and_in_a_batch(
    seed: int, config: SearchConfig, sentences: list[tuple[int, list[int]]]
) -> None:
    language, required = Language(seed), [Required(tuple(prefix)) for _, prefix in sentences]
    together = language.search([longest for longest, _ in sentences], config, required=required)
    for number, (longest, _) in enumerate(sentences):
        assert together[number] == language.search([longest], config, [number], [required[number]])[0]


def test_a_larger_alpha_prefers_longer_output() -> None:
    """The model prefers token 2 at first. EOS becomes more likely with every token."""

    def probabilities(tokens: tuple[int, ...]) -> list[float]:
        end = min(0.1 * len(tokens), 0.8)
        return [0.05 * (1 - end), end, 0.9 * (1 - end), 0.05 * (1 - end)]

    language = Scripted(probabilities)
    lengths = [len(language.search([20], SearchConfig(alpha=alpha))[0][0].tokens) for alpha in (0.0, 1.0, 3.0)]
    assert lengths == sorted(lengths)
    assert lengths[0] < lengths[-1]


def test_search_stops_as_soon_as_nothing_live_can_win() -> None:
    """A model that is certain to end at once needs one step, even if a long output is allowed."""
    language = Scripted(lambda _: [1e-30, 1, 1e-30, 1e-30])
    assert language.search([50], SearchConfig(beam=4))[0][0].tokens == []
    assert language.steps == 1


def test_search_continues_while_a_live_hypothesis_can_still_win() -> None:
    """Every step ends a hypothesis of low probability, but the search continues until it finds the likely output."""
    language = Scripted(lambda tokens: [1e-9, 1, 1e-9, 1e-9] if len(tokens) == 8 else [1e-9, 0.02, 0.98, 1e-9])
    assert language.search([20], SearchConfig(beam=2, alpha=0.6))[0][0].tokens == [2] * 7


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


@pytest.mark.parametrize("strength, expected", [(0.5, [[2]]), (0.6, [[2], [3]])])
def test_two_groups_by_hand(strength: float, expected: list[list[int]]) -> None:
    """The second group takes 3 as soon as 0.5·exp(-λ) is below 0.3. Both end with EOS, which has no penalty."""
    language = Scripted(lambda tokens: [0.1, 0.1, 0.5, 0.3] if len(tokens) == 1 else [0.01, 0.97, 0.01, 0.01])
    config = SearchConfig(beam=2, beam_groups=2, diversity=strength, n_best=2)
    found = language.search([9], config)[0]
    assert [f.tokens for f in found] == expected
    probabilities = [math.exp(f.log_prob) for f in found]
    assert probabilities == pytest.approx([0.5 * 0.97, 0.3 * 0.97][: len(expected)], abs=1e-6)


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
@given(
    SEEDS,
    st.integers(1, 5),
    st.integers(1, 4),
    st.integers(1, 9),
    st.sampled_from([0, 0.1, 0.7, 2]),
    st.floats(0, 2),
    st.data(),
)
def test_search_as_in_a_loop_over_hypotheses(
    seed: int, width: int, groups: int, longest: int, strength: float, alpha: float, data: st.DataObject
) -> None:
    language, n_best = Language(seed), data.draw(st.integers(1, width * groups))
    penalty = {"diversity": strength} if groups > 1 else {}
    config = SearchConfig(beam=width * groups, beam_groups=groups, n_best=n_best, alpha=alpha, **penalty)
    found = language.search([longest], config)[0]
    assert [tuple(f.tokens) for f in found] == expected_outputs(language, longest, config)
    for hypothesis in found:
        assert hypothesis.log_probs == pytest.approx(language.token_log_probs(0, hypothesis.tokens), abs=1e-4)
        assert hypothesis.score == pytest.approx(language.score(0, hypothesis.tokens, alpha), abs=1e-4)
