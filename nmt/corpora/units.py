"""What corpus files have: units, whose texts translate each other. Which of these texts are pairs."""

from collections import Counter
from collections.abc import Sequence
from typing import IO, NamedTuple

from nmt.config import CorpusConfig
from nmt.text.languages import base_language, likeliest

Directions = tuple[tuple[str, str], ...]
# Texts that translate each other, with line breaks, and their languages as the file calls them, or "" if it does not.
Unit = tuple[tuple[str, ...], Sequence[str]]
# Stands in texts for what XML does not allow. Unicode has no character of this number.
FORBIDDEN = "\ufdd0"


class CorpusFile(NamedTuple):
    """A file that is being read.

    Attributes:
        name: what messages call it.
        languages: those that are asked for.
        left_out: counts what is left out, by reason.
    """

    file: IO[bytes]
    name: str
    config: CorpusConfig
    languages: Sequence[str]
    left_out: Counter[str]


def choose(directions: Directions, codes: tuple[str, ...]) -> tuple[list[tuple[int, int, int]], int]:
    """Returns which texts of a unit with these codes are pairs.

    Returns:
        The number of each direction that the unit has, with the positions of its source and its target; and how many
        other texts are in these languages too, such as en-US beside en-GB.
    """
    chosen = [(number, *places) for number, direction in enumerate(directions) if (places := _places(direction, codes))]
    used = {place for _, *places in chosen for place in places}
    languages = {base_language(codes[place]) for place in used}
    others = [place for place, code in enumerate(codes) if base_language(code) in languages and place not in used]
    return chosen, len(others)


def _places(direction: tuple[str, str], codes: tuple[str, ...]) -> tuple[int, int] | None:
    """Returns the positions of source and target. A text without a code may be in any language."""
    fitting = [[codes.index(code) for code in likeliest(lang, codes)] for lang in direction]
    unknown = [place for place, code in enumerate(codes) if not code]
    chosen: dict[int, int] = {}
    # Of pt and pt-BR, the one that fewer texts may be in chooses first.
    for side in sorted((0, 1), key=lambda side: len(fitting[side]) or len(codes)):
        chosen[side] = next((place for place in [*fitting[side], *unknown] if place not in chosen.values()), -1)
    return None if -1 in chosen.values() else (chosen[0], chosen[1])
