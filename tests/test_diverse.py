"""Diverse beam search: by hand, against a plain loop over hypotheses, and its groups against each other."""

import math
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_language import BOS, EOS, Language

from nmt.config import SearchConfig
from nmt.decoding.search import Required

SEEDS = st.integers(0, 10_000)
PREFIXES = st.lists(st.sampled_from([0, 2, 3]), max_size=2)


class TwoWords(Language):
    """Says 2 or 3, with probabilities 0.5 and 0.3, and then most likely ends."""

    def log_probs(self, sentence: int, tokens: tuple[int, ...]) -> torch.Tensor:  # noqa: ARG002
        return torch.tensor([0.1, 0.1, 0.5, 0.3] if len(tokens) == 1 else [0.01, 0.97, 0.01, 0.01]).log()


@pytest.mark.parametrize(("strength", "expected"), [(0.5, [[2]]), (0.6, [[2], [3]])])
def test_two_groups_by_hand(strength: float, expected: list[list[int]]) -> None:
    """The second group takes 3 as soon as 0.5·exp(-λ) is below 0.3. Both end with EOS, which has no penalty."""
    config = SearchConfig(beam=2, beam_groups=2, diversity=strength, n_best=2)
    found = TwoWords(0).search([9], config)[0]
    assert [f.tokens for f in found] == expected
    probabilities = [math.exp(f.log_prob) for f in found]
    assert probabilities == pytest.approx([0.5 * 0.97, 0.3 * 0.97][: len(expected)], abs=1e-6)


def expected_outputs(language: Language, longest: int, config: SearchConfig) -> list[tuple[int, ...]]:
    """Diverse beam search as a loop over groups and hypotheses, for one sentence."""
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


@given(SEEDS, st.integers(1, 3), st.integers(2, 4), st.integers(1, 8), st.sampled_from([0, 0.1, 0.7, 2]), st.data())
def test_groups_as_in_a_loop_over_hypotheses(
    seed: int, width: int, groups: int, longest: int, strength: float, data: st.DataObject
) -> None:
    language, n_best = Language(seed), data.draw(st.integers(1, width * groups))
    config = SearchConfig(beam=width * groups, beam_groups=groups, diversity=strength, n_best=n_best)
    found = language.search([longest], config)[0]
    assert [tuple(f.tokens) for f in found] == expected_outputs(language, longest, config)
    for hypothesis in found:
        assert hypothesis.log_probs == pytest.approx(language.token_log_probs(0, hypothesis.tokens), abs=1e-4)


@settings(max_examples=20)
@given(SEEDS, st.lists(st.tuples(st.integers(1, 6), PREFIXES), min_size=1, max_size=4))
def test_sentences_do_not_disturb_each_other(seed: int, sentences: list[tuple[int, list[int]]]) -> None:
    language, config = Language(seed), SearchConfig(beam=6, beam_groups=3, n_best=4)
    required = [Required(tuple(prefix)) for _, prefix in sentences]
    together = language.search([longest for longest, _ in sentences], config, required=required)
    for number, (longest, _) in enumerate(sentences):
        assert together[number] == language.search([longest], config, [number], [required[number]])[0]
