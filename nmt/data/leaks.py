"""Which lines of validation and test sets occur in training text, as they are or nearly.

Lines are compared by their letters and digits, without case. Two lines are nearly the same if they share most of
their shingles, which are runs of a few letters (Broder 1997, "On the resemblance and containment of documents").
Candidates are found by shingles that few held-out lines have. The index has the held-out lines alone, so the memory
does not grow with the training text.

Shapes: L lines, S shingles, P pairs of a line and a held-out line.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import regex as re

from nmt.data.arrays import hashed

_OTHER = re.compile(r"[\W_]+")
_WIDTH = 8  # letters and digits of a shingle of the index
_MOST_LINES = 8  # that have a shingle which counts
_LEAST_SHINGLES = 8  # of a line that is compared with others
_CANDIDATE = 0.4  # of the shingles of a held-out line that a candidate has
# Lines are nearly the same if both have this share of all shingles of both. These shingles are shorter, so that a
# changed word does less.
_NEAR, _NEAR_WIDTH = 0.65, 4
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(42)  # of a hash, for a table of its first bits that sorts out most shingles


class Leaks(NamedTuple):
    """Lines and the held-out lines that they are the same as, or nearly.

    Attributes:
        line_P: the index of a line, int64.
        number_P: the number of the held-out line, int64.
        is_same_P: whether letters and digits are all the same, bool.
    """

    line_P: np.ndarray
    number_P: np.ndarray
    is_same_P: np.ndarray


def _letters(line: str) -> str:
    return str(_OTHER.sub("", line.casefold()))


def _resemblance(text: str, other: str) -> float:
    """Returns the share of the shingles of two texts that both have."""
    first, second = ({each[i : i + _NEAR_WIDTH] for i in range(len(each) - _NEAR_WIDTH + 1)} for each in (text, other))
    return len(first & second) / len(first | second)


def _shingles(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the shingles of texts in order, as hashes, uint64 [S], and the numbers of their texts, int64 [S]."""
    codes_C = np.frombuffer("".join(texts).encode("utf-32-le", errors="surrogatepass"), np.uint32)
    text_C = np.repeat(np.arange(len(texts)), list(map(len, texts)))
    count = max(0, len(codes_C) - _WIDTH + 1)
    mixed_C, hash_S = hashed(codes_C.astype(np.uint64)), np.zeros(count, np.uint64)
    for i in range(_WIDTH):
        hash_S = hash_S * _FACTOR + mixed_C[i : i + count]
    is_within_S = text_C[:count] == text_C[len(codes_C) - count :]
    return hash_S[is_within_S], text_C[:count][is_within_S]


class HeldOut:
    """The lines of validation and test sets.

    Args:
        numbered: each line with its number. The sides of a pair have the same one.
    """

    def __init__(self, numbered: Iterable[tuple[int, str]]) -> None:
        numbers = defaultdict[str, list[int]](list)
        for number, line in numbered:
            if letters := _letters(line):
                numbers[letters].append(number)
        # Each different text, and the numbers of its lines.
        self._numbers, self._texts = dict(numbers), list(numbers)
        hash_S, text_S = _shingles(self._texts)
        order = np.lexsort((text_S, hash_S))
        hash_S, text_S = hash_S[order], text_S[order]
        is_new_S = (np.diff(hash_S, prepend=0) != 0) | (np.diff(text_S, prepend=-1) != 0)
        hash_S, text_S = hash_S[is_new_S], text_S[is_new_S]
        _, group_S, counts = np.unique(hash_S, return_inverse=True, return_counts=True)
        is_rare_S = counts[group_S] <= _MOST_LINES
        self._text_S = text_S[is_rare_S]
        self._hashes, self._starts, self._counts = np.unique(hash_S[is_rare_S], return_index=True, return_counts=True)
        self._sizes = np.bincount(self._text_S, minlength=len(self._texts))

    @cached_property
    def _begins(self) -> np.ndarray:
        """Whether a hash in the index begins with these bits."""
        begins = np.zeros(1 << (64 - int(_SHIFT)), bool)
        begins[self._hashes >> _SHIFT] = True
        return begins

    def leaks(self, lines: Sequence[str]) -> Leaks:
        """Returns which of the lines are held-out ones, or nearly."""
        texts = list(map(_letters, lines))
        same = [(i, number, True) for i, text in enumerate(texts) for number in self._numbers.get(text, ())]
        hash_S, line_S = _shingles(texts)
        may_be_S = self._begins[hash_S >> _SHIFT]
        hash_S, line_S = hash_S[may_be_S], line_S[may_be_S]
        place_S = np.searchsorted(self._hashes, hash_S)
        is_there_S = np.append(self._hashes, np.uint64(0))[place_S] == hash_S
        line, place = np.divmod(
            np.unique(line_S[is_there_S] * len(self._hashes) + place_S[is_there_S]), max(1, len(self._hashes))
        )
        # Each line with each of the texts that have one of its shingles.
        counts = self._counts[place]
        first = np.repeat(self._starts[place] - np.cumsum(counts) + counts, counts)
        text = self._text_S[first + np.arange(counts.sum())]
        pairs, shared = np.unique(np.repeat(line, counts) * len(self._texts) + text, return_counts=True)
        line, text = np.divmod(pairs, max(1, len(self._texts)))
        may_be_P = (shared >= _CANDIDATE * self._sizes[text]) & (self._sizes[text] >= _LEAST_SHINGLES)
        near = [
            (i, number, False)
            for i, j in zip(line[may_be_P].tolist(), text[may_be_P].tolist(), strict=True)
            if texts[i] not in self._numbers and _resemblance(texts[i], self._texts[j]) >= _NEAR
            for number in self._numbers[self._texts[j]]
        ]
        line, number, is_same = np.array([*same, *near], np.int64).reshape(-1, 3).T
        return Leaks(line, number, is_same.astype(bool))
