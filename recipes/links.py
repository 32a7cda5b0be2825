"""Marks words that translate each other, while the grammar builds a sentence pair from strings.

A mark follows its word in the text. It has the number of a unit of meaning, such as a noun or the verb of a clause, and
perhaps a letter for a part of the unit. Words of the two languages with the same mark are a sure link. Words with marks
of one unit are a possible link (Och and Ney 2003, Computational Linguistics 29(1)); a negation, part n, is not.
"""

import re
from itertools import count

_units = count()
_MARK = re.compile("\x02([0-9]+)([a-z]?)\x03")
# A word without a mark. A mark begins with \x02, and commas are not marked.
_UNMARKED = re.compile("[^\\s\x02\x03,.?]+(?![^\\s,.?])")


def new_unit() -> str:
    """Returns the number of a unit that no word has yet."""
    return str(next(_units))


def mark(text: str, label: str) -> str:
    """Returns the text with a mark behind every word that has none."""
    return _UNMARKED.sub(lambda word: f"{word[0]}\x02{label}\x03", text)


def also(text: str, label: str) -> str:
    """Returns the text with one more mark on its first word."""
    return re.sub("^[^\\s,]+", lambda word: f"{word[0]}\x02{label}\x03", text)


def plain(text: str) -> str:
    """Returns the text without marks."""
    return _MARK.sub("", text)


def word_by_word(english: str, *german: str) -> tuple[str, ...]:
    """Returns texts in which the last words are a sure link, the words before them another one, and so on.

    Texts with marks are returned unchanged.
    """
    if any(map(_MARK.search, (english, *german))):
        return english, *german
    units = [new_unit() for _ in range(max(len(text.split()) for text in (english, *german)))]
    return tuple(
        " ".join(reversed([mark(word, unit) for word, unit in zip(reversed(text.split()), units, strict=False)]))
        for text in (english, *german)
    )


def renewed(english: str, *german: str) -> tuple[str, ...]:
    """Returns texts with new units in the place of the old ones, for words that occur a second time."""
    texts = (english, *german)
    units = {unit: new_unit() for unit, _ in _MARK.findall(" ".join(texts))}
    return tuple(_MARK.sub(lambda found: f"\x02{units[found[1]]}{found[2]}\x03", text) for text in texts)


def links(english: str, german: str, *, sure: bool) -> str:
    """Returns the sure links of two marked texts, or the possible ones, which include these, as `0-0 1-2`."""
    source, target = (
        [{(unit, part if sure or part == "n" else "") for unit, part in _MARK.findall(word)} for word in text.split()]
        for text in (english, german)
    )
    return " ".join(f"{i}-{j}" for i, a in enumerate(source) for j, b in enumerate(target) if a & b)
