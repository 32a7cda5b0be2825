"""Translations of documents without a model: each sentence in upper case, or with its words in another order."""

import random
from collections.abc import Callable, Sequence

from nmt.documents.document import Document
from nmt.text.markup_reading import MarkedText

# The translation of a unit and its alignment.
Translation = tuple[str, list[tuple[int, int]]]
Translate = Callable[[MarkedText], Translation]


def word_by_word(translate: Callable[[str], str]) -> Callable[[MarkedText], Translation]:
    """Returns a translation of all text but what the translation must contain, without another order of words."""

    def translation(unit: MarkedText) -> Translation:
        source, text, end = unit.source, "", 0
        for start, stop in [*unit.kept, (len(source), len(source))]:
            text += translate(source[end:start]) + source[start:stop]
            end = stop
        return text, [(i, i) for i in range(min(len(text.split()), len(unit.source.split())))]

    return translation


upper = word_by_word(str.upper)


def backwards(unit: MarkedText) -> Translation:
    words = unit.source.split()
    return " ".join(reversed(words)), [(len(words) - 1 - i, i) for i in range(len(words))]


def shuffled(seed: int) -> Callable[[MarkedText], Translation]:
    """Returns a translation that moves, drops and repeats words, and aligns only some of them."""
    chance = random.Random(seed)

    def translation(unit: MarkedText) -> Translation:
        words = unit.source.split()
        chosen = [chance.randrange(len(words)) for _ in range(chance.randint(0, 2 * len(words)))]
        links = [(source, i) for i, source in enumerate(chosen) if chance.random() < 0.7]
        return " ".join(words[i] for i in chosen), links

    return translation


def translated(
    document: Document,
    translation: Callable[[MarkedText], Translation] = upper,
    plain: Callable[[str], str] = str.upper,
) -> bytes:
    """Returns the file of a document with the translation of each passage; `plain` translates those without markup."""
    found = []
    for passage in document.passages:
        parts = passage.unit.content if passage.markup else [plain(passage.text)]
        found.append("".join(part if isinstance(part, str) else part.restored(*translation(part)) for part in parts))
    return document.write(found)


def copied(document: Document) -> bytes:
    """Returns the file of a document in which each passage is its own translation."""
    return document.write([passage.text for passage in document.passages])


def texts(document: Document) -> list[str]:
    return [passage.text for passage in document.passages]


def damaged(data: bytes, damages: Sequence[tuple[int, bytes]]) -> bytes:
    """Returns data in which bytes at these places, counted as shares of 1,000, are replaced."""
    for share, new in damages:
        place = share * len(data) // 1000
        data = data[:place] + new + data[place + len(new) :]
    return data
