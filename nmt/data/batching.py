"""Which sentences go into which update (paper §5.1): lengths in, an update plan out. No torch, no files.

An epoch's sentences are sorted by length and cut into *groups* of neighbours, all of one size; an update takes
several groups drawn at random. So an update holds as many tokens as asked for and little padding, yet short and long
sentences together.
Groups depend on the data, the options, the seed and the epoch alone, never on the hardware; only their cut into
micro-batches, which changes no gradient, depends on what a device can hold.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

Array = np.ndarray
# Another one where plans are made differently, so that a place in an epoch means something else.
PLAN_VERSION = 2
# Sentences longer than this are sorted as if they were as long.
_LONGEST_SORTED = (1 << 16) - 1


class Lengths(Protocol):
    """Tokens of each sentence, EOS included: an array, or something that makes one of what is asked for."""

    def __len__(self) -> int: ...
    def __getitem__(self, sentences: Array, /) -> Array: ...
    def __array__(self) -> Array: ...


@dataclass(frozen=True)
class Epoch:
    """What is drawn for an epoch.

    Attributes:
        order: (sentences,) sentence numbers, neighbours of similar length.
        group_starts: (groups + 1,) where in `order` each group starts and the last one ends.
        groups: (groups,) the groups in the order they are trained on.
        widest: source and target tokens of two pairs: the one with the longest side, and the one whose shorter side is
            longest.
    """

    order: Array
    group_starts: Array
    groups: Array
    widest: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class UpdatePlan:
    """One epoch's updates.

    Attributes:
        source_lengths, target_lengths: of all sentences.
        epoch: how the sentences fall into groups.
        groups_per_update: how many of them make an update; the last update may have fewer.
    """

    source_lengths: Lengths
    target_lengths: Lengths
    epoch: Epoch
    groups_per_update: int

    def __len__(self) -> int:
        """Updates in the epoch."""
        return -(-len(self.epoch.groups) // self.groups_per_update)

    def update(self, index: int) -> list[Array]:
        """The sentence numbers of update `index`, group by group."""
        first, starts = index * self.groups_per_update, self.epoch.group_starts
        chosen = self.epoch.groups[first : first + self.groups_per_update]
        return [self.epoch.order[starts[g] : starts[g + 1]] for g in chosen]

    def tokens(self, index: int) -> tuple[int, int]:
        """Source and target tokens of update `index`."""
        sentences = np.concatenate(self.update(index))
        return int(self.source_lengths[sentences].sum()), int(self.target_lengths[sentences].sum())

    def micro_batches(self, index: int, device_tokens: int, ranks: int = 1) -> list[list[Array]]:
        """Update `index` cut into micro-batches of like size, each a list of blocks of similar length.

        A micro-batch's blocks hold, padding included, at most `device_tokens` tokens on either side, unless a single
        sentence is longer. There are as few as that allows, but a multiple of `ranks`; rank r takes every `ranks`-th
        from r on. A micro-batch without blocks is one for which no sentence is left.
        """
        groups = self.update(index)
        count = ranks * -(-sum(map(self.padded_size, groups)) // (ranks * device_tokens))
        while True:
            batches = self._cut(groups, count)
            if all(self._fits(batch, device_tokens) for batch in batches):
                empty: list[list[Array]] = [[]]
                return batches + empty * (-len(batches) % ranks)
            count += ranks

    def _cut(self, groups: list[Array], count: int) -> list[list[Array]]:
        """The groups, one after the other, cut where their padded size reaches a multiple of 1/count of its sum."""
        widths = [np.full(len(g), self.padded_size(g) // len(g)) for g in groups]
        ends = np.cumsum(np.concatenate(widths))
        number = np.concatenate([[0], (ends[:-1] * count) // ends[-1]])  # of the micro-batch, for every sentence
        of_groups = np.split(number, np.cumsum([len(g) for g in groups])[:-1])
        batches: dict[int, list[Array]] = {}
        for group, numbers in zip(groups, of_groups, strict=True):
            for n in np.unique(numbers):
                batches.setdefault(int(n), []).append(group[numbers == n])
        return list(batches.values())

    def _fits(self, batch: list[Array], device_tokens: int) -> bool:
        return sum(map(self.padded_size, batch)) <= device_tokens or sum(map(len, batch)) == 1

    def padded_size(self, sentences: Array) -> int:
        """Tokens of the larger side when the sentences are padded to the longest."""
        width = max(self.source_lengths[sentences].max(), self.target_lengths[sentences].max())
        return int(width) * len(sentences)

    def padding_share(self, device_tokens: int, updates: int | None = None) -> float:
        """Share of positions, both sides, that hold padding; in the first `updates` updates, or in the epoch."""
        chosen = range(len(self))[:updates]
        blocks = [b for i in chosen for batch in self.micro_batches(i, device_tokens) for b in batch]
        real = sum(int(self.source_lengths[b].sum() + self.target_lengths[b].sum()) for b in blocks)
        padded = sum(len(b) * int(self.source_lengths[b].max() + self.target_lengths[b].max()) for b in blocks)
        return 1 - real / padded


def make_plan(
    source_lengths: Lengths, target_lengths: Lengths, *, batch_tokens: int, groups: int, seed: int, epoch: int
) -> UpdatePlan:
    """Plans an epoch: updates of about `batch_tokens` tokens on the larger side, of `groups` groups each."""
    drawn = draw_epoch(source_lengths, target_lengths, batch_tokens=batch_tokens, groups=groups, seed=seed, epoch=epoch)
    return UpdatePlan(source_lengths, target_lengths, drawn, groups)


def draw_epoch(
    source_lengths: Lengths, target_lengths: Lengths, *, batch_tokens: int, groups: int, seed: int, epoch: int
) -> Epoch:
    """Draws what `make_plan` plans with; takes 30 bytes a sentence for a while, and keeps 4.

    If `groups` is odd, the size of a group is the sum of its sentences' larger sides. If it is even, it is that of both
    sides, and groups with more source go together with groups with more target.
    """
    random = np.random.default_rng((seed, epoch))
    source, target = (np.asarray(lengths) for lengths in (source_lengths, target_lengths))
    order = _sorted_by_length(source, target, random)
    larger = np.maximum(source, target)
    widest = tuple((int(source[i]), int(target[i])) for i in (larger.argmax(), np.minimum(source, target).argmax()))
    if groups % 2:
        updates = max(1, round(_sum(larger) / batch_tokens))
        starts = _group_starts(larger[order], updates * groups, random)
        return Epoch(order, starts, random.permutation(len(starts) - 1), widest)
    updates = max(1, round(max(_sum(source), _sum(target)) / batch_tokens))
    starts = _group_starts(source[order] + target[order], updates * groups, random)
    imbalance = _group_sums(source, order, starts) * _sum(target) - _group_sums(target, order, starts) * _sum(source)
    return Epoch(order, starts, _shuffled_in_pairs(imbalance, random), widest)


def _sum(lengths: Array) -> int:
    return int(lengths.sum(dtype=np.int64))


def _sorted_by_length(source: Array, target: Array, random: np.random.Generator) -> Array:
    """Sentence numbers by target length, then back and forth by source length, so that neighbours across a step of the
    target's length are alike as well. Ties, and so a group's make-up, fall differently in every epoch.
    """
    shuffled = random.permutation(np.arange(len(source), dtype=np.uint32))
    # The two lengths and the place in the random order, packed into one number each, are sorted as they are.
    source, target = (np.minimum(lengths[shuffled], _LONGEST_SORTED).astype(np.uint16) for lengths in (source, target))
    keys = target.astype(np.uint64)
    keys <<= 16
    keys |= np.where(target % 2, source, ~source)
    keys <<= 32
    keys |= np.arange(len(shuffled), dtype=np.uint32)
    keys.sort()
    keys &= 0xFFFFFFFF
    return shuffled[keys]


def _group_starts(sizes: Array, groups: int, random: np.random.Generator) -> Array:
    """Cuts sentences of these sizes, as they are sorted, into groups of equal size.

    All cuts but the ends are shifted alike by up to a quarter of a group, so that they fall elsewhere in every epoch.
    """
    middles = np.cumsum(sizes, dtype=np.int64)
    group = middles[-1] / groups
    cuts = group * (np.arange(1, groups) + random.uniform(-0.25, 0.25))
    middles -= sizes // 2
    return np.unique(np.concatenate([[0], np.searchsorted(middles, cuts), [len(sizes)]]))


def _group_sums(lengths: Array, order: Array, starts: Array) -> Array:
    return np.add.reduceat(lengths[order], starts[:-1], dtype=np.int64)


def _shuffled_in_pairs(imbalance: Array, random: np.random.Generator) -> Array:
    """Group numbers in random order, but in pairs: one that has more source than target, and one that has as much less.

    So any update of an even number of groups has as many tokens on both sides as the others.
    """
    ranked = np.argsort(imbalance, kind="stable")
    half = len(ranked) // 2
    pairs = np.stack([ranked[:half], ranked[::-1][:half]], axis=1)
    middle = ranked[half : len(ranked) - half]
    return np.concatenate([random.permutation(pairs).ravel(), middle])
