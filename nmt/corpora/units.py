"""What one unit of a corpus file is, and which of its texts are a pair in a direction."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from nmt.text.languages import base_language, likeliest

Directions = tuple[tuple[str, str], ...]


class Unit(NamedTuple):
    """Texts that translate each other.

    Attributes:
        codes: the language of each text as the file calls it, or "" if the file does not say it.
        texts: they may have line breaks.
    """

    codes: tuple[str, ...]
    texts: Sequence[str]


class Choice(NamedTuple):
    """Which texts of a unit are pairs.

    Attributes:
        pairs: the number of each direction that the unit has, and the positions of its source and its target.
        others: how many texts are in these languages too, but in no pair, such as en-US beside en-GB.
    """

    pairs: tuple[tuple[int, int, int], ...]
    others: int


@lru_cache(10_000)
def choose(directions: Directions, codes: tuple[str, ...]) -> Choice:
    """Returns which texts of a unit with these codes are pairs in some directions."""
    chosen = [(number, *places) for number, direction in enumerate(directions) if (places := _places(direction, codes))]
    used = {place for _, *places in chosen for place in places}
    languages = {base_language(codes[place]) for place in used}
    others = [place for place, code in enumerate(codes) if base_language(code) in languages and place not in used]
    return Choice(tuple(chosen), len(others))  # type: ignore[arg-type]


def _places(direction: tuple[str, str], codes: tuple[str, ...]) -> tuple[int, ...]:
    """Returns the positions of source and target, or nothing. A text without a code is in any language."""
    fitting = [[codes.index(code) for code in likeliest(lang, codes)] for lang in direction]
    unknown = [place for place, code in enumerate(codes) if not code]
    chosen: dict[int, int] = {}
    # Of pt and pt-BR, the one that fewer texts may be chooses first.
    for side in sorted((0, 1), key=lambda side: len(fitting[side]) or len(codes)):
        place = next((place for place in [*fitting[side], *unknown] if place not in chosen.values()), None)
        if place is None:
            return ()
        chosen[side] = place
    return chosen[0], chosen[1]
