"""Puts given phrases into decoded text exactly as they were given.

Decoding may write a phrase differently: detokenisation separates words or joins them, punctuation is normalised, and
lowercasing is not undone.
"""

import re
from collections.abc import Iterator
from itertools import chain, islice
from typing import NamedTuple


class Phrase(NamedTuple):
    """A phrase as it was given, and as decoding its pieces alone writes it."""

    given: str
    decoded: str


class Given(NamedTuple):
    """The prefix of a line and the phrases that it contains."""

    prefix: Phrase | None = None
    phrases: tuple[Phrase, ...] = ()


def with_phrases(line: str, given: Given, *, spaces: bool) -> str:
    """Returns the line with its prefix and its phrases as they were given. A phrase that is not found is left out.

    Args:
        spaces: whether spaces separate the words of the language.
    """
    found: list[tuple[re.Match[str], Phrase]] = []

    def take(phrase: Phrase, matches: Iterator[re.Match[str]]) -> None:
        free = (match for match in matches if not any(_overlap(match, other) for other, _ in found))
        found.extend((match, phrase) for match in islice(free, 1))

    if given.prefix:
        take(given.prefix, filter(None, (re.match(spelling, line) for spelling in _spellings(given.prefix))))
    for phrase in sorted(given.phrases, key=lambda phrase: -len(phrase.given)):
        take(phrase, chain.from_iterable(re.finditer(pattern, line) for pattern in _patterns(phrase, spaces)))
    for match, phrase in sorted(found, key=lambda place: -place[0].start()):
        line = line[: match.start()] + phrase.given + line[match.end() :]
    return line


def _patterns(phrase: Phrase, spaces: bool) -> Iterator[str]:
    """Yields expressions for the phrase, those that are more likely right first: whole words, then parts of words."""
    spellings = list(_spellings(phrase))
    begins, ends = (bool(spaces and re.match(r"\w", phrase.decoded[i])) for i in (0, -1))
    for whole in (True, False):
        for spelling in spellings:
            yield (r"(?<!\w)" if begins else "") + spelling + (r"(?!\w)" if ends and whole else "")


def _spellings(phrase: Phrase) -> Iterator[str]:
    """Yields expressions for the phrase as given, as decoded, and with other spaces, which depend on its neighbours."""
    yield re.escape(phrase.given)
    yield re.escape(phrase.decoded)
    yield r"\s*".join(map(re.escape, "".join(phrase.decoded.split())))


def _overlap(one: re.Match[str], other: re.Match[str]) -> bool:
    return one.start() < other.end() and other.start() < one.end()
