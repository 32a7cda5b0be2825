"""Changes a share of the training pairs to what people type (--augment): capitals, typing errors and the like."""

import random
import re
from collections.abc import Sequence

from nmt.data.arrays import hash_of
from nmt.text.casing import capitalized, has_case, upper
from nmt.text.sentences import SENTENCE_ENDS

Lines = tuple[str, str]
_SPACES = " \u00a0\u202f"
# A word, behind the quotation marks and brackets before it.
_WORD = re.compile(r"(?<![^ ])([\"'“”„‘’‚«»‹›(\[¿¡\u00a0\u202f]*)(\w[^ ]*)")
# The letters beside a letter on a keyboard with Latin letters.
_NEIGHBOURS = {
    letter: [row[neighbour] for neighbour in (i - 1, i + 1) if 0 <= neighbour < len(row)]
    for row in ("qwertyuiop", "asdfghjkl", "zxcvbnm")
    for i, letter in enumerate(row)
}
# Characters of lines that a model should copy.
_NOISE = [*map(chr, range(0x21, 0x7F)), *"§¶•→★☺🙂🚀αβγдежאבעربहि中文日本한국"]


def in_title_case(line: str, lang: str = "") -> str:
    """Returns the line with a capital at the beginning of each word."""
    return _WORD.sub(lambda word: word[1] + capitalized(word[2], lang), line)


def without_final_punctuation(line: str) -> str:
    """Returns a line without final punctuation, and without its ¿ and ¡; one that ends as in p.m. stays as it is."""
    kept = line.rstrip(SENTENCE_ENDS + _SPACES)
    if "." in kept.rpartition(" ")[2]:
        return line
    last = 1 + max(map(kept.rfind, "?!"))
    kept = kept[:last] + kept[last:].replace("¿", "").replace("¡", "")
    return kept.strip(_SPACES) or line


def with_typing_errors(line: str, draw: random.Random) -> str:
    """Returns the line with an error in about every eighth word: letters swapped, missing, doubled or replaced."""
    letters = list(line)
    positions = [i for i, letter in enumerate(letters) if letter.isalpha()]
    for i in sorted(draw.sample(positions, min(len(positions), 1 + line.count(" ") // 8)), reverse=True):
        letter, kind = letters[i], draw.randrange(4)
        if kind == 0 and i + 1 < len(letters) and letters[i + 1].isalpha():
            letters[i : i + 2] = letters[i + 1], letter
        elif kind == 1 and len(positions) > 1:
            del letters[i]
        elif kind == 2:
            letters.insert(i, letter)
        else:
            near = draw.choice(_NEIGHBOURS.get(letter.lower(), [letter]))
            letters[i] = near.upper() if letter.isupper() else near
    return "".join(letters)


# The changes, and the share of the pairs that each of them changes.
_SHARES = {"capitals": 0.07, "title case": 0.05, "typing errors": 0.05, "no final punctuation": 0.2, "noise": 0.0005}


def augmented(pair: Lines, seed: int, position: int, langs: Lines = ("", "")) -> Lines:
    """Returns the pair, perhaps changed. The change depends only on the seed and the position of the pair."""
    draw = random.Random(hash_of(seed, position))
    left = draw.random()
    for change, share in _SHARES.items():
        if left < share:
            return _changed(pair, change, draw, langs)
        left -= share
    return pair


def _changed(pair: Lines, change: str, draw: random.Random, langs: Lines) -> Lines:
    source, target = pair
    if change in ("capitals", "title case"):
        write = upper if change == "capitals" else in_title_case
        # Capitals in the translation of a script without them would teach the model to write them at random.
        return (write(source, langs[0]), write(target, langs[1])) if has_case(source) else pair
    if change == "typing errors":
        return with_typing_errors(source, draw), target
    if change == "noise":  # words of random characters, which a model should copy
        line = " ".join("".join(draw.choices(_NOISE, k=draw.randint(1, 8))) for _ in range(draw.randint(1, 12)))
        return line, line
    changed = without_final_punctuation(source), without_final_punctuation(target)
    # Otherwise, the model would learn to drop punctuation that the source has, or to invent it.
    return changed if all(new != old for new, old in zip(changed, pair, strict=True)) else pair


# A noised copy lacks this share of the pieces, and has the others up to so many places from their own.
_LOST, _MOVED = 0.15, 3


def noised(ids: Sequence[int], seed: int) -> list[int]:
    """Returns the ids of a line without some of them and in another order (Lample et al. 2018, arXiv:1711.00043)."""
    draw = random.Random(seed)
    kept = [(place + draw.uniform(0, _MOVED), id_) for place, id_ in enumerate(ids) if draw.random() >= _LOST]
    return [id_ for _, id_ in sorted(kept)] or list(ids)
