"""Units: what a user gives to be translated as one thing, such as a line, a passage of a document, or a text.

A unit knows its sentences, and how their translations become its own. `encode` turns the sentences of units into ids.
What a translation must have, and which sentences are translated in parts, is decided here alone.
"""

import math
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain, islice, pairwise, starmap
from typing import Any, Literal, NamedTuple

import numpy as np

from nmt import console
from nmt.config import SearchConfig
from nmt.errors import NmtError
from nmt.search.api import Required
from nmt.text.codec import TextCodec
from nmt.text.glossary import Glossary
from nmt.text.markup_reading import parse
from nmt.text.markup_writing import MarkedText
from nmt.text.protected import Span, with_protected
from nmt.text.sentences import gaps_between, sentence_spans
from nmt.text.subword import UNK
from nmt.text.words import RAW_WORD, AlignedWords, Given, is_blank
from nmt.translate.records import Translation

# Source sentences are padded to a multiple of this, so that many have the same width and form one block.
WIDTH_MULTIPLE = 4
# Sums over fewer positions are rounded differently, so that other sentences would change a translation's log P.
LEAST_WIDTH = 16

# What of a unit is translated at once: the whole unit, each of its lines, or each sentence of its lines.
Split = Literal["unit", "lines", "sentences"]


class Sentence(NamedTuple):
    """A sentence of a unit.

    Attributes:
        line: the number of its line in the unit, from 0; in a unit with markup, of its marked text.
        kept: where its text without tags of languages has what stays as it is. Protected words stay, too.
    """

    line: int
    text: str
    kept: tuple[Span, ...] = ()


@dataclass(frozen=True)
class Unit:
    """What a user gives to be translated as one thing.

    Attributes:
        source: raw text.
        markup: how the text is marked up; see `nmt.text.markup_reading.parse`.
        prefix: how the translation must begin, as raw text.
        constraints: phrases that must occur in the translation, as raw text. Several phrases in place of one are
            alternatives, one of which must occur.
        kept: as for a sentence, if the unit is one.
        place: what messages call the unit; by default `line` and its number.
        fields: the JSON object of the unit; empty for text.
        lang: the language code of the text, if elements of HTML that name another one stay as they are.
    """

    source: str
    markup: Literal["html", "xml"] | None = None
    prefix: str = ""
    constraints: tuple[str | Sequence[str], ...] = ()
    kept: tuple[Span, ...] = ()
    place: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
    lang: str = ""

    @cached_property
    def content(self) -> Sequence[str | MarkedText]:
        """The marked texts of a unit with markup, and the markup between them; raises NmtError if it is damaged."""
        return parse(self.source, self.markup, lang=self.lang) if self.markup else []

    @property
    def marked_texts(self) -> list[MarkedText]:
        """The marked texts of a unit with markup."""
        return [part for part in self.content if isinstance(part, MarkedText)]

    @property
    def lines(self) -> list[str]:
        """The lines of plain text, or the marked texts without their markup."""
        return [text.source for text in self.marked_texts] if self.markup else self.source.split("\n")

    def sentences(self, codec: TextCodec, split: Split) -> list[Sentence]:
        """Returns the sentences of the unit. Blank lines have none."""
        if split == "unit":
            return [Sentence(0, self.source, self.kept)]
        kept = [text.kept for text in self.marked_texts] if self.markup else [list[Span]()] * len(self.lines)
        sentences: list[Sentence] = []
        for number, (line, of_line) in enumerate(zip(self.lines, kept, strict=True)):
            start = 0
            for part in line.split("\n"):  # a marked text can have several lines
                sentences += _cut(number, part, _within(of_line, start, start + len(part)), codec, split)
                start += len(part) + 1
        return sentences

    def translated(self, sentences: Sequence[Sentence], translations: Sequence[Translation], codec: TextCodec) -> str:
        """Returns the translations of the sentences as one text, with the lines or the markup of the source."""
        of_lines: list[list[tuple[str, Translation]]] = [[] for _ in self.lines]
        for sentence, translation in zip(sentences, translations, strict=True):
            of_lines[sentence.line].append((sentence.text, translation))
        joined = [_joined_line(line, of_line, codec) for line, of_line in zip(self.lines, of_lines, strict=True)]
        if self.markup is None:
            lines = zip(self.lines, joined, strict=True)
            return "\n".join(_with_edges(line, text) for line, (text, _) in lines)
        texts = iter(joined)
        return "".join(part if isinstance(part, str) else part.restored(*next(texts)) for part in self.content)


def _within(spans: Iterable[Span], start: int, stop: int) -> list[Span]:
    """Returns the spans in a part of a text, as places in this part."""
    return [(begin - start, end - start) for begin, end in spans if start <= begin and end <= stop]


def _cut(number: int, line: str, kept: Sequence[Span], codec: TextCodec, split: Split) -> Iterator[Sentence]:
    """Yields the sentences of a line of plain text, or the line if it is not blank. Each has the tags of the line."""
    tags, text = codec.config.split_tags(line)
    kept = _within(kept, len(line) - len(text), len(line))
    if split == "lines":
        yield from [] if is_blank(line) else [Sentence(number, line, tuple(kept))]
        return
    for start, stop in sentence_spans(text, codec.config.source_lang, _kept_words(codec, text, kept)):
        yield Sentence(number, " ".join([*tags, text[start:stop]]), tuple(_within(kept, start, stop)))


def _kept_words(codec: TextCodec, text: str, kept: Sequence[Span]) -> list[Span]:
    """Returns where a text without tags has words that stay as they are, in order. None overlap."""
    joined: list[Span] = []
    for start, stop in sorted([*kept, *codec.protected.spans(text)]):
        if joined and start < joined[-1][1]:
            joined[-1] = joined[-1][0], max(stop, joined[-1][1])
        else:
            joined.append((start, stop))
    return joined


def _with_edges(line: str, translation: str) -> str:
    """Returns the translation of a line of plain text with the spaces around the line."""
    if is_blank(line):
        return line
    return line[: len(line) - len(line.lstrip())] + translation + line[len(line.rstrip()) :]


def _joined_line(
    line: str, of_line: Sequence[tuple[str, Translation]], codec: TextCodec
) -> tuple[str, list[AlignedWords]]:
    """Returns the translation of a line whose sentences were translated, and the alignment of its words."""
    spans: list[Span] = []
    alignment: list[AlignedWords] = []
    is_aligned = any(translation.alignment for _, translation in of_line)
    starts = [match.start() for match in RAW_WORD.finditer(line)] if is_aligned else []
    target_words = offset = 0
    for sentence, translation in of_line:
        tags, text = codec.config.split_tags(sentence)  # only the line has them, and only at its beginning
        offset = max(offset, line.find(text, offset))
        gap = line[spans[-1][1] : offset] if spans and codec.has_spaces("target") else ""
        target_words -= bool(gap) and RAW_WORD.fullmatch(gap) is not None  # a no-break space joins words
        spans.append((offset, offset + len(text)))
        first = bisect_right(starts, offset) - 1 - len(tags)  # the word that the sentence begins with, or within
        for source, target in translation.alignment or ():
            alignment.append((source if source < len(tags) else first + source, target_words + target))
        offset += len(text)
        target_words += codec.words_before(translation.text)
    gaps = [*gaps_between(line, spans, spaces=codec.has_spaces("target")), ""]
    texts = (translation.text for _, translation in of_line)
    return "".join(chain.from_iterable(zip(texts, gaps, strict=False))), alignment


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
        ids: of the source, without EOS.
        required: what the translation must have, as ids.
        given: prefix and constraints as the user wrote them. The translation gets this spelling instead of that of the
            decoded pieces.
        words: the number of the word in the raw sentence that each id belongs to; empty if no alignment is needed.
    """

    key: Key
    place: str
    ids: np.ndarray
    required: Required
    given: Given
    words: Sequence[int] = ()

    @property
    def width(self) -> int:
        """Its positions, EOS included, in a padded batch."""
        return max(LEAST_WIDTH, math.ceil((len(self.ids) + 1) / WIDTH_MULTIPLE) * WIDTH_MULTIPLE)

    @property
    def stream(self) -> tuple[int, ...]:
        """The numbers that its random numbers depend on."""
        return self.key if any(self.key[1:]) else self.key[:1]


def encode(
    codec: TextCodec,
    units: Sequence[tuple[Unit, Sequence[Sentence]]],
    search: SearchConfig,
    glossary: Glossary | None = None,
    first: int = 1,
) -> list[EncodedSentence]:
    """Returns the sentences of units as ids. Those of which nothing is to be translated are left out.

    Args:
        glossary: its terms are required of each sentence that has them, unless it is translated in parts.
        first: the number of the first unit.

    Raises:
        NmtError: a prefix is too long, or a sentence in parts has a prefix or constraints.
    """
    keyed = [
        (Key(number, i), unit, sentence)
        for number, (unit, sentences) in enumerate(units, first)
        for i, sentence in enumerate(sentences)
        if unit.prefix or unit.constraints or not _stays(codec, sentence)
    ]
    ids = codec.encode_source([sentence.text for _, _, sentence in keyed])
    constraints = [
        _constraints(codec, unit, sentence, len(of_sentence) > search.max_source_length, glossary)
        for (_, unit, sentence), of_sentence in zip(keyed, ids, strict=True)
    ]
    required = _required(codec, [(sentence.text, unit.prefix) for _, unit, sentence in keyed], constraints)
    encoded: list[EncodedSentence] = []
    for (key, unit, sentence), of_sentence, (needed, given) in zip(keyed, ids, required, strict=True):
        place = unit.place or f"line {key.unit}"
        tags = codec.tags_before(of_sentence)
        parts = _parts(codec, of_sentence, tags, search.max_source_length, needed)
        _check(parts, needed, place, search)
        all_ids = list(chain.from_iterable(parts))
        _, text = codec.config.split_tags(sentence.text)
        is_aligned = search.alignments or _kept_words(codec, text, sentence.kept)
        words = iter(codec.words("source", sentence.text, all_ids) if is_aligned else ())
        encoded += [
            EncodedSentence(key._replace(part=n), place, part, needed, given, list(islice(words, len(part))))
            for n, part in enumerate(parts)
        ]
    return encoded


def _stays(codec: TextCodec, sentence: Sentence) -> bool:
    """Returns whether nothing of a sentence is translated: it has no letters outside the words that stay."""
    _, text = codec.config.split_tags(sentence.text)
    start, others = 0, ""
    for begin, stop in [*_kept_words(codec, text, sentence.kept), (len(text), len(text))]:
        others += text[start:begin]
        start = stop
    return not any(map(str.isalpha, others))


def _constraints(
    codec: TextCodec, unit: Unit, sentence: Sentence, is_long: bool, glossary: Glossary | None
) -> list[Sequence[str]]:
    """Returns the alternatives of each constraint of a sentence; only the user's if it is translated in parts."""
    constraints = [[phrases] if isinstance(phrases, str) else phrases for phrases in unit.constraints]
    if glossary is not None:
        _, text = codec.config.split_tags(sentence.text)
        terms = glossary.found_in(text, spaces=codec.has_spaces("source"))
        if terms and is_long:
            advice = "; raise --max-source-length" if unit.place else ""  # a server has no such flag
            console.warn(f"the glossary is not used for {unit.place or 'a line'}, which is too long{advice}")
        else:
            constraints += terms
    return constraints


def _required(
    codec: TextCodec, sentences: Sequence[tuple[str, str]], constraints: Sequence[Sequence[Sequence[str]]]
) -> list[tuple[Required, Given]]:
    """Returns prefixes and constraints as ids and as text. They are tokenised and segmented like other target text.

    Args:
        sentences: the source and the prefix of each sentence.
        constraints: the alternatives of each constraint of each sentence.
    """
    in_capitals = [codec.config.lowers(source) for source, _ in sentences]
    if not any(prefix for _, prefix in sentences) and not any(constraints):
        return [(Required(), Given(in_capitals=lowered)) for lowered in in_capitals]
    texts = [
        codec.config.cased_for(source, text)
        for (source, prefix), of_sentence in zip(sentences, constraints, strict=True)
        for text in (prefix, *chain.from_iterable(of_sentence))
    ]
    ids = iter(codec.encode_target(texts))
    required = []
    for (_, prefix), of_sentence, lowered in zip(sentences, constraints, in_capitals, strict=True):
        prefix_ids = tuple(next(ids))
        alternatives = []
        for phrases in of_sentence:
            visible = [(text, phrase) for text, phrase in ((text, tuple(next(ids))) for text in phrases) if phrase]
            # Of the alternatives, those that the model can write, if there are any.
            alternatives.append([(text, phrase) for text, phrase in visible if UNK not in phrase] or visible)
        as_given = partial(codec.target_phrase, in_capitals=lowered)
        shown = (tuple(filter(None, starmap(as_given, each))) for each in alternatives)
        given = Given(as_given(prefix, prefix_ids), tuple(filter(None, shown)), lowered)
        encoded = (tuple(phrase for _, phrase in each) for each in alternatives)
        required.append((Required(prefix_ids, tuple(filter(None, encoded))), given))
    return required


# How a part of a long sentence may end, if possible.
_SENTENCE_END = re.compile(r"[.!?…。！？।۔][\"'”’»)\]]*$")


def _parts(codec: TextCodec, ids: Sequence[int], tags: int, longest: int, required: Required) -> list[np.ndarray]:
    """Cuts the ids of a sentence into as few parts as possible, none longer than `longest`.

    A part ends with a sentence if there is one in its second half, or with a word, so that the parts are about even. A
    single word that is longer is cut anywhere. The first `tags` ids are tags, which each part gets. A blank sentence
    has no parts, unless its translation must have something.
    """
    if len(ids) == tags:
        return [np.array(ids, np.int64)] if required != Required() else []
    room = max(1, longest - tags)
    pieces = codec.source.pieces(ids) if len(ids) > longest else []
    cuts = [tags]
    while len(ids) - cuts[-1] > room:
        start, left = cuts[-1], len(ids) - cuts[-1]
        ends = [i for i in range(start + 1, start + room + 1) if codec.begins_word(pieces, i)]
        of_sentences = [i for i in ends if i > start + room // 2 and _SENTENCE_END.search(pieces[i - 1])]
        goal = start + math.ceil(left / math.ceil(left / room))
        cuts.append(max(of_sentences, default=0) or min(ends, key=lambda i: abs(i - goal), default=goal))
    return [np.array([*ids[:tags], *ids[a:b]], np.int64) for a, b in pairwise([*cuts, len(ids)])]


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


def by_sentence(
    codec: TextCodec,
    units: Sequence[tuple[Unit, Sequence[Sentence]]],
    translations: Mapping[Key, Sequence[Translation]],
    *,
    aligned: bool,
    first: int = 1,
) -> list[list[list[Translation]]]:
    """Returns the translations of each sentence of each unit, best first.

    Args:
        translations: those of each encoded sentence.
        aligned: whether alignments were asked for.
        first: the number of the first unit.
    """
    parts: dict[tuple[int, int], list[Sequence[Translation]]] = {}
    for key in sorted(translations):
        parts.setdefault(key[:2], []).append(translations[key])
    return [
        [
            [
                _with_kept_words(codec, sentence, translation, aligned=aligned)
                for translation in _joined_parts(codec, sentence, parts.get((number, i), []), aligned=aligned)
            ]
            for i, sentence in enumerate(sentences)
        ]
        for number, (_, sentences) in enumerate(units, first)
    ]


def _with_kept_words(codec: TextCodec, sentence: Sentence, translation: Translation, *, aligned: bool) -> Translation:
    """Returns a translation of a sentence with the words that stay as they are."""
    tags, text = codec.config.split_tags(sentence.text)
    words = _kept_words(codec, text, sentence.kept)
    if not words:
        return translation
    links = {target: source - len(tags) for source, target in translation.alignment or () if source >= len(tags)}
    kept, links = with_protected(text, words, translation.text, links, spaces=codec.has_spaces("target"))
    alignment = tuple(sorted((source + len(tags), target) for target, source in links.items()))
    return translation._replace(text=kept, alignment=alignment if aligned else None)


def _joined_parts(
    codec: TextCodec, sentence: Sentence, parts: Sequence[Sequence[Translation]], *, aligned: bool
) -> list[Translation]:
    """Returns the translations of a sentence; the n-th joins the n-th translation of every part."""
    if len(parts) == 1:
        return list(parts[0])
    if not parts:
        tags, text = codec.config.split_tags(sentence.text)
        words = tuple((i + len(tags), i) for i in range(len(RAW_WORD.findall(text))))
        return [Translation(text.strip(), 0.0, [], [], alignment=words if aligned else None)]
    joined = []
    for ranked in zip(*parts, strict=False):
        alignment: list[AlignedWords] = []
        first_word = 0  # of the part in the joined text
        for part in ranked:
            alignment += [(source, first_word + target) for source, target in part.alignment or ()]
            first_word += codec.words_before(part.text)
        joined.append(
            Translation(
                codec.join_target(part.text for part in ranked),
                sum(part.score for part in ranked),
                [piece for part in ranked for piece in part.pieces],
                [log_prob for part in ranked for log_prob in part.log_probs],
                alignment=tuple(sorted(alignment)) if alignment or aligned else None,
            )
        )
    return joined
