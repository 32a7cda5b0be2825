"""Units, which users give to be translated as one thing, such as a line or a passage; their sentences and translations.

A unit has sentences, whose translations become its own. `encode` in `encoding.py` turns sentences into ids.
"""

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, chain, groupby
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from nmt.memories.matching import Match
from nmt.memories.memory import AnyMemory, matches_of
from nmt.text.codec import Direction, TextCodec
from nmt.text.icu import parse_icu
from nmt.text.markup_reading import NO_RULES, ElementRules, parse
from nmt.text.markup_writing import MarkedText
from nmt.text.protected import Span
from nmt.text.sentences import gaps_between, sentence_spans
from nmt.text.words import RAW_WORD, AlignedWords, is_blank, pharaoh


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
        for line_number, (text, of_markup) in enumerate(zip(self.lines, marked, strict=True)):
            of_text, edges = (of_markup.kept, of_markup.edges) if of_markup else ((), [])
            counts = array("Q", accumulate((not each.isspace() for each in text), initial=0)) if edges else ()
            for line in re.finditer("[^\n]+", text):  # a marked text can have several lines
                tags, plain = codec.config.split_tags(line[0]) if codec else ([], line[0])
                of_line = _within(of_text, line.end() - len(plain), line.end())
                spans = [] if is_blank(line[0]) else [(0, len(plain))]
                if codec:
                    spans = sentence_spans(plain, codec.config.source_lang, codec.protected.spans(plain, of_line))
                for span in spans:  # each sentence has the tags of the line
                    sentence = " ".join([*tags, plain[slice(*span)]])
                    start, stop = (counts[line.end() - len(plain) + end] if edges else 0 for end in span)
                    has_elements = bisect_right(edges, start) < bisect_left(edges, stop)
                    sentences.append(Sentence(line_number, sentence, _within(of_line, *span), has_elements))
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
    return joined(codec, translations, gaps_between(line, spans, spaces=codec.has_spaces("target")))


def joined(codec: TextCodec, translations: Sequence[Translation], gaps: Sequence[str] = ()) -> Translation:
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
