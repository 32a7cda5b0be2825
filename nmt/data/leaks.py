"""Which lines of validation and test sets occur in training text, as they are or nearly.

Lines are compared by their letters and digits, whatever their case and accents. Two lines are nearly the same if they
share most of their shingles, which are runs of a few letters (Broder 1997, "On the resemblance and containment of
documents"). Candidates are found by shingles that few held-out lines have. The index has the held-out lines alone,
so the memory does not grow with the training text.

Shapes: L lines, K letters of all lines, S shingles, P pairs of a line and a held-out line.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from nmt.data.measures import letter_keys

_WIDTH = 8  # letters and digits of a shingle in the index
# Shingles that more held-out lines have are not in the index.
_MOST_LINES = 8
# Held-out lines with fewer shingles in the index are short. They are only tested for equality.
_LEAST_SHINGLES = 4
# A line is compared with a held-out one if it has this share of its shingles in the index.
_CANDIDATE_SHARE = 0.4
# Lines are nearly the same if both have this share of the shingles of either. These shingles are shorter, so that a
# changed word changes fewer of them.
_NEAR, _NEAR_WIDTH = 0.65, 4
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
# A table by the highest 22 bits of a hash rules out most shingles without a search.
_SHIFT = np.uint64(42)


class Leaks(NamedTuple):
    """Pairs of a line and the held-out line that it equals or resembles.

    Attributes:
        line_P, pair_P: the index of the line, and that of the held-out pair; int64.
        is_same_P, is_short_P: whether they are equal, and whether they are short; bool.
    """

    line_P: np.ndarray
    pair_P: np.ndarray
    is_same_P: np.ndarray
    is_short_P: np.ndarray


class _Letters:
    """Letters and digits of lines as keys. Those of line i are `keys_K[edges[i] : edges[i + 1]]`."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.keys_K, self._line_K, self.hash_L = letter_keys(lines)
        self.edges = np.searchsorted(self._line_K, np.arange(len(lines) + 1))

    def shingles(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the hashes of about half of the shingles in order, uint64 [S], and the line of each, int64 [S]."""
        count = max(0, len(self.keys_K) - _WIDTH + 1)
        hash_S = np.zeros(count, np.uint64)
        for i in range(_WIDTH):
            hash_S = hash_S * _FACTOR + self.keys_K[i : i + count]
        is_within_S = self._line_K[:count] == self._line_K[len(self.keys_K) - count :]
        chosen_S = is_within_S & (hash_S % np.uint64(2) == 0)  # half of them suffice
        return hash_S[chosen_S], self._line_K[:count][chosen_S]

    def short_shingles(self, line: int) -> set[tuple[int, ...]]:
        """Returns the shingles by which a line is compared with another."""
        keys = self.keys_K[self.edges[line] : self.edges[line + 1]].tolist()
        return set(zip(*(keys[i:] for i in range(_NEAR_WIDTH)), strict=False))


class HeldOut:
    """The lines of validation and test sets.

    Args:
        lines: each with the index of its pair, which both sides share.
    """

    def __init__(self, lines: Iterable[tuple[int, str]]) -> None:
        pairs, texts = zip(*lines, strict=True) if (lines := list(lines)) else ((), ())
        self._letters = _Letters(texts)
        self._texts: dict[int, int] = {}  # by the hash of a line, the index of the first line with these letters
        self._pairs: dict[int, list[int]] = {}  # by this index, the pairs of all lines with these letters
        firsts = [self._texts.setdefault(hash_, i) for i, hash_ in enumerate(self._letters.hash_L.tolist())]
        for first, pair in zip(firsts, pairs, strict=True):
            self._pairs.setdefault(first, []).append(pair)
        self._texts.pop(0, None)  # lines without letters
        hash_S, line_S = self._letters.shingles()
        text_S = np.array(firsts, np.int64)[line_S]
        order = np.lexsort((text_S, hash_S))
        hash_S, text_S = hash_S[order], text_S[order]
        is_new_S = np.ones(len(hash_S), bool)
        is_new_S[1:] = (hash_S[1:] != hash_S[:-1]) | (text_S[1:] != text_S[:-1])
        hashes, starts, counts = np.unique(hash_S[is_new_S], return_index=True, return_counts=True)
        is_rare = counts <= _MOST_LINES
        self._text_S = text_S[is_new_S]
        self._hashes, self._starts, self._counts = hashes[is_rare], starts[is_rare], counts[is_rare]
        self._sizes = np.bincount(self._text_S[np.repeat(is_rare, counts)], minlength=len(firsts))

    @cached_property
    def _has_prefix(self) -> np.ndarray:
        """Whether the index has a hash with these highest bits, by the bits."""
        has_prefix = np.zeros(1 << (64 - int(_SHIFT)), bool)
        has_prefix[self._hashes >> _SHIFT] = True
        return has_prefix

    def leaks(self, lines: Sequence[str]) -> Leaks:
        """Returns the lines that equal or resemble held-out lines; none may contain a line break."""
        letters = _Letters(lines)
        equal = {i: self._texts[hash_] for i, hash_ in enumerate(letters.hash_L.tolist()) if hash_ in self._texts}
        leaks = [(i, text, True) for i, text in equal.items()]
        for i, text in self._candidates(letters):
            if i not in equal:
                first, second = letters.short_shingles(i), self._letters.short_shingles(text)
                if len(first & second) >= _NEAR * len(first | second):
                    leaks.append((i, text, False))
        columns = [
            (i, pair, is_same, self._sizes[text] < _LEAST_SHINGLES)
            for i, text, is_same in leaks
            for pair in self._pairs[text]
        ]
        line_P, pair_P, is_same_P, is_short_P = np.array(columns, np.int64).reshape(-1, 4).T
        return Leaks(line_P, pair_P, is_same_P.astype(bool), is_short_P.astype(bool))

    def leaks_of_pairs(self, source: Sequence[str], target: Sequence[str]) -> Leaks:
        """Returns the training pairs, by the index of their lines, of which a side equals or resembles a held-out one.

        A short line, which may be there by chance, counts only if the other side of the pair is there, too.
        """
        sides = list(map(self.leaks, (source, target)))
        both = np.intersect1d(*(leaks.pair_P * len(source) + leaks.line_P for leaks in sides))
        leaks = Leaks(*map(np.concatenate, zip(*sides, strict=True)))
        counts_P = ~leaks.is_short_P | np.isin(leaks.pair_P * len(source) + leaks.line_P, both)
        return Leaks(*(column_P[counts_P] for column_P in leaks))

    def leaked_pairs(self, source: Sequence[str], target: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the indices of held-out pairs of which training pairs have a side: as it is, and nearly."""
        _, pair_P, is_same_P, _ = self.leaks_of_pairs(source, target)
        return np.unique(pair_P[is_same_P]), np.unique(pair_P[~is_same_P])

    def _candidates(self, letters: _Letters) -> list[tuple[int, int]]:
        """Returns lines, and the held-out lines with which they share many shingles of the index."""
        hash_S, line_S = letters.shingles()
        may_be_S = self._has_prefix[hash_S >> _SHIFT]
        hash_S, line_S = hash_S[may_be_S], line_S[may_be_S]
        entry_S = np.searchsorted(self._hashes, hash_S)
        is_there_S = np.append(self._hashes, np.uint64(0))[entry_S] == hash_S
        size = max(1, len(self._hashes))
        line, entry = np.divmod(np.unique(line_S[is_there_S] * size + entry_S[is_there_S]), size)
        # Each line with each of the texts that have one of its shingles.
        counts = self._counts[entry]
        first = np.repeat(self._starts[entry] - np.cumsum(counts) + counts, counts)
        text = self._text_S[first + np.arange(counts.sum())]
        size = max(1, len(self._sizes))
        pairs, shared = np.unique(np.repeat(line, counts) * size + text, return_counts=True)
        line, text = np.divmod(pairs, size)
        may_be_P = (shared >= _CANDIDATE_SHARE * self._sizes[text]) & (self._sizes[text] >= _LEAST_SHINGLES)
        return list(zip(line[may_be_P].tolist(), text[may_be_P].tolist(), strict=True))
