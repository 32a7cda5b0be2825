"""Compares the numbers of two lines by value: 1.2亿 is 120 million."""

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal

# How words for powers of ten begin, and their zeros. French milles are miles.
_SPACED = (
    "hundred 2 thousand 3 tausend 3 milles 0 mille 0 mila 3 mil 0 тыс 3 тысяч 3 हज़ार 3 हजार 3 lakh 5 लाख 5 million 6 "
    "mio 6 milion 6 millon 6 millón 6 milhã 6 milhõ 6 млн 6 миллион 6 crore 7 करोड़ 7 billion 9 bn 9 milliard 9 mrd 9 "
    "miliard 9 bilhã 9 bilhõ 9 млрд 9 миллиард 9 अरब 9 trillion 12 billon 12 billón 12 trilhã 12 trilhõ 12 трлн 12"
)
_JOINED = "百 2 千 3 万 4 萬 4 亿 8 億 8 兆 12 백 2 천 3 만 4 억 8 조 12"
_ZEROS = {word: int(zeros) for word, zeros in re.findall(r"(\S+) (\d+)", f"{_SPACED} {_JOINED}")}
# Words with so many zeros in these languages only. In others, `mil` and `mille` are no numbers.
_IN_LANGUAGES = {"billion": ("da de fr nb no", 12), "mil": ("es pt", 3), "mille": ("fr it", 3)}
_NUMERAL = r"(?:\d{1,3}(?:[\s'’]\d{3})+(?!\d)|\d{1,100})(?:[.,]\d{1,100})*"
_SPACED_WORD, _JOINED_WORD = ("|".join(re.findall("[^ 0-9]+", words)) for words in (_SPACED, _JOINED))
_WORD = rf"(?:({_SPACED_WORD})[^\W\d_]{{0,2}}(?!\w)|({_JOINED_WORD}))"
_TERM = rf"{_NUMERAL}(?:[\s多余餘-]?{_WORD})+"
_PART = re.compile(f"({_NUMERAL})|{_WORD}")
# The unit is a number with such words. In 3万5000, the last numeral has no word.
_QUANTITY = re.compile(rf"(?P<unit>{_TERM}(?:\s?{_TERM})*(?:(?<={_JOINED_WORD})\s?{_NUMERAL})?)|{_NUMERAL}")


def unequal_quantities(lines: Sequence[str], languages: Sequence[str]) -> list[list[re.Match[str]]]:
    """Returns the numbers of each line that no number of the other line equals; all of them if none has a `unit`."""
    sides = [list(_QUANTITY.finditer(line.lower())) for line in lines]
    if not any(quantity["unit"] for side in sides for quantity in side):
        return sides
    values = [{each: set(_values(each[0], lang)) for each in side} for side, lang in zip(sides, languages, strict=True)]
    others = [set().union(*side.values()) for side in reversed(values)]
    return [[each for each in side if side[each].isdisjoint(other)] for side, other in zip(values, others, strict=True)]


def _values(quantity: str, lang: str) -> Iterator[Decimal]:
    """Yields the values that a quantity may have: those of 1,234 are 1234 and 1.234."""
    for has_decimals in (False, True):
        total = term = Decimal(0)
        for numeral, *words in _PART.findall(quantity):
            if numeral:
                *groups, last = re.split(r"\D", numeral)
                point = "." if groups and (len(last) != 3 or (has_decimals and len(groups) == 1)) else ""
                total, term = total + term, Decimal("".join(groups) + point + last)
                continue
            word = "".join(words)
            languages, zeros = _IN_LANGUAGES.get(word, ("", 0))
            power = 10 ** (zeros if lang in languages.split() else _ZEROS[word])
            term *= power
            if total < power:  # in 3千5百万, 万 multiplies all before it; in 1亿2000万, only 2000
                total, term = Decimal(0), term + total * power
        yield total + term
