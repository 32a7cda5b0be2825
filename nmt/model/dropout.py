"""Dropout, with masks that a CPU draws quickly."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def random_mask(shape: torch.Size, probability: float) -> tuple[Tensor, float]:
    """Returns a mask of what to keep, on the CPU, and the factor that makes up for what is dropped.

    The mask is cut from random 16-bit numbers, because torch draws a CPU mask one element at a time. The probability is
    rounded to a multiple of 2^-16, and the factor accounts for the rounding.
    """
    dropped = round(probability * 65536)
    numbers = shape.numel()
    words = torch.empty((numbers + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    return words.view(torch.int16)[:numbers].view(shape) >= dropped - 32768, 65536 / (65536 - dropped)


class _MaskDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, probability: float) -> Tensor:
        keep, ctx.scale = random_mask(x.shape, probability)
        ctx.save_for_backward(keep)
        return (x * keep).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (keep,) = ctx.saved_tensors
        return (gradients[0] * keep).mul_(ctx.scale), None


class Dropout(nn.Module):
    """Sets numbers to 0 with the given probability in training, and scales the rest to keep the mean."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, x: Tensor) -> Tensor:
        """Returns a tensor of the shape of `x`; `x` itself outside training."""
        if not self.training or self.probability == 0:
            return x
        if x.device.type == "cpu":
            return _MaskDropout.apply(x, self.probability)
        return F.dropout(x, self.probability)
