"""Splits a text into the sentences that are translated one by one, and puts their translations together."""

from collections.abc import Sequence
from typing import NamedTuple

from nmt.text.codec import TextCodec
from nmt.text.moses import base_language


class Sentence(NamedTuple):
    """A sentence of a text.

    Attributes:
        line: the number of its line in the text, from 0.
    """

    line: int
    text: str


def split(text: str, codec: TextCodec) -> list[Sentence]:
    """Returns the sentences of a text in the source language. Blank lines have none.

    Tags at the beginning of a line apply to all of its sentences.
    """
    import sentencex

    language = base_language(codec.config.source_lang)
    found = []
    for number, line in enumerate(text.split("\n")):
        tags, rest = _tags_and_text(line, codec.config.tags)
        parts = [part.strip() for part in sentencex.segment(language, rest)]
        found += [Sentence(number, tags + part) for part in parts if part]
    return found


def lines(text: str) -> list[Sentence]:
    """Returns the lines of a text as its sentences. Blank lines have none."""
    return [Sentence(number, line) for number, line in enumerate(text.split("\n")) if line.strip()]


def joined(text: str, sentences: Sequence[Sentence], translations: Sequence[str], codec: TextCodec) -> str:
    """Returns the translation of a text, which has as many lines as the text.

    Args:
        translations: of each sentence.
    """
    of_lines: list[list[str]] = [[] for _ in range(text.count("\n") + 1)]
    for sentence, translation in zip(sentences, translations, strict=True):
        of_lines[sentence.line].append(translation)
    return "\n".join(map(codec.join_target, of_lines))


def _tags_and_text(line: str, tags: Sequence[str]) -> tuple[str, str]:
    """Returns the tags that a line begins with, each followed by a space, and the rest of the line."""
    found = ""
    while (words := line.split(maxsplit=1)) and words[0] in tags:
        found += f"{words[0]} "
        line = words[1] if len(words) > 1 else ""
    return found, line
