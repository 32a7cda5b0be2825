"""Sentences with several encodings, of which each epoch uses one (BPE-dropout and unigram sampling)."""

from typing import Any

import numpy as np

from nmt.data.tokens import Lengths, TokenArray

# Constants of SplitMix64 (Steele et al. 2014), a hash of 64-bit numbers.
_GAMMA, _FIRST, _SECOND = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


class EpochArray:
    """One side of a split in one epoch.

    Sentence i has its encodings in rows i·K to i·K + K - 1 of the array. In K steps, it has each of them once.
    Sentences begin with different ones.

    Args:
        encodings: K.
        seed: the seed of the choice.
        step: by how many encodings the epoch is further than epoch 0.
    """

    def __init__(self, array: TokenArray, encodings: int, seed: int, step: int) -> None:
        self.array, self.encodings, self.seed, self.step = array, encodings, seed, step

    def __len__(self) -> int:
        return len(self.array) // self.encodings

    @property
    def lengths(self) -> "EpochLengths":
        """The number of tokens of every sentence, EOS included."""
        return EpochLengths(self)

    @property
    def longest(self) -> int:
        """The number of tokens of the longest encoding of any sentence, EOS included."""
        return self.array.longest

    def rows(self, sentences: np.ndarray) -> np.ndarray:
        """Returns the rows of the sentences' encodings: int64 [numbers]."""
        numbers = np.asarray(sentences, dtype=np.int64)
        begin = _hashed(numbers.astype(np.uint64) + _hashed(np.uint64(self.seed))) % np.uint64(self.encodings)
        return numbers * self.encodings + (begin.astype(np.int64) + self.step) % self.encodings

    def __getitem__(self, index: int) -> np.ndarray:
        """Returns the ids of a sentence, without EOS, as a read-only view of the file."""
        if not 0 <= index < len(self):
            raise IndexError(f"sentence {index} of {len(self)}")
        return self.array[int(self.rows(np.array([index]))[0])]


class EpochLengths:
    """The number of tokens of every sentence, EOS included, computed on demand."""

    def __init__(self, side: EpochArray) -> None:
        self._side = side
        self._lengths: Lengths = side.array.lengths

    def __len__(self) -> int:
        return len(self._side)

    def __getitem__(self, sentences: np.ndarray, /) -> np.ndarray:
        """Returns the lengths of the sentences with these numbers: int64 [numbers]."""
        return self._lengths[self._side.rows(sentences)]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Returns the lengths of all sentences: int32 [sentences], unless numpy asks for another `dtype`."""
        return self[np.arange(len(self))].astype(dtype or np.int32)

    @property
    def total(self) -> int:
        """The sum of all lengths."""
        return int(np.asarray(self).sum(dtype=np.int64))


def _hashed(numbers: Any) -> Any:
    with np.errstate(over="ignore"):
        mixed = numbers + _GAMMA
        mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
        mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
        return mixed ^ (mixed >> np.uint64(31))


def hash_of(*numbers: int) -> int:
    """Returns a hash of whole numbers, from 0 to 2^64 - 1."""
    found = np.uint64(0)
    for number in numbers:
        found = _hashed(found + np.uint64(number))
    return int(found)
