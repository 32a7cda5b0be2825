"""Translations of documents without a model: each sentence in upper case, or with its words in another order."""

import random
from collections.abc import Callable, Iterable, Sequence
from html import escape
from itertools import chain, count

from nmt.documents.document import Document
from nmt.text.marked import MarkedText, Token
from nmt.text.markup_projection import projected
from nmt.text.words import RAW_WORD
from nmt.translate.units import Unit

# The translation of a unit and its alignment.
Translation = tuple[str, list[tuple[int, int]]]
Translate = Callable[[MarkedText], Translation]


def word_by_word(translate: Callable[[str], str]) -> Callable[[MarkedText], Translation]:
    """Returns a translation of all text but what the translation must contain, without another order of words."""

    def translation(unit: MarkedText) -> Translation:
        source, text, end = unit.source, "", 0
        for start, stop, _ in [*unit.protected, (len(source), len(source), "")]:
            text += translate(source[end:start]) + source[start:stop]
            end = stop
        return text, [(i, i) for i in range(min(len(RAW_WORD.findall(text)), len(RAW_WORD.findall(unit.source))))]

    return translation


upper = word_by_word(str.upper)


def backwards(unit: MarkedText) -> Translation:
    words = RAW_WORD.findall(unit.source)
    return " ".join(reversed(words)), [(len(words) - 1 - i, i) for i in range(len(words))]


def shuffled(seed: int) -> Callable[[MarkedText], Translation]:
    """Returns a translation that moves, drops and repeats words, and aligns only some of them."""
    chance = random.Random(seed)

    def translation(unit: MarkedText) -> Translation:
        words = RAW_WORD.findall(unit.source)
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
    return document.write([translated_tokens(unit, translation, plain) for unit in document.passages])


def translated_tokens(
    unit: Unit, translation: Callable[[MarkedText], Translation], plain: Callable[[str], str] = str.upper
) -> list[Token]:
    """Returns the tokens of the translation of a unit."""
    parts = [Token("text", plain(unit.source))] if unit.content is None else unit.content
    tokens = ([part] if isinstance(part, Token) else projected(part, *translation(part)) for part in parts)
    return list(chain.from_iterable(tokens))


def in_text(text: str) -> list[Token]:
    """Returns the tokens of plain text."""
    return [Token("text", text)]


def repeated(unit: Unit) -> list[Token]:
    """Returns a translation in which the element of a passage is repeated: a word in it, one outside, one in it."""
    start, end = (token for token in unit.tokens if token.kind in ("start", "end"))
    return [start, *in_text("eins"), end, *in_text(" drei "), start, *in_text("zwei"), end]


def copied(document: Document) -> bytes:
    """Returns the file of a document in which each passage is its own translation."""
    return translated(document, word_by_word(str), str)


def texts(document: Document) -> list[str]:
    """Returns the passages, in which elements and what stays have numbers."""
    return [unit.source or numbered(unit.tokens) for unit in document.passages]


def numbered(tokens: Iterable[Token]) -> str:
    """Returns tokens as HTML, in which elements are `g` and what stays is `x`, with their numbers."""
    text, numbers, unclosed = "", count(), list[int]()
    for token in tokens:
        match token.kind:
            case "text":
                text += escape(token.text, quote=False)
            case "start":
                unclosed.append(next(numbers))
                text += f"<g{unclosed[-1]}>"
            case "end":
                text += f"</g{unclosed.pop()}>"
            case "leaf":
                name, words = f"x{next(numbers)}", escape(token.text, quote=False)
                text += f'<{name} translate="no">{words}</{name}>' if words else f"<{name}/>"
    return text


def damaged(data: bytes, damages: Sequence[tuple[int, bytes]]) -> bytes:
    """Returns data in which bytes at these places, counted as shares of 1,000, are replaced."""
    for share, new in damages:
        place = share * len(data) // 1000
        data = data[:place] + new + data[place + len(new) :]
    return data
