"""Beam search equals enumeration and greedy search, and finds the same for a sentence alone and in a batch."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from toy_language import BOS, EOS, History, Language

from nmt.config import SearchConfig
from nmt.decoding.candidates import largest
from nmt.decoding.search import Found


def assert_close(found: list[Found], expected: list[tuple[tuple[int, ...], float]]) -> None:
    assert [tuple(f.tokens) for f in found] == [tokens for tokens, _ in expected]
    assert [f.score for f in found] == pytest.approx([score for _, score in expected], abs=1e-4)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.5])
@pytest.mark.parametrize("seed", range(2))
def test_a_wide_beam_finds_what_enumeration_finds(seed: int, alpha: float) -> None:
    language = Language(seed)
    found = language.search([4, 1, 5], SearchConfig(beam=200, alpha=alpha, n_best=3))
    for sentence, longest in enumerate([4, 1, 5]):
        assert_close(found[sentence], language.enumerated(sentence, longest, alpha)[:3])


@given(st.integers(0, 10_000))
def test_a_beam_of_one_is_greedy_search(seed: int) -> None:
    language, tokens = Language(seed), (BOS,)
    for _ in range(7):
        best = int(language.log_probs(0, tokens).argmax())
        if best == EOS:
            break
        tokens = (*tokens, best)
    found = language.search([8], SearchConfig(beam=1, alpha=0.6))[0][0]
    assert tuple(found.tokens) == tokens[1:]
    assert found.score == pytest.approx(language.score(0, tokens[1:], 0.6), abs=1e-4)


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.integers(1, 5), st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_a_sentence_has_the_same_hypotheses_alone_and_in_a_batch(seed: int, beam: int, max_lengths: list[int]) -> None:
    language, config = Language(seed), SearchConfig(beam=beam, n_best=(beam + 1) // 2)
    together = language.search(max_lengths, config)
    for number, longest in enumerate(max_lengths):
        assert together[number] == language.search([longest], config, [number])[0]


@given(st.integers(0, 10_000), st.integers(1, 5), st.integers(1, 9), st.floats(0, 2))
def test_hypotheses_are_distinct_sorted_correctly_scored_and_not_too_long(
    seed: int, beam: int, longest: int, alpha: float
) -> None:
    language = Language(seed)
    found = language.search([longest], SearchConfig(beam=beam, alpha=alpha, n_best=beam))[0]
    assert 1 <= len(found) <= beam
    assert len({tuple(f.tokens) for f in found}) == len(found)
    assert [f.score for f in found] == sorted((f.score for f in found), reverse=True)
    for hypothesis in found:
        assert len(hypothesis.tokens) < longest
        assert EOS not in hypothesis.tokens
        assert hypothesis.score == pytest.approx(language.score(0, tuple(hypothesis.tokens), alpha), abs=1e-3)


def test_a_larger_alpha_prefers_longer_output() -> None:
    """The model prefers token 2 at first. EOS becomes more likely with every token."""

    class Hesitant(Language):
        def log_probs(self, sentence: int, tokens: tuple[int, ...]) -> Tensor:  # noqa: ARG002
            end = min(0.1 * len(tokens), 0.8)
            return torch.tensor([0.05 * (1 - end), end, 0.9 * (1 - end), 0.05 * (1 - end)]).log()

    lengths = [len(Hesitant(0).search([20], SearchConfig(alpha=alpha))[0][0].tokens) for alpha in (0.0, 1.0, 3.0)]
    assert lengths == sorted(lengths)
    assert lengths[0] < lengths[-1]


def test_search_stops_as_soon_as_nothing_live_can_win() -> None:
    """A model that is certain to end at once needs one step, even if a long output is allowed."""

    class Certain(Language):
        steps = 0

        def step(self, last_R: Tensor, cache: History) -> tuple[Tensor, History]:
            self.steps += 1
            return super().step(last_R, cache)

        def log_probs(self, sentence: int, tokens: tuple[int, ...]) -> Tensor:  # noqa: ARG002
            return torch.tensor([1e-30, 1.0, 1e-30, 1e-30]).log()

    language = Certain(0)
    assert language.search([50], SearchConfig(beam=4))[0][0].tokens == []
    assert language.steps == 1


def test_search_continues_while_a_live_hypothesis_can_still_win() -> None:
    """Every step ends a hypothesis of low probability, but the search continues until it finds the likely output."""

    class Late(Language):
        def log_probs(self, sentence: int, tokens: tuple[int, ...]) -> Tensor:  # noqa: ARG002
            if len(tokens) == 8:
                return torch.tensor([1e-9, 1.0, 1e-9, 1e-9]).log()
            return torch.tensor([1e-9, 0.02, 0.98, 1e-9]).log()

    assert Late(0).search([20], SearchConfig(beam=2, alpha=0.6))[0][0].tokens == [2] * 7


SIZES = st.sampled_from([1, 7, 63, 64, 65, 100, 127, 128, 130, 700])  # `largest` looks at blocks of 64


@given(st.integers(0, 10_000), st.integers(1, 3), st.integers(1, 5), SIZES, st.integers(1, 10))
def test_largest_gives_the_same_numbers_as_topk(seed: int, sentences: int, width: int, vocabulary: int, k: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(sentences, width, vocabulary, generator=generator)
    offsets = torch.randn(sentences, width, generator=generator)
    values, places = largest(x, offsets, k)
    totals = (x + offsets[:, :, None]).flatten(1)
    assert torch.equal(values, totals.topk(min(k, width * vocabulary)).values)
    assert torch.equal(totals.gather(1, places), values)
