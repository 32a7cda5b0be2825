"""Forced prefixes, required phrases and alternatives of phrases against enumeration of all outputs."""

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from toy_language import EOS, Language, Scripted, occurs

from nmt.config import SearchConfig
from nmt.errors import NmtError
from nmt.search.api import Required

Tokens = tuple[int, ...]
Phrases = tuple[Tokens, ...]
Sets = tuple[Phrases, ...]
TOKENS = st.sampled_from([0, 2, 3])
PREFIXES = st.lists(TOKENS, max_size=3).map(tuple)
PHRASE = st.lists(TOKENS, min_size=1, max_size=3).map(tuple)
SINGLE = st.lists(PHRASE.map(lambda phrase: (phrase,)), max_size=3).map(tuple)
CONSTRAINTS = SINGLE | st.lists(st.lists(PHRASE, min_size=1, max_size=3).map(tuple), max_size=3).map(tuple)
SEEDS = st.integers(0, 10_000)
FEW = settings(max_examples=40)


def single(phrases: Phrases) -> Sets:
    """Constraints without alternatives."""
    return tuple((phrase,) for phrase in phrases)


def holds(tokens: Sequence[int], constraints: Sets) -> bool:
    return all(any(occurs(phrase, tokens) for phrase in alternatives) for alternatives in constraints)


def possible(language: Language, longest: int, required: Required) -> tuple[list[Tokens], bool]:
    """The outputs with the prefix that meet the constraints, and False; all with the prefix, and True, if none does."""
    outputs = language.outputs(max(longest, len(required.prefix) + 1))
    begun = [o for o in outputs if o[: len(required.prefix)] == required.prefix]
    holding = [o for o in begun if holds(o, required.constraints)]
    return holding or begun, not holding


@FEW
@given(SEEDS, st.integers(1, 5), PREFIXES, CONSTRAINTS, st.sampled_from([0.0, 0.6]))
def test_a_wide_beam_finds_the_best_of_all_outputs(
    seed: int, longest: int, prefix: Tokens, constraints: Sets, alpha: float
) -> None:
    language, required = Language(seed), Required(prefix, constraints)
    outputs, unmet = possible(language, longest, required)
    best = sorted(outputs, key=lambda o: -language.score(0, o, alpha))[:3]
    hypotheses = language.search([longest], SearchConfig(beam=130, alpha=alpha, n_best=3), required=[required])[0]
    assert [tuple(h.tokens) for h in hypotheses] == best
    assert [h.score for h in hypotheses] == pytest.approx([language.score(0, o, alpha) for o in best], abs=1e-4)
    assert [h.unmet for h in hypotheses] == [unmet] * len(best)
    for hypothesis in hypotheses:
        assert hypothesis.log_probs == pytest.approx(language.token_log_probs(0, hypothesis.tokens), abs=1e-4)


@settings(max_examples=80)
@given(SEEDS, st.integers(1, 4), st.integers(1, 7), PREFIXES, CONSTRAINTS)
def test_a_small_beam_meets_all_constraints_whenever_an_output_can(
    seed: int, beam: int, longest: int, prefix: Tokens, constraints: Sets
) -> None:
    language, required = Language(seed), Required(prefix, constraints)
    outputs, unmet = possible(language, longest, required)
    allowed = set(outputs)
    hypotheses = language.search([longest], SearchConfig(beam=beam, n_best=beam), required=[required])[0]
    assert hypotheses
    assert {h.unmet for h in hypotheses} == {unmet}
    assert {tuple(h.tokens) for h in hypotheses} <= allowed


@FEW
@given(SEEDS, st.integers(2, 5), PHRASE, st.sets(TOKENS))
def test_only_some_tokens_may_follow_a_phrase(seed: int, longest: int, phrase: Tokens, borders: set[int]) -> None:
    """Search counts a phrase from its first occurrence on."""
    language, required = Language(seed), Required((), ((phrase,),))

    def is_bordered(output: Tokens) -> bool:
        end = next(i for i in range(len(output)) if output[: i + 1][-len(phrase) :] == phrase) + 1
        return output[end : end + 1] == () or output[end] in borders

    outputs, unmet = possible(language, longest, required)
    allowed = [output for output in outputs if unmet or is_bordered(output)]
    best = max(allowed, key=lambda o: language.score(0, o, 0.6))
    tokens = [token == EOS or token in borders for token in range(4)]
    ((hypothesis,),) = language.search([longest], SearchConfig(beam=130), required=[required], borders=tokens)
    assert tuple(hypothesis.tokens) == best


ALIKE = tuple((2, 3, n) for n in range(4, 12))  # completing one of them loses the matches of all others
# There are too many constraints with alternatives for a table of overlaps.
PAIRS = [(n, n + 1) for n in range(2, 32, 3)]


@pytest.mark.parametrize("beam", [1, 2, 5])
@pytest.mark.parametrize("constraints, shortest, vocabulary", [
    (single(tuple((n, n + 1) for n in range(2, 18, 2))), 2, 30),
    (single(ALIKE), 3, 30),
    (tuple((pair, (pair[1],)) for pair in PAIRS), 1, 40),
    (tuple((pair, (pair[0] + 2, pair[0])) for pair in PAIRS), 2, 40),
], ids=["phrases of other tokens", "that begin alike", "alternatives of two lengths", "of one length"])  # fmt: skip
def test_many_constraints_are_met_if_there_is_room(
    beam: int, constraints: Sets, shortest: int, vocabulary: int
) -> None:
    """The room suffices for the shortest alternatives only."""
    needed = shortest * len(constraints)
    for seed in range(5):
        lengths, required = [needed + 1, needed], [Required((), constraints)] * 2
        hypotheses = Language(seed, vocabulary).search(lengths, SearchConfig(beam=beam), required=required)
        assert [best.unmet for (best,) in hypotheses] == [False, True]
        assert holds(hypotheses[0][0].tokens, constraints) and len(hypotheses[0][0].tokens) == needed


@pytest.mark.parametrize("prefix, constraints, longest, outputs", [
    ((), single(((2, 3, 2), (3, 2, 3), (3, 2))), 5, ([2, 3, 2, 3], [3, 2, 3, 2])),  # they fit only if they overlap
    ((), single(((2, 0), (0, 3))), 4, ([2, 0, 3],)),  # they fit in one order only
    ((0,), single(((2, 0), (0, 3))), 5, ([0, 2, 0, 3], [0, 3, 2, 0])),
    ((), single(((2,), (3,), (0,), (2, 3), (3, 0), (0, 2), (0, 2), (2, 3, 0, 2))), 5, ([2, 3, 0, 2],)),  # one has all
    ((2, 2, 2), single(((2, 2, 3),)), 5, ([2, 2, 2, 3],)),  # after 2 2, another 2 still matches two tokens of 2 2 3
    ((3, 0, 2, 3), (), 2, ([3, 0, 2, 3],)),  # a prefix longer than the output is kept whole
    ((), (((2, 2, 2), (3, 0)), ((2, 2, 0), (0, 2, 3))), 5, ([2, 2, 2, 0], [3, 0, 2, 3], [0, 2, 3, 0])),  # they overlap
    ((), (((2, 3, 0), (0,) * 4), ((3,), (2, 2)), ((0, 0),)), 5, ([2, 3, 0, 0],)),  # the first phrase meets two
    ((2, 3), (((2, 3), (0, 0)), ((3, 0), (2, 2))), 4, ([2, 3, 0],)),  # the prefix meets one
    ((), (((2, 2), (2, 2, 3)), ((3,), (2, 2))), 3, ([2, 2],)),  # the second is implied by the first
])  # fmt: skip
@pytest.mark.parametrize("beam", [1, 2, 4])
def test_outputs_with_little_room(
    beam: int, prefix: Tokens, constraints: Sets, longest: int, outputs: tuple[list[int], ...]
) -> None:
    for seed in range(10):
        required = [Required(prefix, constraints)]
        ((best, *_),) = Language(seed).search([longest], SearchConfig(beam=beam), required=required)
        assert best.tokens in outputs


def test_the_more_likely_alternative_is_chosen() -> None:
    """The model prefers 4 5 6 where it speaks of the term, although 3 would be shorter."""

    def probabilities(tokens: Tokens) -> list[float]:
        preferred = {1: 7, 2: 4, 3: 5, 4: 6, 5: 1}[min(len(tokens), 5)]
        return [0.9 if token == preferred else 0.01 for token in range(9)]

    language = Scripted(probabilities, vocabulary=9)
    for constraint in (((3,), (4, 5, 6)), ((4, 5, 6), (3, 3, 3, 3))):
        (best,) = language.search([12], SearchConfig(beam=4), required=[Required((), (constraint,))])[0]
        assert best.tokens == [7, 4, 5, 6]


def test_a_phrase_goes_where_it_is_likely() -> None:
    """Its beginning is less likely than five other tokens, so only a bank of its own keeps it in the beam."""

    def probabilities(tokens: Tokens) -> list[float]:
        if len(tokens) < 5:
            return [1e-4] * 4 + [0.2] * 5
        if tokens[-1] == 2:
            return [1e-4] * 3 + [1] + [1e-4] * 5
        if len(tokens) == 5:
            return [1e-4, 1e-4, 0.1, 1e-4] + [0.18] * 5
        return [1e-4, 1] + [1e-4] * 7

    language, required = Scripted(probabilities, vocabulary=9), [Required((), (((2, 3),),))]
    assert language.search([9], SearchConfig(beam=3), required=required)[0][0].tokens[4:] == [2, 3]


def test_equal_tokens_beside_phrases_are_those_of_plain_search() -> None:
    language, config = Scripted(lambda _: [1.0] * 700, vocabulary=700), SearchConfig(beam=3, n_best=3)
    (plain,) = language.search([4], config)
    required = [Required(), Required((), (((2, 3),),))]
    assert language.search([4, 4], config, required=required)[0] == plain


GROUPS = {1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 6: 3}
CONFIGS = [SearchConfig(beam=beam, n_best=(beam + 1) // 2, beam_groups=groups) for beam, groups in GROUPS.items()]
SENTENCES = st.lists(st.tuples(st.integers(1, 9), PREFIXES, CONSTRAINTS), min_size=1, max_size=8)


@settings(max_examples=80)
@given(SEEDS, st.sampled_from(CONFIGS), SENTENCES, st.booleans())
def test_other_sentences_change_nothing(
    seed: int, config: SearchConfig, sentences: Sequence[tuple[int, Tokens, Sets]], constrained: bool
) -> None:
    """Sentences with prefixes, phrases or neither are found as if they were alone, and without as in plain search."""
    language, constrained = Language(seed), constrained and config.beam_groups == 1
    required = [Required(prefix, sets if constrained else ()) for _, prefix, sets in sentences] + [Required()]
    lengths = [length for length, _, _ in sentences] + [7]
    together = language.search(lengths, config, required=required)
    for index, wanted in enumerate(required):
        asked = None if wanted == Required() else [wanted]  # as in plain search
        assert together[index] == language.search([lengths[index]], config, [index], asked)[0]


@FEW
@given(SEEDS, st.integers(1, 4), PREFIXES)
def test_prefixes_of_samples_and_groups(seed: int, count: int, prefix: Tokens) -> None:
    language, required = Language(seed), [Required(prefix)]
    for config in (SearchConfig(sample=True, samples=count), SearchConfig(beam=2 * count, beam_groups=count)):
        for hypothesis in language.search([5], config, required=required)[0]:
            assert tuple(hypothesis.tokens[: len(prefix)]) == prefix
            assert hypothesis.log_probs == pytest.approx(language.token_log_probs(0, hypothesis.tokens), abs=1e-4)


@FEW
@example(1, 2, 1, (2, 3, 2), ())
@given(SEEDS, st.integers(1, 3), st.integers(1, 3), PREFIXES, CONSTRAINTS)
def test_prefixes_and_phrases_may_repeat_an_ngram(
    seed: int, beam: int, n: int, prefix: Tokens, constraints: Sets
) -> None:
    language = Language(seed)
    config = SearchConfig(beam=beam, no_repeat_ngram=n, min_length=4)
    hypothesis = language.search([14], config, required=[Required(prefix, constraints)])[0][0]
    assert not hypothesis.unmet
    assert tuple(hypothesis.tokens[: len(prefix)]) == prefix
    assert holds(hypothesis.tokens, constraints)


def test_search_for_phrases_stops_after_as_many_hypotheses_as_the_beam_has() -> None:
    """The penalty of long outputs is so high that plain search would go on to the maximum length."""

    language = Scripted(lambda _: [0.1, 0.5, 0.2, 0.2])
    language.search([60], SearchConfig(alpha=3), required=[Required((), (((2, 3),),))])
    assert language.steps < 20


@pytest.mark.parametrize("options, message", [
    ({"sample": True}, "constraints work with beam search only, but --sample was given"),
    ({"beam_groups": 2}, "constraints work with a single group of hypotheses, but --beam-groups is 2"),
])  # fmt: skip
def test_searches_that_cannot_hold_phrases(options: dict[str, int], message: str) -> None:
    with pytest.raises(NmtError, match=message):
        Language(0).search([5], SearchConfig(**options), required=[Required((), (((2,),),))])


def has_repeat(tokens: Sequence[int], n: int) -> bool:
    grams = [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
    return len(set(grams)) < len(grams)


@FEW
@given(SEEDS, st.integers(0, 4), st.none() | st.integers(1, 3), st.sampled_from([0.0, 0.6]))
def test_a_wide_beam_finds_the_best_output_of_enough_length_without_repetition(
    seed: int, shortest: int, n: int | None, alpha: float
) -> None:
    language, longest = Language(seed), 5
    outputs = [o for o in language.outputs(longest) if len(o) >= shortest and not (n is not None and has_repeat(o, n))]
    if n == 1 and shortest == 4:  # three tokens cannot make four pieces without repetition
        outputs = list(itertools.permutations((0, 2, 3)))
    best = sorted(outputs, key=lambda o: -language.score(0, o, alpha))[:3]
    config = SearchConfig(beam=130, alpha=alpha, n_best=3, min_length=shortest, no_repeat_ngram=n)
    assert [tuple(f.tokens) for f in language.search([longest], config)[0]] == best


@FEW
@given(SEEDS, st.integers(1, 10), st.integers(1, 4), st.integers(1, 12), st.booleans())
def test_every_output_is_long_enough_and_repeats_nothing(
    seed: int, shortest: int, n: int, longest: int, sample: bool
) -> None:
    language = Language(seed, vocabulary=20)
    several = {"sample": True, "samples": 4} if sample else {"beam": 4, "n_best": 4}
    config = SearchConfig(**several, min_length=shortest, no_repeat_ngram=n)
    hypotheses = language.search([longest], config)[0]
    for tokens in (hypothesis.tokens for hypothesis in hypotheses):
        assert min(shortest, longest - 1) <= len(tokens) < longest
        assert not has_repeat(tokens, n)
        assert EOS not in tokens
