"""Attention of queries over keys and values (paper §3.2): matrix products, torch's kernels, or additive.

Shapes: see docs/architecture.md.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.config import ModelConfig
from nmt.model.masks import BlockMask, Mask, PackedMask

# Attention as batched matrix products: training on CPUs, and short sentences without gradients.

# torch's softmax does not vectorise shorter rows, and takes ten times as long.
_VECTOR = 16


def product_attention(
    q_BHQK: Tensor, k_BHSK: Tensor, v_BHSU: Tensor, bias: Tensor | None, scale: float, dropout: float
) -> Tensor:
    """Returns Dropout(softmax(scale · q kᵀ + bias)) v, BHQU. Scores and softmax are fp32 or wider."""
    with torch.autocast("cpu", enabled=False):
        if torch.is_grad_enabled() or dropout:
            return _ProductAttention.apply(q_BHQK, k_BHSK, v_BHSU, bias, scale, dropout)
        q, k, v = map(widened, (q_BHQK, k_BHSK, v_BHSU))
        scores = _scores(q, k, bias, scale)
        weights = scores.softmax(-1) if scores.shape[-1] >= _VECTOR else _softmax_(scores)
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

    Training uses it for long rows, too. torch's softmax rounds differently, so a training that began with this function
    would get other numbers when it is resumed.
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


# Up to this many scores of a sentence and head, batched products are faster on a CPU than torch's function.
_SMALL = 4096


class DotProduct(nn.Module):
    """Dropout(softmax(q kᵀ / √d_k + bias)) v (paper §3.2.1), or without the division by √d_k."""

    def __init__(self, d_k: int, dropout: float, *, scaled: bool) -> None:
        super().__init__()
        self.dropout = dropout
        self.scale = d_k**-0.5 if scaled else 1.0

    def forward(self, q_BHQK: Tensor, k_BHSK: Tensor, v_BHSU: Tensor, bias: Tensor | None = None) -> Tensor:
        """Returns the attended values, BHQU."""
        dropout = self.dropout if self.training else 0.0
        on_cpu = q_BHQK.device.type == "cpu"
        if on_cpu and (torch.is_grad_enabled() or q_BHQK.shape[2] * k_BHSK.shape[2] <= _SMALL):
            return product_attention(q_BHQK, k_BHSK, v_BHSU, bias, self.scale, dropout)
        if not on_cpu:
            mask = None if bias is None else bias.to(q_BHQK.dtype)
            return F.scaled_dot_product_attention(q_BHQK, k_BHSK, v_BHSU, mask, dropout, scale=self.scale)
        q, k, v = map(widened, (q_BHQK, k_BHSK, v_BHSU))
        mask = None if bias is None else bias.to(q.dtype)
        with torch.autocast("cpu", enabled=False):
            return F.scaled_dot_product_attention(q, k, v, mask, dropout, scale=self.scale).to(v_BHSU.dtype)


class Additive(nn.Module):
    """Dropout(softmax(w · tanh(q + k) + bias)) v.

    The scores are a feed-forward network with one hidden layer, whose first matrices are W_Q and W_K (Bahdanau et al.
    2015, arXiv:1409.0473; the paper's §3.2.1). It is slow, because each score takes d_k numbers.
    """

    def __init__(self, heads: int, d_k: int, dropout: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.direction_HK = nn.Parameter(torch.empty(heads, d_k))
        nn.init.normal_(self.direction_HK, std=d_k**-0.5)

    def forward(self, q_BHQK: Tensor, k_BHSK: Tensor, v_BHSU: Tensor, bias: Tensor | None = None) -> Tensor:
        """Returns the attended values, BHQU."""
        hidden_BHQSK = torch.tanh(q_BHQK[:, :, :, None] + k_BHSK[:, :, None])
        scores = torch.einsum("bhqsk,hk->bhqs", hidden_BHQSK, self.direction_HK.to(hidden_BHQSK.dtype))
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        weights = (scores if bias is None else scores + bias).softmax(-1)
        return self.dropout(weights).to(v_BHSU.dtype) @ v_BHSU


AttentionFunction = DotProduct | Additive


def attention_function(config: ModelConfig) -> AttentionFunction:
    """Returns the attention function that --attention names."""
    if config.attention == "additive":
        return Additive(config.heads, config.d_k, config.attention_dropout)
    return DotProduct(config.d_k, config.attention_dropout, scaled=config.attention == "scaled-dot-product")


def attend(q_FHK: Tensor, k_GHK: Tensor, v_GHU: Tensor, mask: Mask, function: AttentionFunction) -> Tensor:
    """Returns the attended values of all sentences, FHU; 0 at positions that belong to no sentence."""
    if isinstance(mask, PackedMask):
        assert isinstance(function, DotProduct)
        return mask.attend(q_FHK, k_GHK, v_GHU, function.scale, function.dropout if function.training else 0.0)
    outputs = []
    for block, q_BHQK, k_BHSK, v_BHSU in padded_blocks(mask, q_FHK, k_GHK, v_GHU):
        if block.window is None:
            attended_BHQU = function(q_BHQK, k_BHSK, v_BHSU, block.bias)
        else:
            attended_BHQU = block.window.attend(q_BHQK, k_BHSK, v_BHSU, function)
        outputs.append(attended_BHQU.transpose(1, 2).flatten(0, 1))
    if (rest := len(q_FHK) - sum(map(len, outputs))) > 0:
        outputs.append(outputs[0].new_zeros(rest, *outputs[0].shape[1:]))
    return torch.cat(outputs)


def padded_blocks(mask: tuple[BlockMask, ...], q_FHK: Tensor, *of_keys_GH: Tensor) -> Iterator[tuple[Any, ...]]:
    """Yields the mask of each block, its queries BHQK, and what belongs to its keys (keys and values), BHS and more."""
    queries, keys = [b.sentences * b.queries for b in mask], [b.sentences * b.keys for b in mask]
    flat = (_split(q_FHK, queries), *(_split(x_GH, keys) for x_GH in of_keys_GH))
    for block, *parts in zip(mask, *flat, strict=True):
        yield block, *(x.unflatten(0, (block.sentences, -1)).transpose(1, 2) for x in parts)


def _split(x_F: Tensor, lengths: Sequence[int]) -> Sequence[Tensor]:
    """Returns parts of these lengths without the rest. Unlike slices, they have one gradient, which is concatenated."""
    return x_F.split([*lengths, len(x_F) - sum(lengths)])[:-1]


# Dropout, of attention weights and of other tensors


def random_mask(shape: torch.Size, probability: float) -> tuple[Tensor, float]:
    """Returns a mask on the CPU, 1 for numbers to keep and 0 for numbers to drop, and the factor that keeps the mean.

    The mask is cut from random 16-bit numbers, because torch draws a CPU mask one element at a time. The probability is
    rounded to a multiple of 2^-16, and the factor accounts for the rounding.
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
