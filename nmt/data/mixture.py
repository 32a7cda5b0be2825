"""What an epoch trains on: corpora in given proportions."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd
from typing import Any

import numpy as np

# Constants of SplitMix64 (Steele et al. 2014), a hash of 64-bit numbers.
_GAMMA, _FIRST, _SECOND = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


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

    def earlier_visits(self, epoch: int) -> np.ndarray:
        """Returns how many visits each corpus had in the epochs before `epoch`: int64 [corpora]."""
        return np.floor(epoch * sum(self.pairs) * np.array(self.shares)).astype(np.int64)


@dataclass(frozen=True)
class MixedOrder:
    """The visits of an epoch to the pairs of a mixture, corpus by corpus."""

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

    def visits(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the pair of each visit, and how often that pair was visited before; int64 [visits] each.

        Args:
            numbers: the numbers of the visits in the epoch, counted from 0; int64 [visits].
        """
        begins, sizes = self._begins, np.array(self.mixture.pairs)
        corpora = np.searchsorted(begins, numbers, side="right") - 1
        visits = self.mixture.earlier_visits(self.epoch)[corpora] + numbers - begins[corpora]  # since the first epoch
        earlier, positions = np.divmod(visits, sizes[corpora])
        steps, offsets = self._shuffles
        first = np.cumsum(sizes) - sizes
        return first[corpora] + (positions * steps[corpora] + offsets[corpora]) % sizes[corpora], earlier

    @cached_property
    def _shuffles(self) -> np.ndarray:
        """The numbers a and b of the order p ↦ (a p + b) mod n of each corpus with n pairs: int64 [2, corpora].

        a and n have no common factor.
        """
        shuffles = []
        for corpus, size in enumerate(self.mixture.pairs):
            step = hash_of(self.seed, corpus) % min(size, 1 << 31)
            while gcd(step, size) != 1:
                step += 1
            shuffles.append((step, hash_of(self.seed, corpus, 1) % size))
        return np.array(shuffles).T


def hash_of(*numbers: int) -> int:
    """Returns a hash of whole numbers, from 0 to 2^64 - 1."""
    mixed = np.uint64(0)
    for number in numbers:
        mixed = hashed(mixed + np.uint64(number))
    return int(mixed)


def hashed(numbers: Any) -> Any:
    """Returns well-distributed 64-bit numbers for numbers of type uint64 (splitmix64)."""
    with np.errstate(over="ignore"):
        mixed = numbers + _GAMMA
        mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
        mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
        return mixed ^ (mixed >> np.uint64(31))
