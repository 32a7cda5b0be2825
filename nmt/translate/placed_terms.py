"""Terms of a glossary in finished translations, where they take the place of the words that translate their source.

Such words depend on the term: their log P falls if it is taken out of the source, and that of other words hardly
(Li et al. 2019, "On the Word Alignment from Neural Machine Translation"). Attention finds them less often, above all
after a short training.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from nmt.config import SearchConfig
from nmt.search.api import Required
from nmt.text.codec import TextCodec
from nmt.text.glossary import TermPlace, has_terms, with_terms
from nmt.text.languages import has_spaces
from nmt.text.subword import UNK
from nmt.text.words import NO_WORD, RAW_WORD, AlignedWords, one_line
from nmt.translate.encoding import EncodedSentence, required_of
from nmt.translate.units import Translation

if TYPE_CHECKING:
    from nmt.translate.job import Engine

# A translation whose terms cost more log P per piece is doubtful; docs/decoding.md has measurements.
_MOST_COST = 3.0
# A word depends on a term if its log P falls by this without the term; its neighbours, if theirs falls half as much.
# Where no search can require a term without a place, less suffices.
_LEAST_FALL, _LEAST_FALL_WITHOUT_SEARCH = 0.25, 0.05


def translate_with_terms(
    engine: "Engine", sentences: Sequence[EncodedSentence], search: SearchConfig
) -> list[list[Translation]]:
    """Returns translations with the terms of their sentences, in the order that they have without the terms.

    Terms without a place are required of a search.
    """
    translations = engine.translate([replace(s, terms=()) for s in sentences], search, log_probs=True)
    lacking = [
        (n, i)
        for n, (s, ranked) in enumerate(zip(sentences, translations, strict=True))
        for i, translation in enumerate(ranked)
        if not has_terms(s.terms, translation.text)
    ]
    can_require = engine.has_constraints and not search.sample and search.beam_groups == 1
    translated = [(sentences[n], translations[n][i]) for n, i in lacking]
    placed = _placed(engine, translated, search, may_lack=not can_require)
    unplaced = dict.fromkeys(n for (n, _), new in zip(lacking, placed, strict=True) if not new and can_require)
    forms = {n: [term.forms for term in sentences[n].terms] for n in unplaced}
    constrained = [
        _with_prefix_of(sentences[n], _requiring(engine.codec, sentences[n], "", forms[n])) for n in unplaced
    ]
    searched = (
        engine.translate(constrained, replace(search, n_best=1, mbr="none"), log_probs=True) if constrained else []
    )
    by_search = dict(zip(unplaced, searched, strict=True))
    last = set[tuple[int, str]]()  # translations that come after the others, because they lack terms
    for (n, i), candidates in zip(lacking, placed, strict=True):
        terms, ranked = sentences[n].terms, translations[n]
        best = max(candidates or by_search.get(n, [ranked[i]]), key=lambda new: fmean(new.log_probs))
        is_right = bool(candidates) and not best.unmet  # also if a prefix has decided on a term that is missing
        is_doubtful = fmean(ranked[i].log_probs) - fmean(best.log_probs) > _MOST_COST
        if is_doubtful and search.glossary_fallback:
            best, is_doubtful, is_right = ranked[i], False, False
        is_unmet = not has_terms(terms, best.text)
        if is_unmet and not is_right:
            last.add((n, best.text))
        ranked[i] = best._replace(unmet=is_unmet, doubts=("terms",) if is_doubtful else (), without_terms=ranked[i])
    for n in {n for n, _ in lacking if not search.sample}:  # several may have become equal
        distinct = dict[str, Translation]()
        for translation in translations[n]:
            distinct.setdefault(translation.text, translation)
        translations[n] = sorted(distinct.values(), key=lambda each: (n, each.text) in last)
    return translations


def _placed(
    engine: "Engine", translated: Sequence[tuple[EncodedSentence, Translation]], search: SearchConfig, *, may_lack: bool
) -> list[list[Translation]]:
    """Returns the translations with the terms that they lack in their places, for each form; none if one has no place.

    Args:
        translated: sentences with translations that lack terms.
        may_lack: whether terms without a place are left out, instead of giving none.
    """
    placed, new = list[list[tuple[str, list[AlignedWords], bool]]](), list[EncodedSentence]()
    least_fall = _LEAST_FALL_WITHOUT_SEARCH if may_lack else _LEAST_FALL
    all_places = _places(engine, translated, search, least_fall)
    for (sentence, translation), places in zip(translated, all_places, strict=True):
        # Whoever gave a prefix has decided on the terms whose place is in it.
        (prefix,) = engine.codec.decode_target([[*sentence.required.prefix]])
        first = len(RAW_WORD.findall(prefix))
        decided = [term for term, _, target in places if target and target.start < first]
        chosen = [place for place in places if place.term not in decided]
        needed = [term for term in sentence.terms if term not in decided]
        alignment = translation.alignment or ()
        texts = dict(with_terms(translation.text, chosen, alignment))
        whole = {text for text in texts if has_terms(needed, text)}
        partial = {text for text in texts if may_lack and text != translation.text}
        placed.append([(text, texts[text], text not in whole) for text in texts if text in (whole or partial)])
        new += [_requiring(engine.codec, sentence, text, ()) for text, *_ in placed[-1]]
    scored, pieces = iter(engine.score_prefixes(new, search)), engine.codec.target.pieces
    return [
        [
            Translation(text, h.score, pieces(h.tokens), h.log_probs, unmet, links if is_aligned else None)
            for (text, links, unmet), h in zip(texts, scored, strict=False)
        ]
        for texts, is_aligned in zip(placed, (best.alignment is not None for _, best in translated), strict=True)
    ]


def _places(
    engine: "Engine", translated: Sequence[tuple[EncodedSentence, Translation]], search: SearchConfig, least_fall: float
) -> list[list[TermPlace]]:
    """Returns the places of the terms that translations lack."""
    missing = [[term for term in sentence.terms if not term.form_in(best.text)] for sentence, best in translated]
    wholes = [_requiring(engine.codec, sentence, best.text, ()) for sentence, best in translated]
    shortened = [
        replace(whole, ids=_without(whole.ids, spelling))
        for whole, terms in zip(wholes, missing, strict=True)
        for spelling in engine.codec.spellings(one_line(whole.raw), whole.ids.tolist(), [term[:2] for term in terms])
    ]
    log_probs = iter([np.array(each.log_probs) for each in engine.score_prefixes([*wholes, *shortened], search)])
    given = [*islice(log_probs, len(wholes))]
    places = list[list[TermPlace]]()
    for (sentence, best), whole, terms, given_P in zip(translated, wholes, missing, given, strict=True):
        line, words = one_line(sentence.raw), engine.codec.words("target", best.text, whole.required.prefix)
        places.append([])
        for term, shortened_P in zip(terms, log_probs, strict=False):
            has_words = term.is_whole_in(line) and all(map(has_spaces, sentence.direction))
            falls = _by_word((given_P - shortened_P)[:-1], words)
            target = _place(falls, least_fall) if has_words else range(0)
            source = range(line.count(" ", 0, term.start), line.count(" ", 0, term.stop) + 1)
            places[-1].append(TermPlace(term, source, target))
    return places


def _without(ids: np.ndarray, spelling: Sequence[int]) -> np.ndarray:
    """Returns the ids of a source with an unknown piece in place of those that spell a term."""
    unknown = ids.copy()
    unknown[spelling[:1]] = UNK
    return np.delete(unknown, spelling[1:])


def _by_word(values_P: np.ndarray, words: Sequence[int]) -> np.ndarray:
    """Returns the sum of the values of each word, whose number each piece has."""
    sums = np.zeros(max(words, default=NO_WORD) + 1)
    for value, word in zip(values_P, words, strict=True):
        if word != NO_WORD:
            sums[word] += value
    return sums


def _place(falls: np.ndarray, least_fall: float) -> range:
    """Returns the words that depend on a term, by how far their log P falls without it; none if none does."""
    if falls.max(initial=0.0) < least_fall:
        return range(0)
    depends = [2 * fall >= falls.max() for fall in falls]
    start = stop = int(falls.argmax())
    while start > 0 and depends[start - 1]:
        start -= 1
    while stop < len(falls) and depends[stop]:
        stop += 1
    return range(start, stop)


def _with_prefix_of(sentence: EncodedSentence, other: EncodedSentence) -> EncodedSentence:
    """Returns another sentence with the prefix of this one."""
    given = other.given._replace(prefix=sentence.given.prefix)
    return replace(other, given=given, required=Required(sentence.required.prefix, other.required.constraints))


def _requiring(
    codec: TextCodec, sentence: EncodedSentence, prefix: str, constraints: Sequence[Sequence[str]]
) -> EncodedSentence:
    """Returns a sentence whose translation must have these, and no other terms; see `required_of`."""
    lang, lowers = sentence.direction.target, sentence.given.in_capitals
    required, given = required_of(codec, prefix, constraints, lang, lowers=lowers)
    words = sentence.words if constraints else ()  # a whole translation gets the alignment of the one it is made from
    return replace(sentence, terms=(), required=required, given=given, words=words)
