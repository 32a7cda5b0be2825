"""Operations that are faster on a CPU than torch's: attention, dropout and large matrix products.

`DotProduct` of `nmt.model.attention` chooses between `product_attention` and torch's function. `Dropout` and
`Linear` are torch's own on other devices. `PackedLinear` takes the place of `Linear` in translation in bfloat16.

Shapes: see docs/architecture.md.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# Attention as batched matrix products: training on CPUs, and short sentences without gradients.


def product_attention(
    q_BHQK: Tensor, k_BHSK: Tensor, v_BHSU: Tensor, bias: Tensor | None, scale: float, dropout: float
) -> Tensor:
    """Returns Dropout(softmax(scale · q kᵀ + bias)) v, BHQU. Scores and softmax are fp32 or wider."""
    with torch.autocast("cpu", enabled=False):
        if torch.is_grad_enabled() or dropout:
            return _ProductAttention.apply(q_BHQK, k_BHSK, v_BHSU, bias, scale, dropout)
        q, k, v = map(widened, (q_BHQK, k_BHSK, v_BHSU))
        scores = _scores(q, k, bias, scale)
        # torch's softmax does not vectorise short rows, and takes five times as long.
        weights = scores.softmax(-1) if scores.shape[-1] >= 16 else _softmax_(scores)
        return (weights @ v).to(v_BHSU.dtype)


def _scores(q_BHQK: Tensor, k_BHSK: Tensor, bias: Tensor | None, scale: float) -> Tensor:
    """Returns scale · q kᵀ + bias, BHQS."""
    scores = q_BHQK @ k_BHSK.transpose(-1, -2)
    scores *= scale
    if bias is not None:
        scores += bias
    return scores


def _softmax_(scores: Tensor) -> Tensor:
    """Returns the softmax over the last dimension, in place.

    Training uses it for rows of all lengths, which costs 1 % of its time. In translation, it would cost 8 %.
    """
    scores -= scores.amax(-1, keepdim=True)
    scores.exp_()
    scores /= scores.sum(-1, keepdim=True)
    return scores


class _ProductAttention(torch.autograd.Function):
    """Several times faster on CPUs than `scaled_dot_product_attention` and its backward pass.

    bfloat16 would gain nothing: oneDNN compiles a kernel of a megabyte for every new shape, and shapes keep changing.
    """

    @staticmethod
    def forward(
        ctx: Any, q_BHQK: Tensor, k_BHSK: Tensor, v_BHSU: Tensor, bias: Tensor | None, scale: float, dropout: float
    ) -> Tensor:
        q, k, v = map(widened, (q_BHQK, k_BHSK, v_BHSU))
        weights = _softmax_(_scores(q, k, bias, scale))
        keep, ctx.keep_scale = random_mask(weights.shape, dropout) if dropout else (None, 1.0)
        ctx.scale = scale
        ctx.save_for_backward(q_BHQK, k_BHSK, v_BHSU, weights, keep)
        return (_dropped(weights, keep, ctx.keep_scale) @ v).to(v_BHSU.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        *inputs, weights, keep = ctx.saved_tensors
        q, k, v = map(widened, inputs)
        grad_out = widened(gradients[0])
        grad_v = _dropped(weights, keep, ctx.keep_scale).transpose(-1, -2) @ grad_out
        grad_scores = _dropped(grad_out @ v.transpose(-1, -2), keep, ctx.keep_scale)
        grad_scores -= (grad_scores * weights).sum(-1, keepdim=True)
        grad_scores *= weights
        grad_scores *= ctx.scale
        dtype = gradients[0].dtype
        grad_k = grad_scores.transpose(-1, -2) @ q
        assert not ctx.needs_input_grad[3], "a bias that is learned needs its gradient here"
        return (grad_scores @ k).to(dtype), grad_k.to(dtype), grad_v.to(dtype), None, None, None


def widened(x_BHSK: Tensor) -> Tensor:
    """Returns the tensor in fp32 or wider, in a memory layout that batched products take without a copy."""
    dtype = torch.promote_types(x_BHSK.dtype, torch.float32)
    by_batch, by_head, by_position, _ = x_BHSK.stride()
    if x_BHSK.dtype == dtype and by_batch == x_BHSK.shape[1] * by_head and by_position == x_BHSK.shape[3]:
        return x_BHSK
    # `to` does not change the memory layout where the type stays.
    return x_BHSK.contiguous() if x_BHSK.dtype == dtype else x_BHSK.to(dtype, memory_format=torch.contiguous_format)


# Dropout, of attention weights and of other tensors


def random_mask(shape: torch.Size, probability: float) -> tuple[Tensor, float]:
    """Returns a mask on the CPU, 1 for numbers to keep and 0 for numbers to drop, and the factor that keeps the mean.

    The mask is cut from random 16-bit numbers, because torch draws a CPU mask one element at a time. The
    probability is rounded to a multiple of 2^-16, and the factor accounts for the rounding.
    """
    dropped = min(round(probability * 65536), 65535)
    numbers = shape.numel()
    words = torch.empty((numbers + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    # torch compares in place, and converts from uint8, several times as fast as it makes and converts booleans.
    keep = words.view(torch.int16)[:numbers].view(shape).ge_(dropped - 32768)
    return keep.to(torch.uint8), 65536 / (65536 - dropped)


def _dropped(x: Tensor, keep: Tensor | None, scale: float) -> Tensor:
    return x if keep is None else keep.to(x.dtype).mul_(x).mul_(scale)


class _MaskDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, probability: float) -> Tensor:
        keep, ctx.scale = random_mask(x.shape, probability)
        ctx.save_for_backward(keep)
        return _dropped(x, keep, ctx.scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (keep,) = ctx.saved_tensors
        return _dropped(gradients[0], keep, ctx.scale), None


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


# Matrix products


def linear(x_FD: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Returns x · weightᵀ + bias as `torch.nn.functional.linear` does, but faster where gradients are not needed."""
    on_cpu_in_fp32 = x_FD.dtype == torch.float32 and x_FD.device.type == "cpu" and not torch.is_autocast_enabled("cpu")
    # The product takes longer than oneDNN takes to prepare a kernel, which it does for every new shape.
    is_large = x_FD.numel() * len(weight) >= 2**26
    if torch.is_grad_enabled() or not is_large or not on_cpu_in_fp32 or not prefers_onednn():
        return F.linear(x_FD, weight, bias)
    return torch.ops.mkldnn._linear_pointwise(x_FD, weight, bias, "none", [], "")


@cache
def prefers_onednn() -> bool:
    """Returns whether oneDNN multiplies matrices in fp32 faster than MKL, which torch uses: on AMD's processors."""
    capabilities: Mapping[str, Any] = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return bool(capabilities.get("sse4a")) and torch.backends.mkldnn.is_available()


class Linear(nn.Linear):
    """`torch.nn.Linear` by `linear`. Its matrix may hold several matrices, one below the other, of so many `rows`."""

    def __init__(self, inputs: int, *rows: int, bias: bool = True) -> None:
        super().__init__(inputs, sum(rows), bias)
        self.rows = rows

    def forward(self, input: Tensor) -> Tensor:
        """Returns the product of the input FD, with a bias if there is one."""
        return linear(input, self.weight, self.bias)


# Matrices of more rows than the first number are multiplied by so many rows at a time: such products stay in the cache.
_MANY_ROWS, _ROWS = 2**16, 2**14


class PackedLinear(nn.Module):
    """`Linear` in bfloat16 without gradients, with the same numbers as torch's, but faster.

    The matrix lies in memory as oneDNN reads it, which otherwise rearranges it for every product. The product of a
    very large matrix is in fp32, in memory that the next product overwrites: for new memory, the system takes half
    as long as the product.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, rows: tuple[int, ...]) -> None:
        super().__init__()
        self.rows = rows
        step = _ROWS if len(weight) > _MANY_ROWS else len(weight)
        pack = torch.ops.mkldnn._reorder_linear_weight
        self._weights = [pack(rows.bfloat16(), 256) for rows in weight.detach().split(step)]  # for about 256 positions
        self._biases = [None] * len(self._weights) if bias is None else bias.detach().bfloat16().split(step)
        self._memory = torch.empty(0)

    def forward(self, input: Tensor) -> Tensor:
        """Returns the product of the input FD."""
        x_FD = input.bfloat16()
        blocks = zip(self._weights, self._biases, strict=True)
        products = (torch.ops.mkldnn._linear_pointwise(x_FD, *block, "none", [], "") for block in blocks)
        if len(self._weights) == 1:
            return next(products)
        if len(self._memory) < len(x_FD):
            self._memory = torch.empty(len(x_FD), sum(self.rows))
        output = self._memory[: len(x_FD)]
        for columns, product in zip(output.split(_ROWS, 1), products, strict=True):
            columns.copy_(product)
        return output
