"""The update plan: which sentences go into which update (paper §5.1). No torch, no files.

An epoch's sentences are sorted by length and cut into *groups* of neighbours with equally many tokens. An update takes
several groups, drawn at random. So updates are equally large, hold little padding, and mix short and long sentences.

Groups depend only on the data, the options, the seed and the epoch. The hardware decides only how an update is cut into
micro-batches, which does not change its gradient.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

Array = np.ndarray
# Changes whenever plans are made differently: a position in an epoch then means something else.
PLAN_VERSION = 2
# Longer sentences are sorted as if they had this length.
_LONGEST_SORTED = (1 << 16) - 1


class Lengths(Protocol):
    """Tokens of each sentence, EOS included: an array, or an object that computes parts of it on demand."""

    def __len__(self) -> int: ...
    def __getitem__(self, sentences: Array, /) -> Array: ...
    def __array__(self) -> Array: ...


@dataclass(frozen=True)
class Epoch:
    """The random part of an epoch's plan.

    Attributes:
        order: (sentences,) sentence numbers; neighbours have similar lengths.
        group_starts: (groups + 1,) where in `order` each group starts and the last one ends.
        groups: (groups,) the groups in the order of training.
        widest: source and target tokens of the pair with the longest side, and of the pair with the longest shorter
            side.
    """

    order: Array
    group_starts: Array
    groups: Array
    widest: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class UpdatePlan:
    """The updates of one epoch.

    Attributes:
        source_lengths, target_lengths: tokens of all sentences.
        epoch: how the sentences fall into groups.
        groups_per_update: groups in an update; the last update may have fewer.
    """

    source_lengths: Lengths
    target_lengths: Lengths
    epoch: Epoch
    groups_per_update: int

    def __len__(self) -> int:
        """Returns the number of updates in the epoch."""
        return -(-len(self.epoch.groups) // self.groups_per_update)

    def update(self, index: int) -> list[Array]:
        """Returns the sentence numbers of update `index`, group by group."""
        first, starts = index * self.groups_per_update, self.epoch.group_starts
        chosen = self.epoch.groups[first : first + self.groups_per_update]
        return [self.epoch.order[starts[g] : starts[g + 1]] for g in chosen]

    def tokens(self, index: int) -> tuple[int, int]:
        """Returns the source and target tokens of update `index`."""
        sentences = np.concatenate(self.update(index))
        return int(self.source_lengths[sentences].sum()), int(self.target_lengths[sentences].sum())

    def micro_batches(self, index: int, device_tokens: int, ranks: int = 1) -> list[list[Array]]:
        """Cuts update `index` into micro-batches of similar size, each a list of blocks of sentences of similar length.

        A micro-batch holds at most `device_tokens` tokens on either side, padding included, unless a single sentence is
        longer. There are as few micro-batches as possible, but a multiple of `ranks`: rank r takes number r and every
        `ranks`-th one after it. The last ones have no blocks if too few sentences are left.
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
        """Cuts the groups, laid end to end, into `count` parts of equal padded size."""
        widths = [np.full(len(g), self.padded_size(g) // len(g)) for g in groups]
        ends = np.cumsum(np.concatenate(widths))
        part = np.concatenate([[0], (ends[:-1] * count) // ends[-1]])  # of each sentence
        parts_of_groups = np.split(part, np.cumsum([len(g) for g in groups])[:-1])
        batches: dict[int, list[Array]] = {}
        for group, numbers in zip(groups, parts_of_groups, strict=True):
            for n in np.unique(numbers):
                batches.setdefault(int(n), []).append(group[numbers == n])
        return list(batches.values())

    def _fits(self, batch: list[Array], device_tokens: int) -> bool:
        return sum(map(self.padded_size, batch)) <= device_tokens or sum(map(len, batch)) == 1

    def padded_size(self, sentences: Array) -> int:
        """Returns the tokens of the larger side when all sentences are padded to the longest."""
        width = max(self.source_lengths[sentences].max(), self.target_lengths[sentences].max())
        return int(width) * len(sentences)

    def padding_share(self, device_tokens: int, updates: int | None = None) -> float:
        """Returns the share of padding in the positions of both sides, over the first `updates` updates or all."""
        chosen = range(len(self))[:updates]
        blocks = [b for i in chosen for batch in self.micro_batches(i, device_tokens) for b in batch]
        real = sum(int(self.source_lengths[b].sum() + self.target_lengths[b].sum()) for b in blocks)
        padded = sum(len(b) * int(self.source_lengths[b].max() + self.target_lengths[b].max()) for b in blocks)
        return 1 - real / padded


def make_plan(
    source_lengths: Lengths, target_lengths: Lengths, *, batch_tokens: int, groups: int, seed: int, epoch: int
) -> UpdatePlan:
    """Plans an epoch with updates of about `batch_tokens` tokens on the larger side, in `groups` groups each."""
    drawn = draw_epoch(source_lengths, target_lengths, batch_tokens=batch_tokens, groups=groups, seed=seed, epoch=epoch)
    return UpdatePlan(source_lengths, target_lengths, drawn, groups)


def draw_epoch(
    source_lengths: Lengths, target_lengths: Lengths, *, batch_tokens: int, groups: int, seed: int, epoch: int
) -> Epoch:
    """Draws the random part of an epoch's plan; needs 30 bytes a sentence while it works, and 4 afterwards.

    If `groups` is odd, the size of a group is the sum of its sentences' larger sides. If `groups` is even, it is the
    sum of both sides, and groups with more source are paired with groups with more target.
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
    """Sorts sentence numbers by target length, then by source length, upwards and downwards in turn.

    So neighbours are similar even where the target length changes. Ties are broken at random, so that groups differ
    from epoch to epoch.
    """
    shuffled = random.permutation(np.arange(len(source), dtype=np.uint32))
    # One number holds both lengths and the place in the random order, so that a plain sort is enough.
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
    """Returns where to cut sorted sentences of these sizes into groups of equal size.

    A random shift of up to a quarter of a group moves all inner cuts, so that they differ from epoch to epoch.
    """
    middles = np.cumsum(sizes, dtype=np.int64)
    group = middles[-1] / groups
    cuts = group * (np.arange(1, groups) + random.uniform(-0.25, 0.25))
    middles -= sizes // 2
    return np.unique(np.concatenate([[0], np.searchsorted(middles, cuts), [len(sizes)]]))


def _group_sums(lengths: Array, order: Array, starts: Array) -> Array:
    return np.add.reduceat(lengths[order], starts[:-1], dtype=np.int64)


def _shuffled_in_pairs(imbalance: Array, random: np.random.Generator) -> Array:
    """Returns group numbers in random order, in pairs: one with more source, one with as much more target.

    So updates of an even number of groups have equally many tokens on both sides.
    """
    ranked = np.argsort(imbalance, kind="stable")
    half = len(ranked) // 2
    pairs = np.stack([ranked[:half], ranked[::-1][:half]], axis=1)
    middle = ranked[half : len(ranked) - half]
    return np.concatenate([random.permutation(pairs).ravel(), middle])
