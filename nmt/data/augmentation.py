"""Changes a share of the training pairs to what people type (--augment): capitals, typing errors and the like."""

import random
import re
from collections.abc import Callable

from nmt.data.mixture import hash_of

Pair = tuple[str, str]
_FINAL = ".!?…。！？।"
_SPACES = " \u00a0\u202f"
# The first letter of a word, with the quotation marks and brackets before it.
_WORD_START = re.compile(r"(?<![^ ])[\"'“”„‘’‚«»‹›(\[¿¡\u00a0\u202f]*\w")
# The letters beside a letter on a keyboard with Latin letters.
_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_NEIGHBOURS = {
    letter: [row[place] for place in (i - 1, i + 1) if 0 <= place < len(row)]
    for row in _ROWS
    for i, letter in enumerate(row)
}
_WORDS_PER_ERROR = 8
# Characters of lines that a model should copy.
_NOISE = [*map(chr, range(0x21, 0x7F)), *"§¶•→★☺🙂🚀αβγдежאבעربहि中文日本한국"]


def in_title_case(line: str) -> str:
    """Returns the line with a capital at the beginning of each word."""
    return _WORD_START.sub(lambda found: found[0].upper(), line)


def without_final_punctuation(line: str) -> str:
    """Returns the line without the punctuation at its end, the space before it, and the ¿ and ¡ that belong to it.

    A line whose last word has another full stop, such as p.m., stays as it is.
    """
    kept = line.rstrip(_FINAL + _SPACES)
    if "." in kept.rpartition(" ")[2]:
        return line
    last = 1 + max(map(kept.rfind, "?!"))
    kept = kept[:last] + kept[last:].replace("¿", "").replace("¡", "")
    return kept.strip(_SPACES) or line


def with_typing_errors(line: str, draw: random.Random) -> str:
    """Returns the line with an error in about every eighth word: letters swapped, missing, doubled or replaced."""
    letters = list(line)
    places = [i for i, letter in enumerate(letters) if letter.isalpha()]
    errors = min(len(places), 1 + line.count(" ") // _WORDS_PER_ERROR)
    for place in sorted(draw.sample(places, errors), reverse=True):
        letter, kind = letters[place], draw.randrange(4)
        if kind == 0 and place + 1 < len(letters) and letters[place + 1].isalpha():
            letters[place : place + 2] = letters[place + 1], letter
        elif kind == 1 and len(places) > 1:
            del letters[place]
        elif kind == 2:
            letters.insert(place, letter)
        else:
            near = draw.choice(_NEIGHBOURS.get(letter.lower(), [letter]))
            letters[place] = near.upper() if letter.isupper() else near
    return "".join(letters)


def _both(change: Callable[[str], str]) -> Callable[[Pair, random.Random], Pair]:
    return lambda pair, _: (change(pair[0]), change(pair[1]))


def _without_final_punctuation(pair: Pair, _: random.Random) -> Pair:
    """Returns both sides without final punctuation, or the pair as it is if one side must keep it."""
    changed = without_final_punctuation(pair[0]), without_final_punctuation(pair[1])
    if any(new == old and old.endswith(tuple(_FINAL)) for new, old in zip(changed, pair, strict=True)):
        return pair
    return changed


def _copied_noise(_: Pair, draw: random.Random) -> Pair:
    """Returns words of random characters, which a model should copy."""
    line = " ".join("".join(draw.choices(_NOISE, k=draw.randint(1, 8))) for _ in range(draw.randint(1, 12)))
    return line, line


_UPPER, _TITLE = _both(str.upper), _both(in_title_case)
# What happens to a pair, and to which share of the pairs.
_CHANGES: tuple[tuple[float, Callable[[Pair, random.Random], Pair]], ...] = (
    (0.07, _UPPER),
    (0.05, _TITLE),
    (0.05, lambda pair, draw: (with_typing_errors(pair[0], draw), pair[1])),
    (0.2, _without_final_punctuation),
    (0.0005, _copied_noise),
)


def augmented(pair: Pair, seed: int, number: int, *, capitals: bool = True) -> Pair:
    """Returns the pair, perhaps changed. The change depends only on the seed and the position of the pair.

    Args:
        capitals: whether pairs may change to capitals or Title Case.
    """
    draw = random.Random(hash_of(seed, number))
    left = draw.random()
    for share, change in _CHANGES:
        if left < share:
            return pair if change in (_UPPER, _TITLE) and not capitals else change(pair, draw)
        left -= share
    return pair
