"""Units, which users give to be translated as one thing, such as a line or a passage; their sentences and translations.

A unit knows its sentences, and how their translations become its own. `encode` turns the sentences of units into ids.
What a translation must have, and which sentences are translated in parts, is decided here alone.
"""

import math
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain, groupby, islice, pairwise, starmap
from operator import attrgetter
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from nmt import console
from nmt.config import SearchConfig
from nmt.errors import NmtError, naming
from nmt.memories.matching import Match
from nmt.memories.memory import AnyMemory, matches_of
from nmt.search.api import Required
from nmt.text.codec import Direction, TextCodec
from nmt.text.glossary import Glossary
from nmt.text.icu import parse_icu
from nmt.text.markup_reading import NO_RULES, ElementRules, parse
from nmt.text.markup_writing import MarkedText
from nmt.text.protected import Span, with_protected
from nmt.text.sentences import gaps_between, sentence_spans
from nmt.text.subword import UNK
from nmt.text.words import RAW_WORD, AlignedWords, Given, is_blank, pharaoh

# Source sentences are padded to a multiple of this, so that many have the same width and form one block.
WIDTH_MULTIPLE = 4
# Sums over fewer positions are rounded differently, so that other sentences would change a translation's log P.
LEAST_WIDTH = 16
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Translation(NamedTuple):
    """A translation of a sentence or unit.

    If a sentence was translated in parts, texts, pieces and their log P are joined, and scores are summed.

    Attributes:
        text: raw text.
        score: log P over the length penalty.
        pieces: the target pieces.
        log_probs: natural log P of each piece, and at the end that of EOS; each part ends in EOS. Like the pieces, they
            are empty if they were not asked for.
        unmet: whether a constraint is missing.
        alignment: between words of the raw source and of `text`; None if it was not asked for.
        is_from_memory: whether it is from a memory, and so has neither log P nor an alignment of words.
    """

    text: str
    score: float
    pieces: list[str]
    log_probs: list[float]
    unmet: bool = False
    alignment: Sequence[AlignedWords] | None = None
    is_from_memory: bool = False

    def fields(self) -> dict[str, Any]:
        """Returns the translation as the fields of a JSON object."""
        unmet = {"unmet": True} if self.unmet else {}
        if self.is_from_memory:
            return {"text": self.text, "origin": "memory"} | unmet
        fields = {
            "text": self.text,
            "score": self.score,
            "log_prob": sum(self.log_probs),
            "pieces": self.pieces,
            "log_probs": self.log_probs,
        }
        aligned = {} if self.alignment is None else {"alignment": pharaoh(self.alignment)}
        return fields | aligned | unmet


class Sentence(NamedTuple):
    """A sentence of a unit.

    Attributes:
        line: the number of its line in the unit, from 0; in a unit with markup, of its marked text.
        kept: where its text without tags of languages has what stays as markup says. Protected words stay, too.
        has_elements: whether elements of markup begin or end within it.
        matches: those of memories.
    """

    line: int
    text: str
    kept: tuple[Span, ...] = ()
    has_elements: bool = False
    matches: tuple[Match, ...] = ()


@dataclass(frozen=True)
class Unit:
    """A text to translate, such as a line or a paragraph, and what its translation must have.

    Attributes:
        source: raw text.
        markup: what the text is written in if it is not plain: HTML, XML, or a message of ICU.
        prefix: how the translation must begin, as raw text.
        constraints: phrases that must occur in the translation, as raw text. Several phrases in place of one are
            alternatives, one of which must occur.
        place: what messages call the unit; by default `line` and its number.
        fields: the JSON object of the unit; empty for text.
        lang: the language code of the text, if elements of HTML that name another one stay as they are.
        rules: for elements of its markup.
        direction: the languages, for a model of several.
    """

    source: str
    markup: Literal["html", "xml", "icu"] | None = None
    prefix: str = ""
    constraints: tuple[str | Sequence[str], ...] = ()
    place: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
    lang: str = ""
    rules: ElementRules = NO_RULES
    direction: Direction | None = None

    def __post_init__(self) -> None:
        if isinstance(self.constraints, str):
            raise TypeError("constraints takes a list of phrases; put a single one in brackets")

    @cached_property
    def content(self) -> Sequence[str | MarkedText]:
        """The marked texts of a unit with markup, and the markup between them; raises NmtError if it is damaged."""
        if self.markup == "icu":
            return parse_icu(self.source) or [self.source]
        return parse(self.source, self.markup, lang=self.lang, rules=self.rules) if self.markup else []

    @property
    def marked_texts(self) -> list[MarkedText]:
        """The marked texts of a unit with markup."""
        return [part for part in self.content if isinstance(part, MarkedText)]

    @property
    def lines(self) -> list[str]:
        """The lines of plain text, or the marked texts without their markup."""
        return [text.source for text in self.marked_texts] if self.markup else self.source.split("\n")

    @property
    def alternatives(self) -> list[Sequence[str]]:
        """The phrases of each constraint, of which one must occur."""
        return [[phrases] if isinstance(phrases, str) else phrases for phrases in self.constraints]

    def sentences(self, codec: TextCodec | None = None) -> list[Sentence]:
        """Returns the sentences of the unit's lines. Blank lines have none.

        Args:
            codec: the text processing of the source, to cut lines into sentences. Without it, each line is a sentence.
        """
        codec = codec and codec.towards(self.direction)
        marked: Sequence[MarkedText | None] = self.marked_texts if self.markup else [None] * len(self.lines)
        sentences: list[Sentence] = []
        for number, (text, of_markup) in enumerate(zip(self.lines, marked, strict=True)):
            of_text = of_markup.kept if of_markup else ()
            for line in re.finditer("[^\n]+", text):  # a marked text can have several lines
                tags, plain = codec.config.split_tags(line[0]) if codec else ([], line[0])
                of_line = _within(of_text, line.end() - len(plain), line.end())
                spans = [] if is_blank(line[0]) else [(0, len(plain))]
                if codec:
                    spans = sentence_spans(plain, codec.config.source_lang, codec.protected.spans(plain, of_line))
                for span in spans:  # each sentence has the tags of the line
                    sentence = " ".join([*tags, plain[slice(*span)]])
                    start, stop = (line.end() - len(plain) + edge for edge in span)
                    has_elements = of_markup is not None and of_markup.has_elements(text[:start], text[:stop])
                    sentences.append(Sentence(number, sentence, _within(of_line, *span), has_elements))
        return sentences

    def known(self, sentence: Sentence) -> Match | None:
        """Returns the match whose target is the translation of a sentence, which the model then does not translate.

        A memory does not say where elements belong, and does not have the prefix and the constraints of the unit.
        """
        if self.prefix or self.constraints or sentence.has_elements:
            return None
        return next((match for match in sentence.matches if match.score == 1), None)

    def translated(self, sentences: Sequence[Sentence], translations: Sequence[Translation], codec: TextCodec) -> str:
        """Returns the translations of the sentences as one text, with the lines or the markup of the source."""
        codec = codec.towards(self.direction)
        of_lines: list[list[tuple[str, Translation]]] = [[] for _ in self.lines]
        for sentence, translation in zip(sentences, translations, strict=True):
            of_lines[sentence.line].append((sentence.text, translation))
        lines = [_joined_line(line, of_line, codec) for line, of_line in zip(self.lines, of_lines, strict=True)]
        if self.markup is None:  # the spaces around a line stay
            both = zip(self.lines, lines, strict=True)
            return "\n".join(line if is_blank(line) else line.replace(line.strip(), new.text, 1) for line, new in both)
        left_out: list[set[str]] = [set() for _ in self.lines]
        for sentence, translation in zip(sentences, translations, strict=True):
            if translation.is_from_memory:  # which may have another address, for example
                _, text = codec.config.split_tags(sentence.text)
                left_out[sentence.line].update(text[slice(*span)] for span in sentence.kept)
        pairs = zip(lines, left_out, strict=True)
        texts = iter([(line.text, list(line.alignment or ()), words) for line, words in pairs])
        return "".join(part if isinstance(part, str) else part.restored(*next(texts)) for part in self.content)

    def translation(
        self, sentences: Sequence[Sentence], translations: Sequence[Translation], codec: TextCodec
    ) -> Translation:
        """Returns the translation of a unit that is a line of plain text, or with markup its text alone."""
        if self.markup is None:
            of_line = [(sentence.text, each) for sentence, each in zip(sentences, translations, strict=True)]
            return _joined_line(self.source, of_line, codec.towards(self.direction))
        unmet = any(translation.unmet for translation in translations)
        text = self.translated(sentences, translations, codec)
        return Translation(text, 0.0, [], [], unmet, is_from_memory=_are_from_memory(translations))


# Units with their sentences.
Units = Sequence[tuple[Unit, Sequence[Sentence]]]


def with_matches(
    codec: TextCodec,
    unit: Unit,
    sentences: Sequence[Sentence],
    memories: Sequence[AnyMemory],
    *,
    offers: bool,
    target_lang: str | None = None,
) -> list[Sentence]:
    """Returns the sentences of a unit with their matches; with `offers`, also with similar ones.

    A line of several sentences that a memory has as a whole becomes one sentence.

    Args:
        target_lang: by default, that of the codec. If several models translate in turn, that of the last one.
    """
    config = codec.towards(unit.direction).config
    languages = config.source_lang, target_lang or config.target_lang

    def matched(sentence: Sentence, *, offers: bool) -> Sentence:
        _, text = codec.config.split_tags(sentence.text)
        return sentence._replace(matches=matches_of(text, memories, languages, offers=offers))

    of_lines = {number: list(group) for number, group in groupby(sentences, attrgetter("line"))}
    whole_lines = {number: list(group) for number, group in groupby(unit.sentences(), attrgetter("line"))}
    with_all: list[Sentence] = []
    for number, of_line in of_lines.items():
        if len(of_line) > 1 == len(whole_lines[number]):
            whole = matched(whole_lines[number][0], offers=False)
            if unit.known(whole):
                with_all.append(whole)
                continue
        with_all += [matched(sentence, offers=offers) for sentence in of_line]
    return with_all


def _are_from_memory(translations: Sequence[Translation]) -> bool:
    return bool(translations) and all(translation.is_from_memory for translation in translations)


def _within(spans: Iterable[Span], start: int, stop: int) -> tuple[Span, ...]:
    """Returns the spans in a part of a text, as places in this part."""
    return tuple((begin - start, end - start) for begin, end in spans if start <= begin and end <= stop)


def _joined_line(line: str, of_line: Sequence[tuple[str, Translation]], codec: TextCodec) -> Translation:
    """Returns the translation of a line from those of its sentences."""
    is_aligned = any(translation.alignment for _, translation in of_line)
    starts = [match.start() for match in RAW_WORD.finditer(line)] if is_aligned else []
    translations, spans, offset = [], list[Span](), 0
    for sentence, translation in of_line:
        tags, text = codec.config.split_tags(sentence)  # only the line has them, and only at its beginning
        offset = max(offset, line.find(text, offset))
        first = bisect_right(starts, offset) - 1 - len(tags)  # the word that the sentence begins with, or within
        links = [(i if i < len(tags) else first + i, j) for i, j in translation.alignment or ()]
        translations.append(translation if translation.alignment is None else translation._replace(alignment=links))
        spans.append((offset, offset + len(text)))
        offset += len(text)
    return _joined(codec, translations, gaps_between(line, spans, spaces=codec.has_spaces("target")))


def _joined(codec: TextCodec, translations: Sequence[Translation], gaps: Sequence[str] = ()) -> Translation:
    """Returns translations of consecutive text as one, whose alignment counts all its words.

    Args:
        gaps: what stands between them; by default a space, or nothing in languages without spaces.
    """
    gaps = gaps or [codec.join_target(["", ""])] * (len(translations) - 1)
    alignment: list[AlignedWords] = []
    words = 0
    for translation, gap in zip(translations, [*gaps, " "], strict=False):
        alignment += [(source, words + target) for source, target in translation.alignment or ()]
        # A no-break space joins words.
        words += codec.words_before(translation.text) - bool(RAW_WORD.fullmatch(gap))
    return Translation(
        "".join(chain.from_iterable(zip((t.text for t in translations), [*gaps, ""], strict=False))),
        sum(translation.score for translation in translations),
        [piece for translation in translations for piece in translation.pieces],
        [log_prob for translation in translations for log_prob in translation.log_probs],
        any(translation.unmet for translation in translations),
        None if all(translation.alignment is None for translation in translations) else alignment,
        _are_from_memory(translations),
    )


def _in_proportion(source: str, target: str) -> list[AlignedWords]:
    """Returns links between words at the same share of both texts, which put target words into elements around all."""
    count, words = (len(RAW_WORD.findall(text)) for text in (source, target))
    return [(word * count // words, word) for word in range(words)]


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
        direction: see `Unit`.
    """

    key: Key
    place: str
    ids: np.ndarray
    required: Required
    given: Given
    kept: Sequence[Span] = ()
    words: Sequence[int] = ()
    direction: Direction | None = None

    @property
    def width(self) -> int:
        """Its positions, EOS included, in a padded batch."""
        return max(LEAST_WIDTH, math.ceil((len(self.ids) + 1) / WIDTH_MULTIPLE) * WIDTH_MULTIPLE)


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
            edges = [0, *chain.from_iterable(kept), len(text)]
            others = "".join(text[start:stop] for start, stop in zip(edges[::2], edges[1::2], strict=True))
            if unit.prefix or unit.constraints or any(map(str.isalpha, others)):
                keyed.append((Key(n, i), unit, sentence, kept))
    longest = search.max_source_length
    encoded: list[EncodedSentence] = []
    all_ids = codec.encode_source([sentence.text for _, _, sentence, _ in keyed])
    for (key, unit, sentence, kept), ids in zip(keyed, all_ids, strict=True):
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
            encoded.append(EncodedSentence(of_key, place, part, required, given, kept, of_part, direction))
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
        terms = glossary.found_in(text, spaces=codec.has_spaces("source"))
        if terms and is_long:
            advice = "; raise --max-source-length" if unit.place else ""  # a server has no such flag
            console.warn(f"the glossary is not used for {unit.place or 'a line'}, which is too long{advice}")
        else:
            constraints += terms
    lowered = codec.config.lowers(sentence.text)
    if not unit.prefix and not constraints:
        return Required(), Given(in_capitals=lowered)

    def encoded(phrases: Sequence[str]) -> list[tuple[str, tuple[int, ...]]]:
        ids = codec.encode_target([phrase.lower() if lowered else phrase for phrase in phrases])
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

    def joined(key: tuple[int, ...], unit: Unit, sentence: Sentence) -> Iterator[Translation]:
        tags, source = codec.config.split_tags(sentence.text)
        if match := unit.known(sentence):
            spaces = codec.towards(unit.direction).has_spaces("source")
            terms = glossary.found_in(source, spaces=spaces) if glossary else []
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
            translation = _joined(of_direction, of_parts)
            text, alignment = translation.text, translation.alignment
            if kept := parts[key][0][0].kept:
                links = {j: i - len(tags) for i, j in alignment or () if i >= len(tags)}
                spaces = of_direction.has_spaces("target")
                text, links = with_protected(source, kept, text, links, spaces=spaces, given=given)
                alignment = [(i + len(tags), j) for j, i in links.items()]
            yield translation._replace(text=text, alignment=tuple(sorted(alignment or ())) if aligned else None)

    return [
        [list(joined((n, i), unit, sentence)) for i, sentence in enumerate(sentences)]
        for n, (unit, sentences) in enumerate(units, first)
    ]
