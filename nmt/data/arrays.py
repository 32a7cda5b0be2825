"""The sentences of a split as mapped arrays, and what an epoch visits: corpora in given proportions, and encodings."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np

# Lengths that are computed at once, to bound the memory.
_AT_ONCE = 1 << 20
# Constants of SplitMix64 (Steele et al. 2014), a hash of 64-bit numbers.
_GAMMA, _FIRST, _SECOND = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


@dataclass(frozen=True)
class Mixture:
    """Corpora that lie one after the other, and their shares of the visits.

    An epoch has as many visits as there are pairs. The visits to a corpus go through its pairs again and again in
    a random order, and continue from epoch to epoch. So all pairs of a corpus are visited equally often.
    """

    pairs: tuple[int, ...]
    shares: tuple[float, ...]

    @classmethod
    def of(cls, pairs: Sequence[int], weights: Sequence[float], temperature: float) -> "Mixture":
        """Returns the mixture in which a corpus of n pairs with weight w has a share proportional to (w n)^(1/T)."""
        sizes = [(weight * count) ** (1 / temperature) for weight, count in zip(weights, pairs, strict=True)]
        return cls(tuple(pairs), tuple(size / sum(sizes) for size in sizes))


class MixedOrder:
    """The visits of an epoch to the pairs of a mixture, corpus by corpus."""

    def __init__(self, mixture: Mixture, seed: int, epoch: int) -> None:
        self._sizes = np.array(mixture.pairs)
        # The visits that each corpus had before this epoch and before the next one.
        visits = np.array((epoch, epoch + 1)) * sum(mixture.pairs)
        self._before, after = np.floor(np.outer(visits, mixture.shares)).astype(np.int64)
        # The number of the first visit to each corpus, and of all visits.
        self._begins = np.concatenate(([0], np.cumsum(after - self._before)))
        # The numbers a and b, a prime to n, of the order p ↦ (a p + b) mod n of the n pairs of each corpus.
        shuffles = []
        for corpus, size in enumerate(mixture.pairs):
            step = hash_of(seed, corpus) % min(size, 1 << 31)
            while gcd(step, size) != 1:
                step += 1
            shuffles.append((step, hash_of(seed, corpus, 1) % size))
        self._steps, self._offsets = np.array(shuffles).T

    def __len__(self) -> int:
        return int(self._begins[-1])

    def visits(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the pairs of visits, and how often each was visited before; all int64 [visits], counted from 0."""
        corpora = np.searchsorted(self._begins, numbers, side="right") - 1
        sizes, first = self._sizes[corpora], (np.cumsum(self._sizes) - self._sizes)[corpora]
        # Counted since the first epoch.
        earlier, positions = np.divmod(self._before[corpora] + numbers - self._begins[corpora], sizes)
        return first + (positions * self._steps[corpora] + self._offsets[corpora]) % sizes, earlier


def hash_of(*numbers: int) -> int:
    """Returns a hash of whole numbers, from 0 to 2^64 - 1."""
    mixed = np.uint64(0)
    for value in numbers:
        mixed = hashed(mixed + np.uint64(value))
    return int(mixed)


def hashed(numbers: Any) -> Any:
    """Returns well-distributed 64-bit numbers for numbers of type uint64 (splitmix64)."""
    with np.errstate(over="ignore"):
        mixed = numbers + _GAMMA
        mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
        mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
        return mixed ^ (mixed >> np.uint64(31))


@dataclass(frozen=True, eq=False)
class TokenArray:
    """The sentences of one side of a split, or their alignments, as a data folder stores them.

    A sentence has K encodings, and as an item of the array it has the first one.

    Attributes:
        tokens: the ids of all encodings, end to end; [tokens].
        offsets: encoding i is tokens[offsets[i] : offsets[i + 1]]; sentence i has encodings i·K to i·K + K - 1;
            [encodings + 1].
        encodings: K.
    """

    tokens: np.ndarray
    offsets: np.ndarray
    encodings: int = 1

    def __len__(self) -> int:
        return (len(self.offsets) - 1) // self.encodings

    @property
    def lengths(self) -> "Lengths":
        """The number of tokens of every sentence, EOS included."""
        return Lengths(self)

    @property
    def longest(self) -> int:
        """The number of tokens of the longest encoding of any sentence, EOS included."""
        chunks = (self.offsets[first : first + _AT_ONCE + 1] for first in range(0, len(self.offsets), _AT_ONCE))
        return 1 + max(int(np.diff(chunk).max(initial=-1)) for chunk in chunks)

    def encodings_of(self, sentences: np.ndarray) -> np.ndarray:
        """Returns the number of the encoding of each of these sentences: int64 [sentences]."""
        return np.asarray(sentences, dtype=np.int64) * self.encodings

    def __getitem__(self, index: int) -> np.ndarray:
        """Returns the ids of a sentence, without EOS, as a read-only view of the file."""
        if not 0 <= index < len(self):
            raise IndexError(f"sentence {index} of {len(self)}")
        return self.sentences(np.array([index]))[0]

    def sentences(self, numbers: np.ndarray) -> list[np.ndarray]:
        """Returns the ids of the sentences with these numbers, much faster than one by one."""
        encodings = self.encodings_of(numbers)
        bounds = zip(self.offsets[encodings].tolist(), self.offsets[encodings + 1].tolist(), strict=True)
        return [self.tokens[start:end] for start, end in bounds]

    def rows(self, rows: range) -> "TokenArray":
        """Returns successive sentences, which have one encoding each."""
        return TokenArray(self.tokens, self.offsets[rows.start : rows.stop + 1])


@dataclass(frozen=True, eq=False)
class EpochTokens(TokenArray):
    """One side of a split, or its alignments, as an epoch trains on it: sentence i is the i-th visit of the epoch.

    K visits to a pair use each of its encodings once. A hash of the pair and the seed decides which one is first.

    Attributes:
        epoch: the number of the epoch. Without an `order`, each pair was visited this often before.
        order: the pairs that the epoch visits; None if it visits each pair once.
        seed: the seed of the choice of encodings.
        skips: how many encodings are skipped after every K visits. If one side of a pair skips one, and the other
            side none, then K² visits have all combinations of the encodings of both sides.
    """

    epoch: int = 0
    order: MixedOrder | None = None
    seed: int = 0
    skips: int = 0

    def __len__(self) -> int:
        return len(self.order) if self.order else super().__len__()

    def encodings_of(self, sentences: np.ndarray) -> np.ndarray:
        """Returns the number of the encoding that each of these sentences has in the epoch: int64 [sentences]."""
        visits = np.asarray(sentences, dtype=np.int64)
        pairs, earlier = self.order.visits(visits) if self.order else (visits, self.epoch)
        if self.encodings == 1:
            return pairs
        first = hashed(pairs.astype(np.uint64) + hashed(np.uint64(self.seed))) % np.uint64(self.encodings)
        steps = earlier + self.skips * (earlier // self.encodings)
        return pairs * self.encodings + (first.astype(np.int64) + steps) % self.encodings


class Lengths:
    """The number of tokens of every sentence, EOS included, computed on demand to save memory."""

    def __init__(self, side: TokenArray) -> None:
        self._side = side

    def __len__(self) -> int:
        return len(self._side)

    def __getitem__(self, sentences: np.ndarray, /) -> np.ndarray:
        """Returns the lengths of the sentences with these numbers: int64 [sentences]."""
        encodings, offsets = self._side.encodings_of(sentences), self._side.offsets
        return offsets[encodings + 1] - offsets[encodings] + 1

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
