"""The sides of a batch: ids of sentences as tensors, padded in blocks or packed, in training and in translation.

Shapes: see docs/architecture.md; B sentences, F flat positions, which include padding.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from nmt.model.masks import Block, Layout
from nmt.text.subword import PAD

Arrays = Sequence[np.ndarray]


@dataclass(frozen=True)
class BatchSide:
    """One side of a micro-batch: the ids at all flat positions, and the layout of the sentences."""

    ids_F: Tensor
    layout: Layout


def padded(sentences: Arrays, multiple: int = 1, least: int = 0) -> np.ndarray:
    """Returns the sentences as the rows of a matrix, padded with PAD to a width that is a multiple of `multiple`."""
    longest = max(least, *map(len, sentences))
    matrix = np.full((len(sentences), longest + -longest % multiple), PAD, dtype=np.int64)
    for row, sentence in zip(matrix, sentences, strict=True):
        row[: len(sentence)] = sentence
    return matrix


def flat(arrays: Arrays, multiple: int = 1) -> Tensor:
    """Returns the numbers of all arrays in one axis, padded at the end to a multiple of `multiple`."""
    flat = np.concatenate([array.ravel() for array in arrays])
    return torch.from_numpy(np.pad(flat, (0, -len(flat) % multiple), constant_values=PAD))


def make_side(blocks: Sequence[Arrays], multiple: int = 1, width_multiple: int = 1, least_width: int = 0) -> BatchSide:
    """Returns one side of a padded batch, in training or in translation.

    Args:
        blocks: the ids of each sentence, block by block, including BOS or EOS.
        multiple: the number of flat positions is padded to a multiple of this.
        width_multiple: the width of each block is padded to a multiple of this.
        least_width: the width of each block is at least this.
    """
    matrices = [padded(block, width_multiple, least_width) for block in blocks]
    lengths = [np.array([len(sentence) for sentence in block]) for block in blocks]
    positions_F = flat([np.tile(np.arange(matrix.shape[1]), len(matrix)) for matrix in matrices], multiple)
    layouts = tuple(
        Block(len(matrix), matrix.shape[1], padded=bool((block_lengths < matrix.shape[1]).any()))
        for matrix, block_lengths in zip(matrices, lengths, strict=True)
    )
    layout = Layout(positions_F, torch.from_numpy(np.concatenate(lengths)), max(b.width for b in layouts), layouts)
    return BatchSide(flat(matrices, multiple), layout)


def packed_sides(*sides: Sequence[Arrays]) -> list[BatchSide]:
    """Returns both sides of a packed micro-batch, which have no padding between sentences, given block by block.

    The numbers of positions and sentences are rounded up, so that there are few different shapes. Dummy sentences,
    no longer than the longest, fill the rest of the positions. Empty ones fill the rest of the sentences, because
    both sides need the same number.
    """
    sentences = [list(chain.from_iterable(blocks)) for blocks in sides]
    lengths_of_sides = []
    for side in sentences:
        lengths = [len(sentence) for sentence in side]
        total, longest = sum(lengths), max(lengths)
        filler = _rounded(total, 5) - total
        lengths_of_sides.append([*lengths, *[longest] * (filler // longest), filler % longest])
    count = _rounded(max(map(len, lengths_of_sides)), 2)
    packed = []
    for side, lengths in zip(sentences, lengths_of_sides, strict=True):
        positions = [np.arange(len(sentence)) for sentence in side]
        filler_positions = np.zeros(sum(lengths[len(side) :]), dtype=np.int64)
        lengths_B = torch.tensor(lengths + [0] * (count - len(lengths)))
        layout = Layout(flat([*positions, filler_positions]), lengths_B, longest=max(lengths), blocks=None)
        packed.append(BatchSide(flat([*side, filler_positions + PAD]), layout))
    return packed


def _rounded(count: int, bits: int) -> int:
    """Rounds up to a count with at most `bits` significant bits, or to a multiple of 8 if that is coarser.

    Matrix products on a GPU are faster if the number of rows is a multiple of 8.
    """
    return count + -count % max(8, 1 << max(0, count.bit_length() - bits))
