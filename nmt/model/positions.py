"""Position encodings (paper §3.5)."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.errors import NmtError


def sinusoids(length: int, d_model: int) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos of the same; (length, d_model), fp32."""
    with torch.device("cpu"):  # even for a model that is made on torch's meta device
        frequencies = torch.exp(torch.arange(0, d_model, 2, dtype=torch.float64) * (-math.log(10000.0) / d_model))
        angles = torch.arange(length, dtype=torch.float64)[:, None] * frequencies
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1).float()


class SinusoidalPositions(nn.Module):
    """Looks up encodings by position; the table grows to whatever position is asked for."""

    table_LD: Tensor

    def __init__(self, d_model: int, length: int = 512) -> None:
        super().__init__()
        self.register_buffer("table_LD", sinusoids(length, d_model), persistent=False)

    def forward(self, positions_N: Tensor, longest: int) -> Tensor:
        """Encodings (N, d_model) of `positions_N`, all of them below `longest`."""
        if longest > len(self.table_LD):
            grown = sinusoids(2 * longest, self.table_LD.shape[1])
            self.table_LD = grown.to(self.table_LD)
        return self.table_LD[positions_N]


class LearnedPositions(nn.Module):
    """Looks up learned encodings by position (paper Table 3, row E); there are none beyond those trained."""

    def __init__(self, d_model: int, length: int) -> None:
        super().__init__()
        self.table_LD = nn.Parameter(torch.empty(length, d_model))
        nn.init.normal_(self.table_LD, std=d_model**-0.5)

    def forward(self, positions_N: Tensor, longest: int) -> Tensor:
        """Encodings (N, d_model) of `positions_N`, all of them below `longest`.

        Raises:
            NmtError: `longest` is more than there are.
        """
        if longest > len(self.table_LD):
            raise NmtError(f"a sentence has {longest} positions, but the model has learned {len(self.table_LD)} only")
        return F.embedding(positions_N, self.table_LD)
