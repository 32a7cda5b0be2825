"""The simpler simple recurrent unit (SSRU) of a decoder: a state in place of self-attention.

Kim et al. 2019, "From Research to Production and Back: Ludicrously Fast Neural Machine Translation", section 2.2.
A state costs the same at every position, while self-attention reads all positions before.

Shapes: see docs/architecture.md; F flat positions, R rows of hypotheses, D d_model, W hypotheses a sentence.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.model.cache import LayerCache
from nmt.model.cpu_kernels import Linear
from nmt.model.masks import Layout, bound_on


class Beginnings(NamedTuple):
    """Where the states of sentences begin, as a mask says it for attention.

    Attributes:
        first_F1: whether a flat position is the first one of its sentence.
        longest: a bound on the positions of a sentence.
    """

    first_F1: Tensor
    longest: int

    @classmethod
    def of(cls, layout: Layout) -> Beginnings:
        """Returns those of the sentences of a layout."""
        return cls((layout.positions_F == 0)[:, None], bound_on(layout.longest))


class SSRU(nn.Module):
    """relu(c_t) with c_t = f_t ⊙ c_(t-1) + (1 - f_t) ⊙ W x_t and f_t = σ(W_f x_t + b_f).

    Both matrices are stored as one. The state before the first position is zero.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.forget_candidate = Linear(d_model, d_model, d_model, bias=False)
        self.forget_bias = nn.Parameter(torch.zeros(d_model))
        nn.init.xavier_uniform_(self.forget_candidate.weight)

    def forward(self, x_FD: Tensor, _: None, mask: Beginnings, cache: LayerCache | None = None) -> Tensor:
        """Returns FD. With a cache, x has the newest position of each hypothesis, and their states are replaced."""
        forget_FD, candidate_FD = self.forget_candidate(x_FD).split(self.forget_candidate.rows, -1)
        # Not in bf16, because states are sums over all positions.
        dtype = torch.promote_types(forget_FD.dtype, torch.float32)
        forget_FD = (forget_FD.to(dtype) + self.forget_bias).sigmoid()
        input_FD = (1 - forget_FD) * candidate_FD
        with torch.autocast(x_FD.device.type, enabled=False):
            if cache is None:
                decay_FD = forget_FD.masked_fill(mask.first_F1, 0.0)
                return F.relu(_Recurrence.apply(decay_FD, input_FD, mask.longest)).to(x_FD.dtype)
            (state_BWD,) = cache.own
            state_RD = state_BWD.flatten(0, 1)
            hypotheses = len(state_RD)  # rows behind them are spare
            state_RD = torch.addcmul(input_FD, forget_FD, F.pad(state_RD, (0, 0, 0, len(x_FD) - hypotheses)))
            cache.own = (state_RD[:hypotheses].view_as(state_BWD),)
            return F.relu(state_RD).to(x_FD.dtype)


class _Recurrence(torch.autograd.Function):
    """c_t = decay_t ⊙ c_(t-1) + input_t along the flat axis. The decay of a sentence's first position is 0."""

    @staticmethod
    def forward(ctx: Any, decay_FD: Tensor, input_FD: Tensor, longest: int) -> Tensor:
        state_FD = _scan(decay_FD, input_FD, longest)
        ctx.save_for_backward(decay_FD, state_FD)
        ctx.longest = longest
        return state_FD

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        (gradient_FD,) = gradients
        decay_FD, state_FD = ctx.saved_tensors
        # The gradient of a state flows back from the next position, so it is the same recurrence from the end.
        following_FD = F.pad(decay_FD[1:], (0, 0, 0, 1)).flip(0)
        gradient_FD = _scan(following_FD, gradient_FD.flip(0), ctx.longest).flip(0)
        return gradient_FD * F.pad(state_FD[:-1], (0, 0, 1, 0)), gradient_FD, None


def _scan(decay_FD: Tensor, input_FD: Tensor, longest: int) -> Tensor:
    """Returns the states FD of all positions, in log2(longest) steps of which each doubles how far a state looks back.

    Hillis and Steele 1986, "Data parallel algorithms". Sentences stay apart, because decays of 0 separate them.
    """
    state_FD, reach = input_FD, 1
    while reach < min(longest, len(input_FD)):
        state_FD = torch.cat((state_FD[:reach], torch.addcmul(state_FD[reach:], decay_FD[reach:], state_FD[:-reach])))
        decay_FD = torch.cat((decay_FD[:reach], decay_FD[reach:] * decay_FD[:-reach]))
        reach *= 2
    return state_FD
