"""Sentences of units as ids, and what their translations must have; `by_sentence` puts translations together again.

What a translation must have, and which sentences are translated in parts, is decided here alone.
"""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice, pairwise, starmap
from typing import NamedTuple, TypeVar

import numpy as np

from nmt import console
from nmt.config import SearchConfig
from nmt.errors import NmtError, naming
from nmt.search.api import Required
from nmt.text.codec import Direction, TextCodec
from nmt.text.glossary import Glossary
from nmt.text.protected import ProtectedSpan, lacks, with_protected
from nmt.text.subword import UNK
from nmt.text.words import RAW_WORD, AlignedWords, Given, is_blank
from nmt.translate.units import Sentence, Translation, Unit, Units, joined

# Source sentences are padded to a multiple of this, so that many have the same width and form one block.
WIDTH_MULTIPLE = 4
# Sums over fewer positions are rounded differently, so that other sentences would change a translation's log P.
LEAST_WIDTH = 16
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


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
        given: prefix and constraints as the user wrote them. The translation gets this spelling instead of that of the
            decoded pieces.
        kept: where the sentence without its tags has what stays.
        words: the number of the word in the raw sentence that each id belongs to; empty if no alignment is needed.
        copies: what stays, if an alignment is needed only to put that into a translation that lacks some of it.
        direction: see `Unit`.
    """

    key: Key
    place: str
    ids: np.ndarray
    required: Required
    given: Given
    kept: Sequence[ProtectedSpan] = ()
    words: Sequence[int] = ()
    copies: Sequence[str] = ()
    direction: Direction | None = None

    @property
    def width(self) -> int:
        """Its positions, EOS included, in a padded batch."""
        return max(LEAST_WIDTH, math.ceil((len(self.ids) + 1) / WIDTH_MULTIPLE) * WIDTH_MULTIPLE)

    def is_aligned(self, translation: str) -> bool:
        """Returns whether this translation needs an alignment."""
        return bool(self.words) and (not self.copies or lacks(translation, self.copies))


def encode(
    codec: TextCodec, units: Units, search: SearchConfig, glossary: Glossary | None = None, first: int = 1
) -> list[EncodedSentence]:
    """Returns the sentences of units as ids. Those that need no model are left out.

    Args:
        glossary: its terms are required of each sentence that has them, unless it is translated in parts.
        first: the number of the first unit.

    Raises:
        NmtError: a prefix is too long, or a sentence in parts has a prefix or constraints.
    """
    keyed = []
    for n, (unit, sentences) in enumerate(units, first):
        for i, sentence in enumerate(sentences):
            if unit.known(sentence):
                continue
            _, text = codec.config.split_tags(sentence.text)
            kept = codec.protected.spans(text, sentence.kept)
            edges = [0, *chain.from_iterable((span.start, span.stop) for span in kept), len(text)]
            others = "".join(text[start:stop] for start, stop in zip(edges[::2], edges[1::2], strict=True))
            if unit.prefix or unit.constraints or any(map(str.isalpha, others)):
                copies = () if search.alignments else tuple(span.word(text) for span in kept)
                keyed.append((Key(n, i), unit, sentence, kept, copies))
    longest = search.max_source_length
    encoded: list[EncodedSentence] = []
    cased_for = codec.config.cased_for
    all_ids = codec.encode_source([cased_for(s.text, direction=unit.direction) for _, unit, s, *_ in keyed])
    for (key, unit, sentence, kept, copies), ids in zip(keyed, all_ids, strict=True):
        place = unit.place or f"line {key.unit}"
        with naming(place):
            of_direction = codec.towards(unit.direction)
        required, given = _required(of_direction, unit, sentence, glossary, is_long=len(ids) > longest)
        parts = _parts(of_direction, ids, longest, required)
        _check(parts, required, place, search)
        is_aligned = search.alignments or kept
        words = iter(codec.words("source", sentence.text, chain.from_iterable(parts)) if is_aligned else ())
        direction = of_direction.direction
        for n, part in enumerate(parts):
            of_part = list(islice(words, len(part)))
            of_key = key._replace(part=n)
            encoded.append(EncodedSentence(of_key, place, part, required, given, kept, of_part, copies, direction))
    return encoded


# How a part of a long sentence ends, if possible.
_SENTENCE_END = re.compile(r"[.!?…。！？।۔][\"'”’»)\]]*$")


def _parts(codec: TextCodec, ids: Sequence[int], longest: int, required: Required) -> list[np.ndarray]:
    """Cuts the ids of a sentence into as few parts as possible, none longer than `longest`.

    A part ends with a sentence if there is one in its second half, or with a word, so that the parts are about even. A
    single word that is longer is cut anywhere. Each part gets the tags and the tokens of languages. A blank sentence
    has no parts, unless its translation must have something.
    """
    tags = codec.tags_before(ids)
    if len(ids) == tags and required == Required():
        return []
    room = max(1, longest - tags)
    pieces = codec.source.pieces(ids) if len(ids) > longest else []
    cuts = [tags]
    while len(ids) - cuts[-1] > room:
        start, left = cuts[-1], len(ids) - cuts[-1]
        ends = [i for i in range(start + 1, start + room + 1) if codec.begins_word(pieces, i)]
        of_sentences = [i for i in ends if i > start + room // 2 and _SENTENCE_END.search(pieces[i - 1])]
        goal = start + math.ceil(left / math.ceil(left / room))
        cuts.append(max(of_sentences, default=0) or min(ends, key=lambda i: abs(i - goal), default=goal))
    before, behind = codec.around
    return [np.array([*before, *ids[:tags], *ids[a:b], *behind], np.int64) for a, b in pairwise([*cuts, len(ids)])]


def _required(
    codec: TextCodec, unit: Unit, sentence: Sentence, glossary: Glossary | None, *, is_long: bool
) -> tuple[Required, Given]:
    """Returns the prefix and the constraints of a sentence, as ids and as text.

    They are tokenised and segmented like other target text. Of a sentence in parts, only the user's constraints count.
    """
    constraints = unit.alternatives
    if glossary is not None:
        _, text = codec.config.split_tags(sentence.text)
        terms = glossary.found_in(text, spaces=codec.has_spaces("source"), lang=codec.config.target_lang)
        if terms and is_long:
            advice = "; raise --max-source-length" if unit.place else ""  # a server has no such flag
            console.warn(f"the glossary is not used for {unit.place or 'a line'}, which is too long{advice}")
        else:
            constraints += terms
    lowered = codec.config.lowers(sentence.text)
    if not unit.prefix and not constraints:
        return Required(), Given(in_capitals=lowered)

    def encoded(phrases: Sequence[str]) -> list[tuple[str, tuple[int, ...]]]:
        ids = codec.encode_target([codec.config.cased_for(sentence.text, phrase) for phrase in phrases])
        return list(zip(phrases, map(tuple, ids), strict=True))

    alternatives = []
    for phrases in constraints:
        visible = [(phrase, ids) for phrase, ids in encoded(phrases) if ids]
        # Of the alternatives, those that the model can write, if there are any.
        alternatives.append([(phrase, ids) for phrase, ids in visible if UNK not in ids] or visible)
    ((_, prefix),) = encoded([unit.prefix])
    as_given = partial(codec.target_phrase, in_capitals=lowered)
    shown = (tuple(filter(None, starmap(as_given, each))) for each in alternatives)
    given = Given(as_given(unit.prefix, prefix), tuple(filter(None, shown)), lowered)
    ids_of = (tuple(ids for _, ids in each) for each in alternatives)
    return Required(prefix, tuple(filter(None, ids_of))), given


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
    """Returns links between words at the same share of both texts, which put target words into elements around all."""
    count, words = (len(RAW_WORD.findall(text)) for text in (source, target))
    return [(word * count // words, word) for word in range(words)]


def by_sentence(
    codec: TextCodec,
    units: Units,
    translations: Iterable[tuple[EncodedSentence, Sequence[Translation]]],
    *,
    aligned: bool,
    glossary: Glossary | None = None,
    first: int = 1,
) -> list[list[list[Translation]]]:
    """Returns the translations of each sentence of each unit, best first, with the words that stay as they are.

    Args:
        translations: those of each encoded sentence.
        aligned: whether alignments were asked for.
        glossary: a translation of a memory without its terms is marked as unmet.
        first: the number of the first unit.
    """
    parts = defaultdict[tuple[int, ...], list[tuple[EncodedSentence, Sequence[Translation]]]](list)
    for encoded, ranked in sorted(translations, key=lambda pair: pair[0].key):
        parts[encoded.key[:2]].append((encoded, ranked))

    def translated(key: tuple[int, ...], unit: Unit, sentence: Sentence) -> Iterator[Translation]:
        tags, source = codec.config.split_tags(sentence.text)
        if match := unit.known(sentence):
            towards = codec.towards(unit.direction)
            spaces, lang = towards.has_spaces("source"), towards.config.target_lang
            terms = glossary.found_in(source, spaces=spaces, lang=lang) if glossary else []
            unmet = not all(any(form in match.target for form in forms) for forms in terms)
            words = _in_proportion(sentence.text, match.target) if aligned else None
            yield Translation(match.target, 0.0, [], [], unmet, words, is_from_memory=True)
        elif key not in parts:  # nothing of the sentence is translated
            words = [(i + len(tags), i) for i in range(len(RAW_WORD.findall(source)))]
            text = "" if is_blank(source) else source.strip()
            yield Translation(text, 0.0, [], [], alignment=words if aligned else None)
        of_direction, given = codec.towards(unit.direction), [unit.prefix, *chain.from_iterable(unit.alternatives)]
        # The n-th translation joins the n-th translation of every part.
        for of_parts in zip(*(ranked for _, ranked in parts[key]), strict=False):
            translation = joined(of_direction, of_parts)
            text, alignment = translation.text, translation.alignment
            if kept := parts[key][0][0].kept:
                links = {j: i - len(tags) for i, j in alignment or () if i >= len(tags)}
                spaces = of_direction.has_spaces("target")
                text, links = with_protected(source, kept, text, links, spaces=spaces, given=given)
                alignment = [(i + len(tags), j) for j, i in links.items()]
            yield translation._replace(text=text, alignment=tuple(sorted(alignment or ())) if aligned else None)

    return [
        [list(translated((n, i), unit, sentence)) for i, sentence in enumerate(sentences)]
        for n, (unit, sentences) in enumerate(units, first)
    ]
