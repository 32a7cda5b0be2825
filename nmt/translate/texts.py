"""Cuts texts, plain or marked up, into sentences, and joins the translations of the sentences."""

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice, repeat
from typing import Literal, NamedTuple, Self

from nmt.text.codec import TextCodec
from nmt.text.languages import base_language
from nmt.text.markup import Unit, parse
from nmt.text.words import AlignedWords
from nmt.translate.requests import Hypothesis


class Sentence(NamedTuple):
    """A sentence of a text.

    Attributes:
        line: the number of its line in the text, from 0, or of its unit in marked-up text.
        phrases: what its translation must contain.
    """

    line: int
    text: str
    phrases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Text:
    """A text to translate.

    Attributes:
        parts: the units of marked-up text, and the markup between them; None for plain text.
    """

    source: str
    parts: Sequence[str | Unit] | None

    @classmethod
    def of(cls, source: str, markup: Literal["html", "xml"] | None, blocks: Collection[str] | None = None) -> Self:
        """Returns a text, with its units if it is marked up, as `nmt.text.markup.parse` explains."""
        return cls(source, parse(source, markup, blocks) if markup else None)

    @property
    def units(self) -> list[Unit]:
        """The units of marked-up text."""
        return [part for part in self.parts or () if isinstance(part, Unit)]

    @property
    def plain(self) -> str:
        """The text without markup."""
        return self.source if self.parts is None else "\n".join(unit.source for unit in self.units)

    def translated(self, sentences: Iterable[Sentence], found: Iterable[Hypothesis], codec: TextCodec) -> str:
        """Returns the translations of the sentences as one text, with the lines or the markup of the source."""
        by_line = groupby(zip(sentences, found, strict=True), key=lambda pair: pair[0].line)
        joined = _joined_by_line(by_line, codec, self.plain.split("\n"))
        if self.parts is None:
            return "\n".join(text for text, _ in islice(joined, self.source.count("\n") + 1))
        return "".join(part.restored(*next(joined)) if isinstance(part, Unit) else part for part in self.parts)


def _joined_by_line(
    by_line: Iterable[tuple[int, Iterable[tuple[Sentence, Hypothesis]]]], codec: TextCodec, lines: Sequence[str]
) -> Iterator[tuple[str, list[AlignedWords]]]:
    """Yields the translation of each line or unit and the alignment of its words, and then empty ones for ever."""
    here = 0
    for line, found in by_line:
        yield from [("", list[AlignedWords]())] * (line - here)
        yield _joined(list(found), codec, lines[line])
        here = line + 1
    yield from repeat(("", []))


def _joined(
    found: Sequence[tuple[Sentence, Hypothesis]], codec: TextCodec, line: str
) -> tuple[str, list[AlignedWords]]:
    """Returns the translation of a line or unit, and the alignment of its words."""
    links: list[AlignedWords] = []
    is_aligned = any(hypothesis.alignment for _, hypothesis in found)
    starts = [match.start() for match in re.finditer(r"\S+", line)] if is_aligned else []
    place = target_words = 0
    for sentence, hypothesis in found:
        place = max(place, line.find(sentence.text, place))
        first = bisect_right(starts, place) - 1  # the word that the sentence begins with, or within
        links += [(first + i, target_words + j) for i, j in hypothesis.alignment or ()]
        place += len(sentence.text)
        target_words += len(hypothesis.text.split())
    return codec.join_target([hypothesis.text for _, hypothesis in found]), links


def sentences_of(text: Text, codec: TextCodec, *, split_lines: bool) -> list[Sentence]:
    """Returns the sentences of a text in the source language, or its lines. Blank lines have none."""
    if text.parts is None:
        return _cut(text.source, codec, split_lines)
    return [
        Sentence(number, text, tuple(phrase for phrase in unit.phrases if phrase in text))
        for number, unit in enumerate(text.units)
        for _, text, _ in _cut(unit.source, codec, split_lines)
    ]


def _cut(text: str, codec: TextCodec, split_lines: bool) -> list[Sentence]:
    """Returns the sentences of plain text, or its lines."""
    if not split_lines:
        return [Sentence(number, line) for number, line in enumerate(text.split("\n")) if line.strip()]
    import sentencex

    language = base_language(codec.config.source_lang)
    found = []
    for number, line in enumerate(text.split("\n")):
        tags, rest = _tags_and_text(line, codec.config.tags)
        parts = [part.strip() for part in sentencex.segment(language, rest)]
        found += [Sentence(number, tags + part) for part in parts if part]
    return found


def _tags_and_text(line: str, tags: Sequence[str]) -> tuple[str, str]:
    """Returns the tags that a line begins with, each followed by a space, and the rest of the line."""
    found = ""
    while (words := line.split(maxsplit=1)) and words[0] in tags:
        found += f"{words[0]} "
        line = words[1] if len(words) > 1 else ""
    return found, line
