"""Plans which sentences go into which update (paper §5.1), without torch and without files.

The sentences of an epoch are sorted by length and cut into *groups* of neighbours. All groups have about the same
number of tokens. An update consists of several groups, drawn at random. Therefore updates have equal sizes and
little padding, and mix short and long sentences.

The groups depend only on the data, the options, the seed and the epoch. The hardware only decides how an update is
cut into micro-batches, which does not change its gradient.
"""

from dataclasses import dataclass

import numpy as np

from nmt.data.arrays import Lengths

Array = np.ndarray
Sides = tuple[Lengths, Lengths]
# A new number for every change of how plans are made. A training state refers to a position in an epoch, which has
# another meaning in another plan.
PLAN_VERSION = 2


def most_positions(device_tokens: int) -> int:
    """Returns the most tokens on a side of a micro-batch: a sixteenth more than --device-tokens.

    Without this tolerance, half of the updates would be cut in two if --device-tokens is --batch-tokens.
    """
    return device_tokens + device_tokens // 16


@dataclass(frozen=True)
class Epoch:
    """The random part of an epoch's plan.

    Attributes:
        order: the sentence numbers; neighbours have similar lengths; [sentences].
        group_starts: where each group starts in `order`, and where the last one ends; [groups + 1].
        groups: the group numbers in the order of training; [groups].
        widest: the source and target tokens of two extreme pairs: the pair whose longer side is the longest, and
            the pair whose shorter side is the longest.
    """

    order: Array
    group_starts: Array
    groups: Array
    widest: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class UpdatePlan:
    """The updates of one epoch.

    Attributes:
        lengths: those of the source and of the target sentences.
        given: the number of tokens at the beginning of each target that are given. They do not count as tokens.
    """

    lengths: Sides
    epoch: Epoch
    groups_per_update: int
    given: int = 0

    def __len__(self) -> int:
        """Returns the number of updates in the epoch."""
        return -(-len(self.epoch.groups) // self.groups_per_update)

    @property
    def totals(self) -> tuple[int, int]:
        """The number of source tokens and of target tokens in the epoch."""
        source, target = self.lengths
        return source.total, target.total - self.given * len(target)

    def update(self, index: int) -> list[Array]:
        """Returns the sentence numbers of update `index`, group by group."""
        first, starts = index * self.groups_per_update, self.epoch.group_starts
        groups = self.epoch.groups[first : first + self.groups_per_update]
        return [self.epoch.order[starts[g] : starts[g + 1]] for g in groups]

    def tokens(self, index: int) -> tuple[int, int]:
        """Returns the number of source tokens and of target tokens in update `index`."""
        sentences = np.concatenate(self.update(index))
        source, target = (int(lengths[sentences].sum()) for lengths in self.lengths)
        return source, target - self.given * len(sentences)

    def micro_batches(self, index: int, device_tokens: int, ranks: int = 1, packs: bool = False) -> list[list[Array]]:
        """Returns the micro-batches of update `index`, each as a list of blocks of sentence numbers.

        The micro-batches have similar sizes. Each has at most `most_positions(device_tokens)` tokens on either
        side, unless a single sentence is longer. Their number is a multiple of `ranks`, and as small as possible:
        rank r takes micro-batches r, r + ranks, r + 2·ranks, … The last ones are empty if there are not enough
        sentences. Padding counts as tokens, unless micro-batches are packed (`packs`).
        """
        groups, most = self.update(index), most_positions(device_tokens)
        # Unless they are packed, the sentences of a group or block are padded to the longest one of both sides.
        if packs:
            sizes = [sum(lengths[group] for lengths in self.lengths) for group in groups]
        else:
            sizes = [np.full(len(group), max(lengths[group].max() for lengths in self.lengths)) for group in groups]
        ends = np.cumsum(np.concatenate(sizes), dtype=np.int64)  # the size of all sentences up to the end of each one

        def positions(blocks: list[Array]) -> int:
            """Returns the number of positions on the side that has more."""
            if not packs:
                return sum(len(block) * max(int(lengths[block].max()) for lengths in self.lengths) for block in blocks)
            sentences = np.concatenate(blocks)
            return max(int(lengths[sentences].sum()) for lengths in self.lengths)

        count = ranks * -(-positions(groups) // (ranks * most))
        while True:
            batch_of_sentence = np.concatenate([[0], (ends[:-1] * count) // ends[-1]])
            by_group = np.split(batch_of_sentence, np.cumsum([len(group) for group in groups])[:-1])
            batches: dict[int, list[Array]] = {}
            for group, batch_numbers in zip(groups, by_group, strict=True):
                for batch in np.unique(batch_numbers):
                    batches.setdefault(int(batch), []).append(group[batch_numbers == batch])
            if all(positions(batch) <= most or sum(map(len, batch)) == 1 for batch in batches.values()):
                return [*batches.values(), *([] for _ in range(-len(batches) % ranks))]
            count += ranks

    def padding_share(self, device_tokens: int, updates: int | None = None) -> float:
        """Returns the share of positions that are padding, in the first `updates` updates or in all."""
        indices = range(len(self))[:updates]
        blocks = [block for i in indices for batch in self.micro_batches(i, device_tokens) for block in batch]
        sides = [lengths[block] for block in blocks for lengths in self.lengths]
        return 1 - sum(int(side.sum()) for side in sides) / sum(len(side) * int(side.max()) for side in sides)


def make_plan(lengths: Sides, *, batch_tokens: int, groups: int, seed: int, epoch: int, given: int = 0) -> UpdatePlan:
    """Returns the plan of an epoch."""
    return UpdatePlan(lengths, draw_epoch(lengths, batch_tokens, groups, seed, epoch), groups, given)


def draw_epoch(lengths: Sides, batch_tokens: int, groups: int, seed: int, epoch: int) -> Epoch:
    """Returns the random part of an epoch's plan.

    An update has about `batch_tokens` tokens a side in `groups` groups. `seed` and `epoch` seed the random numbers.

    If `groups` is odd, the size of a sentence pair is the length of its longer side. If `groups` is even, it is
    the sum of both sides, and groups with more source tokens are paired with groups with more target tokens.

    The computation needs 36 bytes for each sentence, and the result needs 4. `Lengths` that are computed when they
    are read, such as those of a mixture, need another 44 MB at most.
    """
    random = np.random.default_rng((seed, epoch))
    source, target = map(np.asarray, lengths)
    order = _sorted_by_length(source, target, random)
    larger = np.maximum(source, target)
    widest = tuple((int(source[i]), int(target[i])) for i in (larger.argmax(), np.minimum(source, target).argmax()))
    balanced = groups % 2 == 0
    sums = [int(lengths.sum(dtype=np.int64)) for lengths in (source, target)]
    tokens = max(sums) if balanced else int(larger.sum(dtype=np.int64))
    sizes = source[order] + target[order] if balanced else larger[order]
    starts = _group_starts(sizes, max(1, round(tokens / batch_tokens)) * groups, random)
    if not balanced:
        return Epoch(order, starts, random.permutation(len(starts) - 1), widest)
    by_group = [np.add.reduceat(lengths[order], starts[:-1], dtype=np.int64) for lengths in (source, target)]
    return Epoch(order, starts, _shuffled_in_pairs(by_group[0] * sums[1] - by_group[1] * sums[0], random), widest)


def _sorted_by_length(source: Array, target: Array, random: np.random.Generator) -> Array:
    """Returns the sentence numbers, sorted by target length and then by source length.

    Source lengths alternately rise and fall from one target length to the next, so that neighbours have similar
    source lengths even where the target length changes. The order of equal pairs is random, so that groups differ
    from epoch to epoch.
    """
    shuffled = random.permutation(np.arange(len(source), dtype=np.uint32))
    # All lengths that do not fit into 16 bits are sorted alike.
    source, target = (np.minimum(lengths[shuffled], 0xFFFF).astype(np.uint16) for lengths in (source, target))
    return shuffled[np.lexsort((np.where(target % 2, source, ~source), target))]


def _group_starts(sizes: Array, groups: int, random: np.random.Generator) -> Array:
    """Returns where to cut sorted sentences of these sizes into groups of equal size; [groups + 1] or fewer.

    All cuts but the first and the last are moved by the same random shift of up to a quarter of a group, so that
    groups differ from epoch to epoch.
    """
    middles = np.cumsum(sizes, dtype=np.int64)
    cuts = middles[-1] / groups * (np.arange(1, groups) + random.uniform(-0.25, 0.25))
    middles -= sizes // 2
    return np.unique(np.concatenate([[0], np.searchsorted(middles, cuts), [len(sizes)]]))


def _shuffled_in_pairs(imbalance: Array, random: np.random.Generator) -> Array:
    """Returns the group numbers in random order, as pairs of a group with more source and one with more target tokens.

    Therefore an update of an even number of groups has about the same number of tokens on both sides.
    """
    ranked = np.argsort(imbalance, kind="stable")
    half = len(ranked) // 2
    pairs = np.stack([ranked[:half], ranked[::-1][:half]], axis=1)
    return np.concatenate([random.permutation(pairs).ravel(), ranked[half : len(ranked) - half]])
