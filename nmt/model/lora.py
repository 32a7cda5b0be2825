"""What a model has in place of its layers when only small parts of it learn.

`LowRankLinear` adds a product of two small matrices to a frozen matrix (Hu et al. 2021, arXiv:2106.09685).
`FrozenTable` holds embeddings, of which some rows may learn.

Shapes: see docs/architecture.md; F flat positions, D inputs, V pieces, X rows that learn.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.errors import NmtError
from nmt.model.cpu_kernels import Linear, linear
from nmt.model.device import product_dtype


class _LowRankProduct(torch.autograd.Function):
    """x (W + B A)ᵀ + b, which gives x, A and B their gradients.

    W may have another type than x. Then it is converted twice, so that no copy stays in memory for the backward pass.
    """

    @staticmethod
    def forward(
        ctx: Any, x_FD: Tensor, weight: Tensor, bias: Tensor | None, down: Tensor, up: Tensor, rows: tuple[int, ...]
    ) -> Tensor:
        ctx.rows, dtype = rows, x_FD.dtype
        down, up = down.to(dtype), up.to(dtype)
        output, inner = linear(x_FD, weight.to(dtype), None if bias is None else bias.to(dtype)), x_FD @ down.T
        parts = zip(output.split(rows, -1), inner.split(up.shape[1], -1), up.split(rows), strict=True)
        for output_part, inner_part, b in parts:
            output_part.addmm_(inner_part, b.T)
        ctx.save_for_backward(x_FD, weight, down, up, inner)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x_FD, weight, down, up, inner = ctx.saved_tensors
        gradient = gradients[0].to(x_FD.dtype)
        parts = gradient.split(ctx.rows, -1)
        grad_up = torch.cat([g.T @ h for g, h in zip(parts, inner.split(up.shape[1], -1), strict=True)])
        grad_inner = torch.cat([g @ b for g, b in zip(parts, up.split(ctx.rows), strict=True)], -1)
        grad_x_FD = gradient @ weight.to(gradient.dtype)
        return grad_x_FD.addmm_(grad_inner, down), None, None, grad_inner.T @ x_FD, grad_up, None


class LowRankLinear(Linear):
    """x (W + B A)ᵀ + b, of which only A and B learn. Matrices that are stored as one weight have an A and a B each.

    A (`down`) starts at random, and B (`up`) at 0, so that the first output is that of W.
    """

    def __init__(self, layer: Linear, rank: int) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features, self.rows = layer.in_features, layer.out_features, layer.rows
        self.weight, self.bias, self.rank = layer.weight, layer.bias, rank
        self.down = nn.Parameter(torch.empty(len(self.rows) * rank, self.in_features))
        self.up = nn.Parameter(torch.zeros(self.out_features, rank))
        nn.init.kaiming_uniform_(self.down, a=5**0.5)

    def forward(self, input: Tensor) -> Tensor:
        """Returns the product of the input FD, with the bias if there is one."""
        x_FD = input.to(product_dtype(input))
        return _LowRankProduct.apply(x_FD, self.weight, self.bias, self.down, self.up, self.rows)


def update_of(down: Tensor, up: Tensor, rows: tuple[int, ...]) -> Tensor:
    """Returns B A, the update of the matrices that are stored as one weight, each with so many `rows`."""
    return torch.cat([b @ a for b, a in zip(up.split(rows), down.split(up.shape[1]), strict=True)])


def add_low_rank(model: nn.Module, rank: int) -> None:
    """Gives every linear layer of a model low-rank updates; raises NmtError if `rank` is too large for one of them."""
    layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, Linear)}
    most, narrowest = min((min(layer.in_features, *layer.rows), name) for name, layer in layers.items())
    if rank > most:
        raise NmtError(f"--lora {rank} is more than {most}, the rank of {narrowest}; give at most {most}")
    for name, layer in layers.items():
        parent, _, own_name = name.rpartition(".")
        setattr(model.get_submodule(parent), own_name, LowRankLinear(layer, rank))


class FrozenTable(nn.Module):
    """Embeddings, of which the rows `rows_X` learn and all others are frozen.

    Attributes:
        weight: all embeddings VD. Rows that learn are copied to it whenever embeddings are looked up, so that the
            softmax, which follows, has them.
        added: the rows that learn, XD, in fp32; None if there are none.
    """

    rows_X: Tensor
    indices_V: Tensor
    frozen_sum_D: Tensor

    def __init__(self, weight_VD: Tensor, rows_X: Tensor, added_XD: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight_VD, requires_grad=False)
        self.added = nn.Parameter(added_XD) if len(rows_X) else None
        self.weight.data[rows_X] = 0
        frozen_sum_D = torch.stack([part.float().sum(0) for part in weight_VD.split(2**14)]).sum(0)
        indices_V = torch.full((len(weight_VD),), -1)
        indices_V[rows_X] = torch.arange(len(rows_X))
        self.register_buffer("frozen_sum_D", frozen_sum_D, persistent=False)
        self.register_buffer("rows_X", rows_X, persistent=False)
        self.register_buffer("indices_V", indices_V, persistent=False)

    def forward(self, ids_F: Tensor) -> Tensor:
        """Returns the embeddings FD in fp32."""
        x_FD = F.embedding(ids_F, self.weight).float()
        if self.added is None:
            return x_FD
        self.weight.detach()[self.rows_X] = self.added.detach().to(self.weight.dtype)
        indices_F1 = self.indices_V[ids_F][:, None]
        return torch.where(indices_F1 < 0, x_FD, F.embedding(indices_F1[:, 0].clamp(min=0), self.added))

    def mean(self) -> Tensor:
        """Returns the mean embedding D."""
        learned_D = 0 if self.added is None else self.added.sum(0)
        return (self.frozen_sum_D + learned_D) / len(self.weight)
