"""Which sentences go into which update (paper §5.1): lengths in, an update plan out. No torch, no files.

An epoch's sentences are sorted by length and cut into *groups* of neighbours; an update takes several groups drawn at
random. So an update holds about as many tokens as asked for and little padding, yet short and long sentences together.
Groups depend on the data, the options, the seed and the epoch alone, never on the hardware; only their cut into
micro-batches, which changes no gradient, depends on what a device can hold.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

Array = np.ndarray


@dataclass(frozen=True)
class UpdatePlan:
    """One epoch's updates.

    Attributes:
        source_lengths, target_lengths: (sentences,) tokens of each sentence, EOS included.
        order: (sentences,) sentence numbers, neighbours of similar length.
        group_starts: (groups + 1,) where in `order` each group starts and the last one ends.
        groups: (groups,) the groups in the order they are trained on.
        groups_per_update: how many of them make an update; the last update may have fewer.
    """

    source_lengths: Array
    target_lengths: Array
    order: Array
    group_starts: Array
    groups: Array
    groups_per_update: int

    def __len__(self) -> int:
        """Updates in the epoch."""
        return -(-len(self.groups) // self.groups_per_update)

    def update(self, index: int) -> list[Array]:
        """The sentence numbers of update `index`, group by group."""
        first = index * self.groups_per_update
        chosen = self.groups[first : first + self.groups_per_update]
        return [self.order[self.group_starts[g] : self.group_starts[g + 1]] for g in chosen]

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

    @cached_property
    def longest(self) -> int:
        """Tokens of the longest sentence of either side."""
        return int(max(self.source_lengths.max(), self.target_lengths.max()))


def make_plan(
    source_lengths: Array, target_lengths: Array, *, batch_tokens: int, groups: int, seed: int, epoch: int
) -> UpdatePlan:
    """Plans an epoch: updates of about `batch_tokens` tokens on the larger side, of `groups` groups each.

    Args:
        source_lengths, target_lengths: (sentences,) tokens of each sentence, EOS included.
    """
    random = np.random.default_rng((seed, epoch))
    shuffled = random.permutation(len(source_lengths))
    # Sorting a random order with a stable sort: ties, and so a group's make-up, differ from epoch to epoch.
    source, target = source_lengths[shuffled], target_lengths[shuffled]
    # By target length, then back and forth by source length, so that neighbours across a step of the target's length
    # are alike as well.
    order = shuffled[np.lexsort((np.where(target % 2, source, -source), target))]
    starts = _group_starts(source_lengths[order], target_lengths[order], max(1, batch_tokens // groups), random)
    chosen = random.permutation(len(starts) - 1)
    return UpdatePlan(source_lengths, target_lengths, order, starts, chosen, groups)


def _group_starts(source: Array, target: Array, budget: int, random: np.random.Generator) -> Array:
    """Cuts sorted lengths into groups of at most `budget` tokens a side, or one sentence.

    The first group's budget is random, so that the cuts fall elsewhere in every epoch.
    """
    source_ends, target_ends = np.cumsum(source, dtype=np.int64), np.cumsum(target, dtype=np.int64)
    starts, room = [0], int(random.integers(1, budget + 1))
    while starts[-1] < len(source):
        start = starts[-1]
        used_source, used_target = (0, 0) if start == 0 else (source_ends[start - 1], target_ends[start - 1])
        end = min(
            np.searchsorted(source_ends, used_source + room, side="right"),
            np.searchsorted(target_ends, used_target + room, side="right"),
        )
        starts.append(max(int(end), start + 1))
        room = budget
    return np.array(starts)
