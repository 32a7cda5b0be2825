"""Attention as batched matrix products: training on CPUs, and short sentences without gradients.

Shapes: see docs/architecture.md; B sentences, H heads, Q queries and S keys of a sentence, K d_k, U d_v.
"""

from typing import Any

import torch
from torch import Tensor

from nmt.model.dropout import random_mask

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

    Training takes it for rows of every length: another rounding would change the course of a training that is resumed.
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


def _dropped(x: Tensor, keep: Tensor | None, scale: float) -> Tensor:
    return x if keep is None else (x * keep).mul_(scale)


def widened(x_BHSK: Tensor) -> Tensor:
    """Returns the tensor in fp32 or wider, in a memory layout that batched products take without a copy."""
    dtype = torch.promote_types(x_BHSK.dtype, torch.float32)
    by_batch, by_head, by_position, _ = x_BHSK.stride()
    if x_BHSK.dtype == dtype and by_batch == x_BHSK.shape[1] * by_head and by_position == x_BHSK.shape[3]:
        return x_BHSK
    # `to` does not change the memory layout where the type stays.
    return x_BHSK.contiguous() if x_BHSK.dtype == dtype else x_BHSK.to(dtype, memory_format=torch.contiguous_format)
