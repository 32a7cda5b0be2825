"""Sentences of units as ids, and what their translations must have; `by_sentence` puts translations together again.

What a translation must have, and which sentences are translated in parts, is decided here alone.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice, starmap
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from nmt import console
from nmt.config import SearchConfig
from nmt.errors import NmtError
from nmt.search.api import Required
from nmt.text.casing import lower
from nmt.text.codec import TextCodec
from nmt.text.directions import Direction
from nmt.text.glossary import TermOccurrence, has_terms
from nmt.text.languages import has_spaces
from nmt.text.protected import lacks, with_protected
from nmt.text.sentences import parts_of_long
from nmt.text.subword import UNK
from nmt.text.terms import Term
from nmt.text.words import RAW_WORD, AlignedWords, Given, is_blank, lacks_numbers, one_line
from nmt.translate.confidence import Calibration
from nmt.translate.units import Doubt, Sentence, Translation, Unit, joined

# Source sentences are padded to a multiple of this, so that many have the same width and form one block.
WIDTH_MULTIPLE = 4
# Sums over fewer positions are rounded differently, so that other sentences would change a translation's log P.
LEAST_WIDTH = 16
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
# Characters of a sentence of which half the length is suspicious
_LONG = 60


class Key(NamedTuple):
    """The number of a unit, counted over all inputs from 1, of a sentence in it, and of a part of that, from 0."""

    unit: int
    sentence: int = 0
    part: int = 0


@dataclass(frozen=True)
class EncodedSentence:
    """A sentence, or a part of a long one, as ids.

    Attributes:
        place: what messages call its unit.
        ids: of the source, with the tokens of languages and without EOS.
        required: what the translation must have, as ids.
        given: prefix and constraints as the user wrote them. The translation gets this spelling instead of that of
            the decoded pieces.
        words: the number of the word in the raw sentence that each id belongs to; empty if no alignment is needed.
        protected: words that stay, if an alignment is needed only to put them into a translation that lacks some.
        direction: the languages.
        terms: those of a glossary that are put into the translation.
        raw: the raw sentence.
    """

    key: Key
    place: str
    ids: np.ndarray
    required: Required
    given: Given
    direction: Direction
    words: Sequence[int] = ()
    protected: Sequence[str] = ()
    terms: Sequence[TermOccurrence] = ()
    raw: str = ""

    @property
    def width(self) -> int:
        """Its positions, EOS included, in a padded batch."""
        return max(LEAST_WIDTH, math.ceil((len(self.ids) + 1) / WIDTH_MULTIPLE) * WIDTH_MULTIPLE)

    def is_aligned(self, translation: str) -> bool:
        """Returns whether this translation needs an alignment."""
        return bool(self.words) and (not self.protected or lacks(translation, self.protected))


def encode(codec: TextCodec, units: Sequence[Unit], search: SearchConfig, first: int = 1) -> list[EncodedSentence]:
    """Returns the sentences of units as ids.

    Those that need no model are left out: a memory or glossary has them, or they stay and have no prefix or
    constraints. Terms are put into a sentence, or required of its translation, unless it is translated in parts.

    Args:
        first: the number of the first unit.

    Raises:
        NmtError: a prefix is too long, or a sentence in parts has a prefix or constraints.
    """
    keyed = [
        (Key(n, i), unit, sentence, codec.config.lowers(sentence.text, unit.direction.source))
        for n, unit in enumerate(units, first)
        for i, sentence in enumerate(unit.sentences)
        if not unit.known(sentence) and (unit.prefix or unit.constraints or not sentence.stays)
    ]
    all_ids = codec.encode_tagged(
        [(s.tags, lower(s.text, unit.direction.source) if lowers else s.text) for _, unit, s, lowers in keyed]
    )
    longest, mode = search.max_source_length, _glossary_mode(codec, search)
    texts = list(dict.fromkeys(chain.from_iterable(sentence.earlier for _, _, sentence, _ in keyed)))
    earlier = dict(zip(texts, codec.encode_source(texts), strict=True))  # a sentence stands before several others
    encoded: list[EncodedSentence] = []
    for (key, unit, sentence, lowers), ids in zip(keyed, all_ids, strict=True):
        place = unit.place or f"line {key.unit}"
        is_blank_text = len(ids) == codec.tags_before(ids)
        before = len(sentence.raw) - len(sentence.text)  # the tags
        terms = tuple(t._replace(start=before + t.start, stop=before + t.stop) for t in sentence.terms)
        lowered = unit.direction.target if lowers else None
        marked = _with_terms(codec, sentence.raw, ids, terms, lowered) if terms and mode != "strict" else ids
        if terms and len(marked) > longest:
            advice = "; raise --max-source-length" if unit.place else ""  # a server has no such flag
            console.warn(f"the glossary is not used for {unit.place or 'a line'}, which is too long{advice}")
            terms, marked = (), ids
        ids = marked
        if sentence.similar:
            (similar,) = codec.encode_target([lower(sentence.similar, lowered) if lowered else sentence.similar])
            with_similar = codec.with_similar(ids, similar)
            ids = with_similar if len(with_similar) <= longest else ids
        if sentence.earlier and not is_blank_text:
            with_context = codec.with_context(ids, [earlier[text] for text in sentence.earlier])
            ids = with_context if len(with_context) <= longest else ids
        terms = () if mode == "learnt" else terms
        constraints = unit.alternatives
        if constraints:
            constraints, terms = [*constraints, *(term.forms for term in terms)], ()
        required, given = required_of(codec, unit.prefix, constraints, unit.direction.target, lowers=lowers)
        parts = [] if is_blank_text and required == Required() else parts_of_long(codec, ids, unit.direction, longest)
        if len(parts) > 1 or required != Required():
            _check(parts, required, place, search)
        is_aligned = search.alignments or sentence.protected
        words = iter(codec.words("source", sentence.raw, chain.from_iterable(parts)) if is_aligned else ())
        protected = () if search.alignments else tuple(span.word(sentence.text) for span in sentence.protected)
        for n, part in enumerate(parts):
            own_key, own_words = key._replace(part=n), list(islice(words, len(part)))
            encoded.append(
                EncodedSentence(
                    own_key, place, part, required, given, unit.direction, own_words, protected, terms, sentence.raw
                )
            )
    return encoded


def _glossary_mode(codec: TextCodec, search: SearchConfig) -> Literal["learnt", "strict", "both"]:
    reads_terms = bool(codec.config.term_pieces)
    if search.glossary_mode in ("learnt", "both") and not reads_terms:
        problem = f"--glossary-mode is {search.glossary_mode}, but the model was trained without preprocess --terms"
        raise NmtError(f"{problem}; give --glossary-mode strict, or train a model with --terms")
    if search.glossary_mode == "auto":
        return "learnt" if reads_terms else "strict"
    return search.glossary_mode


def _with_terms(
    codec: TextCodec, raw: str, ids: Sequence[int], terms: Sequence[TermOccurrence], lowered: str | None
) -> list[int]:
    """Returns the ids of a sentence with the first form of each term behind it.

    Args:
        raw: its text with the tags before it.
        lowered: the target language of a sentence that the model gets in lower case.
    """
    forms = [(term, lower(term.forms[0], lowered) if lowered else term.forms[0]) for term in terms]
    return codec.with_terms(one_line(raw), ids, [Term(term.start, term.stop, form) for term, form in forms])


def required_of(
    codec: TextCodec, prefix: str, constraints: Sequence[Sequence[str]], target_lang: str, *, lowers: bool
) -> tuple[Required, Given]:
    """Returns what a translation must have, as ids and as text, which are tokenised and segmented like other text.

    Args:
        prefix: how it must begin.
        constraints: lists of phrases, one of which it must contain.
        lowers: whether the model gets the sentence in lower case.
    """
    if not prefix and not constraints:
        return Required(), Given(in_capitals=lowers)

    def encoded(phrases: Sequence[str]) -> list[tuple[str, tuple[int, ...]]]:
        ids = codec.encode_target([lower(phrase, target_lang) if lowers else phrase for phrase in phrases])
        return list(zip(phrases, map(tuple, ids), strict=True))

    alternatives = []
    for phrases in constraints:
        visible = [(phrase, ids) for phrase, ids in encoded(phrases) if ids]
        # Of the alternatives, those that the model can write, if there are any.
        alternatives.append([(phrase, ids) for phrase, ids in visible if UNK not in ids] or visible)
    ((_, prefix_ids),) = encoded([prefix])
    as_given = partial(codec.target_phrase, lang=target_lang, in_capitals=lowers)
    shown = (tuple(filter(None, starmap(as_given, each))) for each in alternatives)
    given = Given(as_given(prefix, prefix_ids), tuple(filter(None, shown)), lowers)
    ids = (tuple(ids for _, ids in each) for each in alternatives)
    return Required(prefix_ids, tuple(filter(None, ids))), given


def _check(parts: Sequence[np.ndarray], required: Required, place: str, search: SearchConfig) -> None:
    """Warns of unknown characters in prefix and constraints, and of a sentence that is translated in parts.

    Raises:
        NmtError: the prefix is too long, or a sentence in parts has a prefix or constraints.
    """
    # If one alternative of a constraint has unknown characters, all have.
    phrases = [("its prefix", required.prefix), *(("a constraint", ids) for ids, *_ in required.constraints)]
    for name, ids in phrases:
        if UNK in ids:
            console.warn(f"{place}: {name} has a character that the model does not know, and cannot be kept")
    pieces = sum(map(len, parts))
    limit = pieces + search.max_length_offset
    if len(required.prefix) > limit:
        raise NmtError(
            f"{place}: its prefix has {len(required.prefix):,} pieces, but --max-length-offset "
            f"{search.max_length_offset} allows {limit:,}; shorten it or raise --max-length-offset"
        )
    if len(parts) > 1:
        length = f"{place} has {pieces:,} pieces, more than --max-source-length {search.max_source_length}"
        if required != Required():
            raise NmtError(
                f"{length}, and a line with a prefix or constraints cannot be translated in parts; raise "
                f"--max-source-length"
            )
        console.warn(f"{length}; it is translated in {len(parts)} parts")


def longest_first(tokens: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Yields batches as indices of items, longest item first, so that it shows at once whether memory is enough."""
    indices = iter(sorted(range(len(tokens)), key=lambda i: -tokens[i]))
    for first in indices:
        yield [first, *islice(indices, max(1, batch_tokens // max(tokens[first], 1)) - 1)]


def in_batches(
    work: Callable[[list[_Item]], Iterable[_Result]], items: Sequence[_Item], tokens: Sequence[int], batch_tokens: int
) -> list[_Result]:
    """Returns the result of work for each item. Work gets the items of a batch; see `longest_first`."""
    results: dict[int, _Result] = {}
    for batch in longest_first(tokens, batch_tokens):
        results |= zip(batch, work([items[i] for i in batch]), strict=True)
    return [results[i] for i in range(len(items))]


def _in_proportion(source: str, target: str) -> list[AlignedWords]:
    """Returns an alignment of words at the same share of both texts: elements around all words keep all words."""
    count, words = (len(RAW_WORD.findall(text)) for text in (source, target))
    return [(word * count // words, word) for word in range(words)]


def by_sentence(
    units: Sequence[Unit],
    translations: Iterable[tuple[EncodedSentence, Sequence[Translation]]],
    *,
    aligned: bool,
    first: int = 1,
    calibrations: Mapping[str, Calibration] | None = None,
) -> list[list[list[Translation]]]:
    """Returns the translations of each sentence of each unit, best first, with the words that stay as they are.

    Args:
        translations: those of each encoded sentence.
        aligned: whether alignments were asked for.
        first: the number of the first unit.
        calibrations: by direction. With one, translations, which then have log P of their pieces, get a confidence.
    """
    parts = defaultdict[tuple[int, ...], list[Sequence[Translation]]](list)
    for encoded, ranked in sorted(translations, key=lambda pair: pair[0].key):
        parts[encoded.key[:2]].append(ranked)
    results = []
    for n, unit in enumerate(units, first):
        calibration, ranked_sentences = (calibrations or {}).get(str(unit.direction)), []
        for i, sentence in enumerate(unit.sentences):
            if (n, i) in parts:
                ranked = _from_parts(unit, sentence, parts[n, i], aligned=aligned)
            else:
                ranked = [_without_model(unit, sentence, aligned=aligned)]
            if calibration:
                plain = [each.without_terms or each for each in ranked]
                confidences = [calibration.confidence(sentence.text, each) for each in plain]
                ranked = [each._replace(confidence=value) for each, value in zip(ranked, confidences, strict=True)]
            ranked_sentences.append(
                [_checked(each, sentence, unit.direction)._replace(without_terms=None) for each in ranked]
            )
        results.append(ranked_sentences)
    return results


def _checked(translation: Translation, sentence: Sentence, direction: Direction) -> Translation:
    """Returns a translation with what it lacks, if it is by a model."""
    if translation.origin != "model":
        return translation
    unmet = translation.unmet or not has_terms(sentence.terms, translation.text)
    doubts = (*translation.doubts, *_doubts(sentence.text, translation.text, direction))
    return translation._replace(unmet=unmet, doubts=doubts)


def _doubts(source: str, translation: str, direction: Direction) -> Iterator[Doubt]:
    """Yields why a translation by a model is likely to be wrong; docs/confidence.md has measurements."""
    if lacks_numbers(source, translation):
        yield "missing numbers"
    # Scripts without spaces need fewer characters.
    if len(source) >= _LONG and 2 * len(translation) < len(source) and all(map(has_spaces, direction)):
        yield "much shorter"


def _without_model(unit: Unit, sentence: Sentence, *, aligned: bool) -> Translation:
    """Returns the translation of a sentence that is known, or that has nothing to translate."""
    source = sentence.text
    if known := unit.known(sentence):
        target, origin = known
        unmet = not has_terms(sentence.terms, target)
        words = _in_proportion(sentence.raw, target) if aligned else None
        return Translation(target, 0.0, [], [], unmet, words, origin)
    text = "" if is_blank(source) else source.strip()
    words = [(i + len(sentence.tags), i) for i in range(len(RAW_WORD.findall(text)))]
    return Translation(text, 0.0, [], [], alignment=words if aligned else None)


def _from_parts(
    unit: Unit, sentence: Sentence, parts: Sequence[Sequence[Translation]], *, aligned: bool
) -> list[Translation]:
    """Returns the translations of a sentence by the model. Number n joins number n of every part."""
    translations = []
    target_lang, tags = unit.direction.target, len(sentence.tags)
    for ranked in zip(*parts, strict=False):
        gap = " " if has_spaces(target_lang) else ""
        translation = ranked[0] if len(ranked) == 1 else joined(ranked, [gap] * (len(ranked) - 1))
        text, alignment = translation.text, translation.alignment
        if sentence.protected:
            source_of = {j: i - tags for i, j in alignment or () if i >= tags}
            forms = (term.forms for term in sentence.terms)
            given = chain.from_iterable([*unit.alternatives, *forms])
            text, source_of = with_protected(
                sentence.text,
                sentence.protected,
                text,
                source_of,
                spaces=has_spaces(target_lang),
                given=given,
                prefix=unit.prefix or "",
            )
            alignment = [(i + tags, j) for j, i in source_of.items()]
        in_order = tuple(sorted(alignment or ())) if aligned else None
        translations.append(translation._replace(text=text, alignment=in_order))
    return translations
