"""Describes how the sentences of a batch lie in one flat axis.

All parts of the model except attention work on single positions. Therefore the positions of all sentences lie one after
the other in one axis: padded to the width of their block, or packed without padding.

Shapes: see docs/architecture.md; F flat positions of one side, B sentences, T positions of a padded sentence.
"""

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from nmt.text.subword import PAD


@dataclass(frozen=True)
class Block:
    """Consecutive sentences that are padded to the same width; `padded` says whether any of them is shorter."""

    sentences: int
    width: int
    padded: bool


@dataclass(frozen=True)
class Layout:
    """How the sentences of one side of a batch lie in its flat axis F.

    Attributes:
        positions_F: the position of each flat position within its sentence, from 0.
        lengths_B: the number of tokens of each sentence.
        longest: the largest number of positions of a sentence, padding included.
        blocks: the padded blocks, in order; None if the sentences are packed.
    """

    positions_F: Tensor
    lengths_B: Tensor
    longest: int
    blocks: tuple[Block, ...] | None

    @classmethod
    def of_padded(cls, ids_BT: Tensor) -> Self:
        """Returns the layout of `ids_BT.flatten()`. Sentences end with PAD if they are shorter than T."""
        sentences, width = ids_BT.shape
        lengths_B = (ids_BT != PAD).sum(1)
        positions_F = torch.arange(width, device=ids_BT.device).repeat(sentences)
        block = Block(sentences, width, padded=bool((lengths_B < width).any()))
        return cls(positions_F, lengths_B, width, (block,))

    def to(self, device: torch.device) -> Self:
        """Returns the layout with its tensors on the device."""
        return replace(self, positions_F=moved(self.positions_F, device), lengths_B=moved(self.lengths_B, device))


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """Returns the tensor on the device. A GPU copies from pinned memory without making the CPU wait."""
    return tensor.to(device) if device.type == "cpu" else tensor.pin_memory().to(device, non_blocking=True)
