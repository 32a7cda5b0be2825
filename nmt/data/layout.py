"""How the sentences of a batch lie in one flat axis.

Everything in the model but attention works on single positions, so the positions of all sentences lie one after the
other: padded to the width of their block, or packed without padding.
"""

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from nmt.text.subword import PAD


@dataclass(frozen=True)
class Block:
    """Neighbouring sentences that are padded to one width; `padded` says whether any is shorter."""

    sentences: int
    width: int
    padded: bool


@dataclass(frozen=True)
class Layout:
    """How the sentences of one side of a batch lie in its flat axis F.

    Attributes:
        positions_F: place of each flat position within its sentence, from 0.
        lengths_B: tokens of each sentence.
        longest: no sentence has more positions than this, padding included.
        blocks: the padded blocks, in order; None if the sentences are packed.
    """

    positions_F: Tensor
    lengths_B: Tensor
    longest: int
    blocks: tuple[Block, ...] | None

    @classmethod
    def of_padded(cls, ids_BT: Tensor) -> Self:
        """Returns the layout of `ids_BT.flatten()`, where PAD fills the ends of the sentences."""
        sentences, width = ids_BT.shape
        lengths_B = (ids_BT != PAD).sum(1)
        positions_F = torch.arange(width, device=ids_BT.device).repeat(sentences)
        return cls(positions_F, lengths_B, width, (Block(sentences, width, bool((lengths_B < width).any())),))

    def to(self, device: torch.device) -> Self:
        """Returns the layout with its tensors on the device."""
        return replace(self, positions_F=moved(self.positions_F, device), lengths_B=moved(self.lengths_B, device))


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """Returns the tensor on the device. A GPU copies pinned memory while the CPU goes on."""
    return tensor.to(device) if device.type == "cpu" else tensor.pin_memory().to(device, non_blocking=True)
