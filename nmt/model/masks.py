"""Who sees whom: the biases that are added to attention's scores, 0 or −∞, and attention to a neighbourhood alone.

Shapes: B sentences, Q query positions, S key positions, H heads, K d_k, U d_v; of a window, N blocks of C queries, each
with the same W keys around it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

# Attention to a neighbourhood of r is cut into blocks where sentences are wider than so many times r; before, masking
# the whole is less work.
_WORTH_CUTTING = 3


def visible_bias(visible: Tensor) -> Tensor:
    """The bias that hides what is False."""
    return torch.zeros(visible.shape, device=visible.device).masked_fill_(~visible, -torch.inf)


def key_padding_bias(lengths_B: Tensor, width: int) -> Tensor:
    """The bias B11S that hides padding."""
    return visible_bias(torch.arange(width, device=lengths_B.device) < lengths_B[:, None])[:, None, None]


def causal_bias(width: int, device: torch.device) -> Tensor:
    """The bias QS that hides the future."""
    return torch.full((width, width), -torch.inf, device=device).triu_(1)


def neighbours(lengths_B: Tensor, width: int, size: int, *, causal: bool) -> tuple[Tensor, Tensor]:
    """The keys that each query sees, from the first up to before the last, both BQ.

    Those are the `size` positions nearest to it that it may see (paper §4): of an even number the farther one comes
    before it, and at the ends of a sentence the neighbourhood lies to one side.
    """
    positions_BQ = torch.arange(width, device=lengths_B.device).expand(len(lengths_B), -1)
    if causal:
        return (positions_BQ - size + 1).clamp(min=0), positions_BQ + 1
    first_BQ = torch.minimum(positions_BQ - size // 2, lengths_B[:, None] - size).clamp(min=0)
    return first_BQ, torch.minimum(first_BQ + size, lengths_B[:, None])


@dataclass(frozen=True)
class Window:
    """Attention to neighbourhoods, block by block of queries, so that its cost grows with Q and not with Q².

    Attributes:
        before: keys before a block's first query that the block sees.
        bias: BN1CW, hides what of the block's keys a query may not see.
    """

    before: int
    bias_BN1CW: Tensor

    @classmethod
    def of(cls, first_BQ: Tensor, last_BQ: Tensor, size: int) -> Window:
        """For queries that see `size` keys at most, from the first up to before the last; see `neighbours`."""
        blocks = -(-first_BQ.shape[1] // size)
        rest = blocks * size - first_BQ.shape[1]
        first, last = (F.pad(x, (0, rest)).unflatten(1, (blocks, size))[..., None] for x in (first_BQ, last_BQ))
        before, after = size - 1, (size - 1) // 2
        starts_N = torch.arange(blocks, device=first.device) * size - before
        keys_N1W = starts_N[:, None, None] + torch.arange(before + size + after, device=first.device)
        visible_BNCW = (keys_N1W >= first) & (keys_N1W < last)
        visible_BNCW |= ~visible_BNCW.any(-1, keepdim=True)  # padding, which must not end as 0 / 0
        return cls(before, visible_bias(visible_BNCW)[:, :, None])

    def attend(self, q_BHQK: Tensor, k_BHQK: Tensor, v_BHQU: Tensor, function: Callable[..., Tensor]) -> Tensor:
        """`function(q, k, v, bias)` of every block, as BHQU."""
        sentences, width = q_BHQK.shape[0], q_BHQK.shape[2]
        blocks, _, size, keys = self.bias_BN1CW.shape[1:]
        q = F.pad(q_BHQK, (0, 0, 0, blocks * size - width)).unflatten(2, (blocks, size)).transpose(1, 2)
        behind = (blocks - 1) * size + keys - self.before - width
        k, v = (
            F.pad(x, (0, 0, self.before, behind)).unfold(2, keys, size).permute(0, 2, 1, 4, 3).flatten(0, 1)
            for x in (k_BHQK, v_BHQU)
        )
        bias = self.bias_BN1CW.expand(sentences, -1, -1, -1, -1).flatten(0, 1)
        attended = function(q.flatten(0, 1), k, v, bias)
        return attended.unflatten(0, (sentences, blocks)).transpose(1, 2).flatten(2, 3)[:, :, :width]


def restricted(lengths_B: Tensor, width: int, size: int, *, causal: bool) -> tuple[Tensor, None] | tuple[None, Window]:
    """Attention to neighbourhoods of `size` as a bias, or where that is less work, in blocks."""
    first_BQ, last_BQ = neighbours(lengths_B, width, size, causal=causal)
    if width > _WORTH_CUTTING * size:
        return None, Window.of(first_BQ, last_BQ, size)
    positions_S = torch.arange(width, device=first_BQ.device)
    visible_BQS = (positions_S >= first_BQ[..., None]) & (positions_S < last_BQ[..., None])
    return visible_bias(visible_BQS)[:, None], None
