"""What an epoch trains on: corpora in given proportions, and one of several encodings of each sentence."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd
from typing import Any, NamedTuple, Protocol

import numpy as np


class StoredLengths:
    """The number of tokens of every sentence, EOS included, computed on demand to save memory."""

    def __init__(self, offsets: np.ndarray) -> None:
        self._offsets = offsets

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, sentences: np.ndarray, /) -> np.ndarray:
        """Returns the lengths of the sentences with these numbers: int64 [numbers]."""
        sentences = np.asarray(sentences, dtype=np.int64)
        return self._offsets[sentences + 1] - self._offsets[sentences] + 1

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Returns the lengths of all sentences: int32 [sentences], unless numpy asks for another `dtype`."""
        lengths = np.empty(len(self), dtype=dtype or np.int32)
        np.subtract(self._offsets[1:], self._offsets[:-1], out=lengths, casting="unsafe")
        lengths += 1
        return lengths

    @property
    def total(self) -> int:
        """The sum of all lengths."""
        return int(self._offsets[-1]) + len(self)


class TokenArray:
    """The sentences of one side of a split.

    Args:
        tokens: the ids of all sentences, end to end; [tokens].
        offsets: sentence i is tokens[offsets[i] : offsets[i + 1]]; [sentences + 1].
    """

    def __init__(self, tokens: np.ndarray, offsets: np.ndarray) -> None:
        self.tokens = tokens
        self.offsets = offsets

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> StoredLengths:
        """The number of tokens of every sentence, EOS included."""
        return StoredLengths(self.offsets)

    @property
    def longest(self) -> int:
        """The number of tokens of the longest sentence, EOS included."""
        return int(np.max(self.lengths, initial=0))

    def __getitem__(self, index: int) -> np.ndarray:
        """Returns the ids of a sentence, without EOS, as a read-only view of the file."""
        if not 0 <= index < len(self):
            raise IndexError(f"sentence {index} of {len(self)}")
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]


# Lengths that are computed at once, to bound the memory.
_AT_ONCE = 1 << 20
# Constants of SplitMix64 (Steele et al. 2014), a hash of 64-bit numbers.
_GAMMA, _FIRST, _SECOND = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


class Visits(NamedTuple):
    """Visits of an epoch to sentence pairs.

    Attributes:
        pairs: the numbers of the pairs; int64 [visits].
        earlier: how often each pair was visited before; int64 [visits].
    """

    pairs: np.ndarray
    earlier: np.ndarray


class Order(Protocol):
    """Which pairs an epoch visits. `visits(n)` are the visits with the numbers n, each from 0 to `len(order)` - 1."""

    def __len__(self) -> int: ...
    def visits(self, numbers: np.ndarray) -> Visits: ...


@dataclass(frozen=True)
class EachOnce:
    """An epoch that visits each pair once."""

    count: int
    epoch: int

    def __len__(self) -> int:
        return self.count

    def visits(self, numbers: np.ndarray) -> Visits:
        """Returns the visits with these numbers."""
        return Visits(numbers, np.full_like(numbers, self.epoch))


@dataclass(frozen=True)
class Mixture:
    """Corpora that lie one after the other, and their shares of the visits.

    An epoch has as many visits as there are pairs. The visits to a corpus go through its pairs again and again in a
    random order, and continue from epoch to epoch. So all pairs of a corpus are visited equally often.
    """

    pairs: tuple[int, ...]
    shares: tuple[float, ...]

    @classmethod
    def of(cls, pairs: Sequence[int], weights: Sequence[float], temperature: float) -> "Mixture":
        """Returns the mixture in which a corpus of n pairs with weight w has a share proportional to (w n)^(1/T)."""
        sizes = [(weight * count) ** (1 / temperature) for weight, count in zip(weights, pairs, strict=True)]
        return cls(tuple(pairs), tuple(size / sum(sizes) for size in sizes))

    def order(self, seed: int, epoch: int) -> "MixedOrder":
        """Returns the visits of an epoch."""
        return MixedOrder(self, seed, epoch)

    def earlier_visits(self, epoch: int) -> np.ndarray:
        """Returns how many visits each corpus had in the epochs before `epoch`: int64 [corpora]."""
        return np.floor(epoch * sum(self.pairs) * np.array(self.shares)).astype(np.int64)


@dataclass(frozen=True)
class MixedOrder:
    """The visits of an epoch to a mixture, corpus by corpus."""

    mixture: Mixture
    seed: int
    epoch: int

    @cached_property
    def _begins(self) -> np.ndarray:
        """The number of the first visit to each corpus, and of all visits: int64 [corpora + 1]."""
        before, after = (self.mixture.earlier_visits(epoch) for epoch in (self.epoch, self.epoch + 1))
        return np.concatenate(([0], np.cumsum(after - before)))

    def __len__(self) -> int:
        return int(self._begins[-1])

    def visits(self, numbers: np.ndarray) -> Visits:
        """Returns the visits with these numbers."""
        begins, sizes = self._begins, np.array(self.mixture.pairs)
        corpora = np.searchsorted(begins, numbers, side="right") - 1
        places = self.mixture.earlier_visits(self.epoch)[corpora] + numbers - begins[corpora]
        earlier, place = np.divmod(places, sizes[corpora])
        steps, offsets = self._shuffles
        first = np.cumsum(sizes) - sizes
        return Visits(first[corpora] + (place * steps[corpora] + offsets[corpora]) % sizes[corpora], earlier)

    @cached_property
    def _shuffles(self) -> np.ndarray:
        """The numbers a and b of the order p ↦ (a p + b) mod n of each corpus with n pairs: int64 [2, corpora]."""
        return np.array([self._shuffle(corpus) for corpus in range(len(self.mixture.pairs))]).T

    def _shuffle(self, corpus: int) -> tuple[int, int]:
        """Returns a and b for a corpus; a and its number of pairs have no common factor."""
        size = self.mixture.pairs[corpus]
        step = hash_of(self.seed, corpus) % min(size, 1 << 31)
        while gcd(step, size) != 1:
            step += 1
        return step, hash_of(self.seed, corpus, 1) % size


class EpochArray:
    """One side of a split in one epoch.

    Pair i has its encodings in rows i·K to i·K + K - 1 of the array. In K visits, it has each of them once. Pairs begin
    with different ones.

    Args:
        encodings: K.
        order: the pairs of the epoch.
        seed: the seed of the choice.
        slow: skips one encoding after every K visits. If only one side of a pair does so, K² visits have all
            combinations of the encodings of both sides.
    """

    def __init__(self, array: TokenArray, encodings: int, order: Order, seed: int, *, slow: bool = False) -> None:
        self.array, self.encodings, self.order, self.seed, self.slow = array, encodings, order, seed, slow

    def __len__(self) -> int:
        return len(self.order)

    @property
    def lengths(self) -> "EpochLengths":
        """The number of tokens of every sentence, EOS included."""
        return EpochLengths(self)

    @property
    def longest(self) -> int:
        """The number of tokens of the longest encoding of any sentence, EOS included."""
        return self.array.longest

    def rows(self, sentences: np.ndarray) -> np.ndarray:
        """Returns the rows of the sentences with these numbers: int64 [numbers]."""
        pairs, earlier = self.order.visits(np.asarray(sentences, dtype=np.int64))
        if self.encodings == 1:
            return pairs
        begin = _hashed(pairs.astype(np.uint64) + _hashed(np.uint64(self.seed))) % np.uint64(self.encodings)
        steps = earlier + earlier // self.encodings if self.slow else earlier
        return pairs * self.encodings + (begin.astype(np.int64) + steps) % self.encodings

    def __getitem__(self, index: int) -> np.ndarray:
        """Returns the ids of a sentence, without EOS, as a read-only view of the file."""
        if not 0 <= index < len(self):
            raise IndexError(f"sentence {index} of {len(self)}")
        return self.sentences(np.array([index]))[0]

    def sentences(self, numbers: np.ndarray) -> list[np.ndarray]:
        """Returns the ids of the sentences with these numbers, much faster than one by one."""
        return [self.array[row] for row in self.rows(numbers).tolist()]


class EpochLengths:
    """The number of tokens of every sentence, EOS included, computed on demand."""

    def __init__(self, side: EpochArray) -> None:
        self._side = side
        self._lengths: StoredLengths = side.array.lengths

    def __len__(self) -> int:
        return len(self._side)

    def __getitem__(self, sentences: np.ndarray, /) -> np.ndarray:
        """Returns the lengths of the sentences with these numbers: int64 [numbers]."""
        return self._lengths[self._side.rows(sentences)]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Returns the lengths of all sentences: int32 [sentences], unless numpy asks for another `dtype`."""
        lengths = np.empty(len(self), dtype=dtype or np.int32)
        for first in range(0, len(self), _AT_ONCE):
            last = min(first + _AT_ONCE, len(self))
            lengths[first:last] = self[np.arange(first, last)]
        return lengths

    @property
    def total(self) -> int:
        """The sum of all lengths."""
        return int(np.asarray(self).sum(dtype=np.int64))


def hash_of(*numbers: int) -> int:
    """Returns a hash of whole numbers, from 0 to 2^64 - 1."""
    found = np.uint64(0)
    for number in numbers:
        found = _hashed(found + np.uint64(number))
    return int(found)


def _hashed(numbers: Any) -> Any:
    with np.errstate(over="ignore"):
        mixed = numbers + _GAMMA
        mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
        mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
        return mixed ^ (mixed >> np.uint64(31))
