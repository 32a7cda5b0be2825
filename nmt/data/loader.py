"""Turns an update plan and a data folder into micro-batches of tensors.

A separate thread makes the batches, and computes with numpy only. A torch operation in that thread would start a
second team of OpenMP threads. There would then be more threads than cores, and every operation of the training
thread would take a third longer.

Shapes: see docs/architecture.md; B sentences, F flat positions of either side, M flat target positions. Flat
positions include padding.
"""

from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice

import numpy as np
import torch
from torch import Tensor

from nmt.data.batching import UpdatePlan
from nmt.data.folder import ParallelSplit
from nmt.data.sides import Arrays, BatchSide, flat, make_side, packed_sides, padded
from nmt.model.masks import Block
from nmt.text.subword import PAD, with_bos, with_eos


@dataclass(frozen=True)
class PieceAlignment:
    """The linked pieces of a padded micro-batch.

    The attention weights of one head are B × T × S numbers for each block, and those of all blocks lie end to end.

    Attributes:
        indices_L: the index of each link in these numbers.
        shares_L: 1 over the number of alignments that its target piece has.
    """

    indices_L: Tensor
    shares_L: Tensor


# The number of flat positions of a padded side is a multiple of this. A CPU compiles a matrix product for every
# new number of rows, which takes a millisecond and a megabyte.
_MULTIPLE = 128


@dataclass(frozen=True)
class MicroBatch:
    """A micro-batch.

    Attributes:
        source: the source sentences, with EOS.
        target: the decoder's input: the target sentences, with BOS and without EOS.
        labels_M: the token to predict at each target position; PAD at padding and where the token is given.
        source_tokens, target_tokens: the number of tokens, without padding and given ones.
        sentences: the numbers of the sentence pairs, one array for each block.
        alignments: the word alignments; None if the data has none or the batch is packed.
    """

    source: BatchSide
    target: BatchSide
    labels_M: Tensor
    source_tokens: int
    target_tokens: int
    sentences: tuple[np.ndarray, ...]
    alignments: PieceAlignment | None = None

    @property
    def positions(self) -> int:
        """The number of flat positions of both sides, padding included."""
        return len(self.source.ids_F) + len(self.target.ids_F)

    def tensors(self) -> list[Tensor]:
        """Returns all tensors of a packed batch."""
        sides = self.source, self.target
        return [self.labels_M, *(x for s in sides for x in (s.ids_F, s.layout.positions_F, s.layout.lengths_B))]


@dataclass(frozen=True)
class Update:
    """One rank's part of an update.

    Attributes:
        batches: the micro-batches of this rank. All ranks have the same number of them; some may have no labels.
        source_tokens, target_tokens: the number of tokens in the whole update, over all ranks.
    """

    batches: list[MicroBatch]
    source_tokens: int
    target_tokens: int


def _piece_alignment(links: Sequence[Arrays], source: Sequence[Block], target: Sequence[Block]) -> PieceAlignment:
    """Returns the alignment of a padded micro-batch; links are numbers of a source and a target piece, in turn."""
    indices, shares, start = [], [], 0
    for block_links, source_block, target_block in zip(links, source, target, strict=True):
        for sentence_links in block_links:
            i, j = sentence_links.astype(np.int64).reshape(-1, 2).T
            indices.append(start + j * source_block.width + i)
            shares.append(1 / np.bincount(j)[j])
            start += target_block.width * source_block.width
    indices_L, shares_L = np.concatenate(indices), np.concatenate(shares).astype(np.float32)
    return PieceAlignment(torch.from_numpy(indices_L), torch.from_numpy(shares_L))


def make_micro_batch(split: ParallelSplit, blocks: Arrays, *, packs: bool = False) -> MicroBatch:
    """Returns a micro-batch on the CPU."""
    sources = [[with_eos(ids) for ids in split.source.sentences(block)] for block in blocks]
    targets = [split.target.sentences(block) for block in blocks]
    outputs = [[with_eos(ids) for ids in block] for block in targets]
    for output in chain.from_iterable(outputs):
        output[: split.given] = PAD
    inputs = [[with_bos(ids) for ids in block] for block in targets]
    if packs:
        source, target = packed_sides(sources, inputs)
        labels = list(chain.from_iterable(outputs))
    else:
        source, target = make_side(sources, _MULTIPLE), make_side(inputs, _MULTIPLE)
        labels = [padded(block) for block in outputs]
    alignments = None
    if split.alignments and source.layout.blocks and target.layout.blocks:
        links = [split.alignments.sentences(block) for block in blocks]
        alignments = _piece_alignment(links, source.layout.blocks, target.layout.blocks)
    labels_M = flat(labels, len(target.ids_F))
    source_tokens, target_tokens = (sum(map(len, chain.from_iterable(side))) for side in (sources, outputs))
    target_tokens -= split.given * sum(map(len, blocks))
    return MicroBatch(source, target, labels_M, source_tokens, target_tokens, tuple(blocks), alignments)


def make_update(
    split: ParallelSplit, plan: UpdatePlan, index: int, device_tokens: int, rank: int, ranks: int, *, packs: bool
) -> Update:
    """Returns the part of update `index` that rank `rank` of `ranks` processes."""
    batches = []
    for blocks in plan.micro_batches(index, device_tokens, ranks, packs=packs)[rank::ranks]:
        batch = make_micro_batch(split, blocks or [plan.update(index)[0][:1]], packs=packs)
        if not blocks:  # any sentence without labels has no gradient; all ranks must take the same steps
            labels_M = torch.from_numpy(np.full(len(batch.labels_M), PAD))
            batch = replace(batch, labels_M=labels_M, source_tokens=0, target_tokens=0, alignments=None)
        batches.append(batch)
    return Update(batches, *plan.tokens(index))


def updates(
    split: ParallelSplit,
    plan: UpdatePlan,
    device_tokens: int,
    first: int = 0,
    rank: int = 0,
    ranks: int = 1,
    *,
    packs: bool = False,
) -> Generator[Update, None, None]:
    """Yields one rank's part of each update, from number `first` to the end of the plan.

    Another thread prepares the next updates; its errors are raised here. Close the generator if you do not exhaust
    it. See `make_update`.
    """
    make = partial(make_update, split, plan, device_tokens=device_tokens, rank=rank, ranks=ranks, packs=packs)
    indices = iter(range(first, len(plan)))
    with ThreadPoolExecutor(1, "nmt-loader") as thread:
        ready = deque(thread.submit(make, index) for index in islice(indices, 5))
        try:
            while ready:
                update = ready.popleft().result()
                ready.extend(thread.submit(make, index) for index in islice(indices, 1))
                yield update
        finally:
            thread.shutdown(cancel_futures=True)
