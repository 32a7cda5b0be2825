"""Beam search and diverse beam search against a plain loop. test_required.py compares with an enumeration."""

import math
import random
from collections import Counter
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_language import BOS, EOS, History, Language, Scripted, begun

from nmt.config import SearchConfig
from nmt.search.api import SearchBatch, TokenHypothesis
from nmt.search.beam import BeamSearch, beam_search, largest

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
    found = language.search([longest], config)[0]
    assert [tuple(f.tokens) for f in found] == expected_outputs(language, longest, config)
    for hypothesis in found:
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

    def begin(numbers: list[int]) -> tuple[History, SearchBatch]:
        cache, batch = begun([lengths[number] for number in numbers], config, numbers)
        return cache, replace(batch, never=(BOS,))

    expected = [beam_search(language.step, *begin([number]))[0] for number in range(len(lengths))]
    running, found, waiting = BeamSearch(language.step, *begin([0])), dict[int, list[TokenHypothesis]](), lengths[1:]
    while len(found) < len(lengths):
        count, first = min(len(waiting), draw.randint(0, 4)), len(lengths) - len(waiting)
        if count:
            running.join(*begin(list(range(first, first + count))))
        waiting = waiting[count:]
        if running.live:
            found |= running.advance()
    assert [found[number] for number in range(len(lengths))] == expected
