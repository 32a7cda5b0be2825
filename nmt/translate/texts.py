"""Cuts texts, plain or marked up, into sentences, and joins the translations of the sentences."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, repeat
from typing import Literal, NamedTuple, Self

from nmt.text.codec import TextCodec
from nmt.text.languages import base_language
from nmt.text.markup import Unit, parse
from nmt.text.words import AlignedWords
from nmt.translate.requests import Hypothesis, is_in_parts


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
    def of(cls, source: str, markup: Literal["html", "xml"] | None) -> Self:
        """Returns a text, with its units if it is marked up, as `nmt.text.markup.parse` explains."""
        return cls(source, parse(source, markup) if markup else None)

    @property
    def units(self) -> list[Unit]:
        """The units of marked-up text."""
        return [part for part in self.parts or () if isinstance(part, Unit)]

    @property
    def plain(self) -> str:
        """The text without markup."""
        return self.source if self.parts is None else "\n".join(unit.source for unit in self.units)

    def translated(self, found: Iterable[tuple[Sentence, Hypothesis]], codec: TextCodec) -> str:
        """Returns the translations of the sentences as one text, with the lines or the markup of the source."""
        lines = self.source.split("\n") if self.parts is None else [unit.source for unit in self.units]
        joined = (_joined(of_line, codec, line) for line, of_line in zip(lines, _by_line(found), strict=False))
        if self.parts is None:
            ends = ["\r" * line.endswith("\r") for line in lines]  # of Windows
            return "\n".join(text + end for (text, _), end in zip(joined, ends, strict=True))
        return "".join(part.restored(*next(joined)) if isinstance(part, Unit) else part for part in self.parts)


def _by_line(found: Iterable[tuple[Sentence, Hypothesis]]) -> Iterator[list[tuple[Sentence, Hypothesis]]]:
    """Yields the sentences of each line or unit, and then empty lists for ever."""
    here = 0
    for line, of_line in groupby(found, key=lambda pair: pair[0].line):
        yield from ([] for _ in range(here, line))
        yield list(of_line)
        here = line + 1
    yield from repeat([])


def _joined(
    found: Sequence[tuple[Sentence, Hypothesis]], codec: TextCodec, line: str
) -> tuple[str, list[AlignedWords]]:
    """Returns the translation of a line or unit, and the alignment of its words."""
    links: list[AlignedWords] = []
    is_aligned = any(hypothesis.alignment for _, hypothesis in found)
    starts = [match.start() for match in re.finditer(r"\S+", line)] if is_aligned else []
    place = target_words = 0
    for sentence, hypothesis in found:
        tags, text = codec.config.split_tags(sentence.text)  # only the line has them, and only at its beginning
        place = max(place, line.find(text, place))
        first = bisect_right(starts, place) - 1 - len(tags)  # the word that the sentence begins with, or within
        alignment = hypothesis.alignment or ()
        links += [(i if i < len(tags) else first + i, target_words + j) for i, j in alignment]
        place += len(text)
        target_words += codec.words_before(hypothesis.text)
    return codec.join_target([hypothesis.text for _, hypothesis in found]), links


def sentences_of(text: Text, codec: TextCodec, longest: int, *, split_lines: bool) -> Iterator[Sentence]:
    """Yields the sentences of a text in the source language, or its lines. Blank lines have none.

    Args:
        longest: the largest number of pieces of a sentence that can have phrases; 0 if the engine cannot require any.
            What markup must keep is inserted if a translation lacks it.
    """
    if text.parts is None:
        yield from _cut(text.source, codec, split_lines)
    for number, unit in enumerate(text.units):
        for _, sentence, _ in _cut(unit.source, codec, split_lines):
            yield Sentence(number, sentence, _phrases(unit, sentence, codec, longest))


def _phrases(unit: Unit, sentence: str, codec: TextCodec, longest: int) -> tuple[str, ...]:
    """Returns what the translation of a sentence must contain: nothing if it is translated in parts."""
    found = tuple(phrase for phrase in unit.phrases if phrase in sentence) if longest else ()
    return () if found and is_in_parts(codec, sentence, longest) else found


def _cut(text: str, codec: TextCodec, split_lines: bool) -> list[Sentence]:
    """Returns the sentences of plain text, or its lines."""
    if not split_lines:
        return [Sentence(number, line) for number, line in enumerate(text.split("\n")) if line.strip()]
    import sentencex

    language = base_language(codec.config.source_lang)
    found = []
    for number, line in enumerate(text.split("\n")):
        tags, rest = codec.config.split_tags(line)
        parts = [part.strip() for part in sentencex.segment(language, rest)]
        found += [Sentence(number, " ".join([*tags, part])) for part in parts if part]
    return found
