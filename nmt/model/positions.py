"""Position encodings (paper §3.5): sinusoids, or encodings that are learned.

Shapes: see docs/architecture.md; F flat positions of either side, D d_model.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.config import ModelConfig
from nmt.errors import NmtError
from nmt.model.masks import bound_on


def sinusoids(length: int, config: ModelConfig) -> Tensor:
    """Returns the encodings of the first positions, (length, d_model).

    PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), and PE(pos, 2i+1) is the cosine of the same. In fairseq, the exponent
    is 2i/(d_model - 2), positions begin with 2, the id of its PAD plus one, and angles are computed in 32 bits.
    """
    fairseq = config.sinusoids == "fairseq"
    first, dtype = (2, torch.float32) if fairseq else (0, torch.float64)
    divisor = config.d_model - 2 if fairseq else config.d_model
    with torch.device("cpu"):  # no checkpoint has them, so they are computed even for a model on the meta device
        frequencies = torch.exp(torch.arange(0, config.d_model, 2, dtype=dtype) * (-math.log(10000.0) / divisor))
        angles = torch.arange(first, first + length, dtype=dtype)[:, None] * frequencies
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1).float()


class SinusoidalPositions(nn.Module):
    """Looks up sinusoids by position. The table grows when a longer sentence comes."""

    table: Tensor

    def __init__(self, config: ModelConfig, length: int = 512) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("table", sinusoids(length, config), persistent=False)

    def forward(self, positions_F: Tensor, longest: int) -> Tensor:
        """Returns the encodings FD of `positions_F`, all of them below `longest`."""
        # The size is rounded up, because a recorded CUDA graph must not see another table.
        if bound_on(longest) > len(self.table):
            self.table = sinusoids(bound_on(longest), self.config).to(self.table)
        return self.table[positions_F]


class LearnedPositions(nn.Module):
    """Looks up learned encodings by position (paper Table 3, row E). Longer sentences are an error."""

    def __init__(self, d_model: int, length: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(length, d_model))
        nn.init.normal_(self.table, std=d_model**-0.5)

    def forward(self, positions_F: Tensor, longest: int) -> Tensor:
        """Returns the encodings FD of `positions_F`, all of them below `longest`."""
        if longest > len(self.table):
            raise NmtError(
                f"a sentence has {longest} positions, but the model has learned {len(self.table)} only; shorten it"
            )
        return F.embedding(positions_F, self.table)
