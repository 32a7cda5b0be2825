"""Self-attention restricted to a neighbourhood of r positions (paper §4, Table 1).

Shapes: see docs/architecture.md; B sentences, Q queries and S keys of a sentence, H heads, K d_k, U d_v. Queries are
cut into I blocks of J = r, each of which sees the same X keys.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


def neighbours(lengths_B: Tensor, width: int, size: int, *, causal: bool) -> tuple[Tensor, Tensor]:
    """Returns the first key that each query sees and the one after the last, both BQ.

    A query sees the `size` nearest positions. If `size` is even, the extra one lies before the query. At the ends of a
    sentence, and if `causal`, the neighbourhood lies to one side.
    """
    positions_BQ = torch.arange(width, device=lengths_B.device).expand(len(lengths_B), -1)
    if causal:
        return (positions_BQ - size + 1).clamp(min=0), positions_BQ + 1
    first_BQ = torch.minimum(positions_BQ - size // 2, lengths_B[:, None] - size).clamp(min=0)
    return first_BQ, torch.minimum(first_BQ + size, lengths_B[:, None])


@dataclass(frozen=True)
class Window:
    """Attention to neighbourhoods, one block of queries after the other, so that its cost grows with Q and not Q².

    Attributes:
        before: keys before a block's first query that the block sees.
        bias_BI1JX: hides those of a block's keys that a query must not see.
    """

    before: int
    bias_BI1JX: Tensor

    @classmethod
    def of(cls, first_BQ: Tensor, last_BQ: Tensor, size: int) -> Window:
        """Makes the blocks for queries that see at most `size` keys; `first_BQ`, `last_BQ` as in `neighbours`."""
        blocks = -(-first_BQ.shape[1] // size)
        rest = blocks * size - first_BQ.shape[1]
        first, last = (F.pad(x, (0, rest)).unflatten(1, (blocks, size))[..., None] for x in (first_BQ, last_BQ))
        before, after = size - 1, (size - 1) // 2
        starts_I = torch.arange(blocks, device=first.device) * size - before
        keys_I1X = starts_I[:, None, None] + torch.arange(before + size + after, device=first.device)
        visible_BIJX = (keys_I1X >= first) & (keys_I1X < last)
        visible_BIJX |= ~visible_BIJX.any(-1, keepdim=True)  # padding sees everything, because 0 / 0 is NaN
        return cls(before, visible_bias(visible_BIJX)[:, :, None])

    def attend(self, q_BHQK: Tensor, k_BHQK: Tensor, v_BHQU: Tensor, function: Callable[..., Tensor]) -> Tensor:
        """Returns `function(q, k, v, bias)` of all blocks, BHQU."""
        sentences, width = q_BHQK.shape[0], q_BHQK.shape[2]
        blocks, _, size, keys = self.bias_BI1JX.shape[1:]
        q = F.pad(q_BHQK, (0, 0, 0, blocks * size - width)).unflatten(2, (blocks, size)).transpose(1, 2)
        behind = (blocks - 1) * size + keys - self.before - width
        k, v = (
            F.pad(x, (0, 0, self.before, behind)).unfold(2, keys, size).permute(0, 2, 1, 4, 3).flatten(0, 1)
            for x in (k_BHQK, v_BHQU)
        )
        bias = self.bias_BI1JX.expand(sentences, -1, -1, -1, -1).flatten(0, 1)
        attended = function(q.flatten(0, 1), k, v, bias)
        return attended.unflatten(0, (sentences, blocks)).transpose(1, 2).flatten(2, 3)[:, :, :width]


def visible_bias(visible: Tensor) -> Tensor:
    """Returns the bias on attention scores that hides what is not visible: 0 where True, −∞ where False."""
    return torch.zeros(visible.shape, device=visible.device).masked_fill_(~visible, -torch.inf)
