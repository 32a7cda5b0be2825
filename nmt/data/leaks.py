"""Which lines of validation and test sets occur in training text, as they are or nearly.

Lines are compared by their letters and digits, without case. Two lines are nearly the same if they share most of
their shingles, which are runs of a few letters (Broder 1997, "On the resemblance and containment of documents").
Candidates are found by shingles that few held-out lines have. The index has the held-out lines alone, so the memory
does not grow with the training text.

Shapes: L lines, C letters of all lines, S shingles, P pairs of a line and a held-out line.
"""

import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from nmt.data.arrays import hashed

_WIDTH = 8  # letters and digits of a shingle of the index
_MOST_LINES = 8  # that have a shingle which counts
_LEAST_SHINGLES = 4  # of a line that is compared with others
_CANDIDATE = 0.4  # of the shingles of a held-out line that a candidate has
# Lines are nearly the same if both have this share of all shingles of both. These shingles are shorter, so that a
# changed word does less.
_NEAR, _NEAR_WIDTH = 0.65, 4
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(42)  # of a hash, for a table of its first bits that sorts out most shingles
# Whether a code point is a letter, a mark or a digit: 1, or 2 if it is not; 0 if it was not seen yet.
_KINDS = np.zeros(0x110000, np.uint8)


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


class _Letters:
    """The letters and digits of lines.

    Attributes:
        codes_C: their code points, those of line i from `edges[i]` to `edges[i + 1]`.
        hash_L: equal for lines with the same letters, uint64; 0 for a line without any.
    """

    def __init__(self, lines: Sequence[str]) -> None:
        text = "\n".join(lines).casefold()
        codes = np.frombuffer(text.encode("utf-32-le", errors="surrogatepass"), np.uint32)
        for code in np.unique(codes[_KINDS[codes] == 0]).tolist():
            _KINDS[code] = 1 if unicodedata.category(chr(code))[0] in "LMN" else 2
        is_letter = _KINDS[codes] == 1
        self.codes_C, self._line_C = codes[is_letter], np.cumsum(codes == ord("\n"))[is_letter]
        self.edges = np.searchsorted(self._line_C, np.arange(len(lines) + 1))
        self._mixed_C = hashed(self.codes_C.astype(np.uint64))
        factors = np.full(int(np.diff(self.edges).max(initial=0)), _FACTOR).cumprod()
        sums = np.append(
            np.uint64(0), np.cumsum(self._mixed_C * factors[np.arange(len(self.codes_C)) - self.edges[self._line_C]])
        )
        self.hash_L = np.diff(sums[self.edges])

    def text(self, line: int) -> str:
        """Returns the letters of a line."""
        return self.codes_C[self.edges[line] : self.edges[line + 1]].tobytes().decode("utf-32-le", "surrogatepass")

    def shingles(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns about half of the different shingles in order, as hashes, uint64 [S], and their lines, int64 [S]."""
        count = max(0, len(self.codes_C) - _WIDTH + 1)
        hash_S = np.zeros(count, np.uint64)
        for i in range(_WIDTH):
            hash_S = hash_S * _FACTOR + self._mixed_C[i : i + count]
        is_within_S = self._line_C[:count] == self._line_C[len(self.codes_C) - count :]
        chosen_S = is_within_S & (hash_S % np.uint64(2) == 0)  # half of them do as well
        return hash_S[chosen_S], self._line_C[:count][chosen_S]


def _resemblance(text: str, other: str) -> float:
    """Returns the share of the shingles of two texts that both have."""
    width = _NEAR_WIDTH
    first, second = ({each[i : i + width] for i in range(len(each) - width + 1)} for each in (text, other))
    return len(first & second) / len(first | second)


class HeldOut:
    """The lines of validation and test sets.

    Args:
        numbered: each line with its number. The sides of a pair have the same one.
    """

    def __init__(self, numbered: Iterable[tuple[int, str]]) -> None:
        numbers, lines = defaultdict[str, list[int]](list), list(numbered)
        letters = _Letters([line for _, line in lines])
        for i, (number, _) in enumerate(lines):
            numbers[letters.text(i)].append(number)
        numbers.pop("", None)
        # Each different text, and the numbers of its lines.
        self._texts, self._numbers = list(numbers), list(numbers.values())
        different = _Letters(self._texts)
        self._by_hash = {hash_: i for i, hash_ in enumerate(different.hash_L.tolist())}
        hash_S, text_S = different.shingles()
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
        letters = _Letters(lines)
        same = {
            i: text for i, hash_ in enumerate(letters.hash_L.tolist()) if (text := self._by_hash.get(hash_)) is not None
        }
        near = [
            (i, text)
            for i, text in self._candidates(letters)
            if i not in same and _resemblance(letters.text(i), self._texts[text]) >= _NEAR
        ]
        columns = [
            (i, number, is_same)
            for pairs, is_same in ((same.items(), True), (near, False))
            for i, text in pairs
            for number in self._numbers[text]
        ]
        line, number, is_same = np.array(columns, np.int64).reshape(-1, 3).T
        return Leaks(line, number, is_same.astype(bool))

    def _candidates(self, letters: _Letters) -> list[tuple[int, int]]:
        """Returns lines and the texts with which they share many rare shingles."""
        hash_S, line_S = letters.shingles()
        may_be_S = self._begins[hash_S >> _SHIFT]
        hash_S, line_S = hash_S[may_be_S], line_S[may_be_S]
        place_S = np.searchsorted(self._hashes, hash_S)
        is_there_S = np.append(self._hashes, np.uint64(0))[place_S] == hash_S
        size = max(1, len(self._hashes))
        line, place = np.divmod(np.unique(line_S[is_there_S] * size + place_S[is_there_S]), size)
        # Each line with each of the texts that have one of its shingles.
        counts = self._counts[place]
        first = np.repeat(self._starts[place] - np.cumsum(counts) + counts, counts)
        text = self._text_S[first + np.arange(counts.sum())]
        size = max(1, len(self._texts))
        pairs, shared = np.unique(np.repeat(line, counts) * size + text, return_counts=True)
        line, text = np.divmod(pairs, size)
        may_be_P = (shared >= _CANDIDATE * self._sizes[text]) & (self._sizes[text] >= _LEAST_SHINGLES)
        return list(zip(line[may_be_P].tolist(), text[may_be_P].tolist(), strict=True))
