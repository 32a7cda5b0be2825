"""Attention over packed sentences on a GPU, in Triton: exact attention by tiles (Dao 2023, arXiv:2307.08691).

A program computes one tile of a sentence and head. Tiles are small, because most sentences are short. The kernel
that torch has for packed sentences computes tiles of 128 × 128 scores, and takes several times as long.

Shapes: see docs/architecture.md; F flat query positions, G flat key positions, B sentences, H heads, K d_k.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_TILE = 32
_WARPS = 2
_LOG2_E = 1.4426950408889634


@triton.jit
def _part(x, start, end, first, row, head, d_k: tl.constexpr, TILE: tl.constexpr, D: tl.constexpr):  # type: ignore[no-untyped-def]
    """Returns pointers to rows `first` to `first + TILE` of a sentence and head, and which of their numbers exist.

    D is a power of 2, and d_k may be smaller.
    """
    rows, columns = start + first + tl.arange(0, TILE), tl.arange(0, D)
    pointers = x + rows.to(tl.int64)[:, None] * row + tl.program_id(1) * head + columns[None, :]
    return pointers, (rows < end)[:, None] & (columns < d_k)[None, :]


@triton.jit
def _load(x, start, end, first, row, head, d_k: tl.constexpr, TILE: tl.constexpr, D: tl.constexpr):  # type: ignore[no-untyped-def]
    """Returns the numbers of a part; 0 where there are none."""
    pointers, exists = _part(x, start, end, first, row, head, d_k, TILE, D)
    return tl.load(pointers, mask=exists, other=0.0)


@triton.jit
def _store(x, numbers, start, end, first, heads, d_k: tl.constexpr, TILE: tl.constexpr, D: tl.constexpr):  # type: ignore[no-untyped-def]
    """Writes a part of a contiguous tensor."""
    pointers, exists = _part(x, start, end, first, heads * d_k, d_k, d_k, TILE, D)
    tl.store(pointers, numbers.to(x.dtype.element_ty), mask=exists)


@triton.jit
def _bounds(query_starts, key_starts):  # type: ignore[no-untyped-def]
    """Returns where the queries and the keys of this program's sentence begin and end."""
    queries, keys = query_starts + tl.program_id(0), key_starts + tl.program_id(0)
    return tl.load(queries), tl.load(queries + 1), tl.load(keys), tl.load(keys + 1)


@triton.jit
def _weights(q, k, log_sum, first_query, first_key, queries, keys, scale, CAUSAL: tl.constexpr, TILE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Returns the attention weights of a tile."""
    i = first_query + tl.arange(0, TILE)[:, None]
    j = first_key + tl.arange(0, TILE)[None, :]
    seen = (i < queries) & (j < keys)
    if CAUSAL:
        seen = seen & (j <= i)
    return tl.where(seen, tl.exp2(tl.dot(q, tl.trans(k)) * scale - log_sum[:, None]), 0.0)


@triton.jit
def _dropped(numbers, seed, query_start, first_query, first_key, heads, DROPOUT: tl.constexpr, TILE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Returns a tile after dropout. A random number depends only on the seed, the query, the head and the key."""
    if DROPOUT > 0:
        rows = (query_start + first_query + tl.arange(0, TILE)).to(tl.int64) * heads + tl.program_id(1)
        counters = (rows[:, None] << 32) + first_key + tl.arange(0, TILE)[None, :]
        numbers = tl.where(tl.rand(tl.load(seed), counters) < DROPOUT, 0.0, numbers / (1 - DROPOUT))
    return numbers


@triton.jit
def _forward(  # type: ignore[no-untyped-def]
    q, k, v, out, log_sums, query_starts, key_starts, seed, scale,
    q_row, q_head, k_row, k_head, v_row, v_head, heads,
    CAUSAL: tl.constexpr, DROPOUT: tl.constexpr, TILE: tl.constexpr, d_k: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    head, first = tl.program_id(1), tl.program_id(2) * TILE
    query_start, query_end, key_start, key_end = _bounds(query_starts, key_starts)
    if first >= query_end - query_start:
        return
    i = first + tl.arange(0, TILE)
    q_tile = _load(q, query_start, query_end, first, q_row, q_head, d_k, TILE, D)
    largest = tl.full([TILE], float("-inf"), tl.float32)
    total = tl.zeros([TILE], tl.float32)
    sums = tl.zeros([TILE, D], tl.float32)
    keys = key_end - key_start
    last = tl.minimum(keys, first + TILE) if CAUSAL else keys
    for first_key in range(0, last, TILE):
        k_tile = _load(k, key_start, key_end, first_key, k_row, k_head, d_k, TILE, D)
        v_tile = _load(v, key_start, key_end, first_key, v_row, v_head, d_k, TILE, D)
        j = first_key + tl.arange(0, TILE)
        seen = (j < keys)[None, :]
        if CAUSAL:
            seen = seen & (j[None, :] <= i[:, None])
        scores = tl.where(seen, tl.dot(q_tile, tl.trans(k_tile)) * scale, float("-inf"))
        now_largest = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp2(scores - now_largest[:, None])
        fading = tl.exp2(largest - now_largest)
        total = total * fading + tl.sum(weights, 1)
        kept = _dropped(weights, seed, query_start, first, first_key, heads, DROPOUT, TILE)
        sums = sums * fading[:, None] + tl.dot(kept.to(v_tile.dtype), v_tile)
        largest = now_largest
    # A sentence without keys gets zeros.
    total = tl.where(total == 0.0, 1.0, total)
    largest = tl.where(largest == float("-inf"), 0.0, largest)
    _store(out, sums / total[:, None], query_start, query_end, first, heads, d_k, TILE, D)
    rows = (query_start + i).to(tl.int64)
    tl.store(log_sums + rows * heads + head, largest + tl.log2(total), mask=rows < query_end)


@triton.jit
def _row_terms(  # type: ignore[no-untyped-def]
    out, grad_tile, log_sums, start, end, first, heads, d_k: tl.constexpr, TILE: tl.constexpr, D: tl.constexpr
):
    """Returns, for each query of a tile, the weighted mean of the gradients of its weights, and its log₂ Σ exp."""
    out_tile = _load(out, start, end, first, heads * d_k, d_k, d_k, TILE, D)
    rows = start + first + tl.arange(0, TILE)
    log_sum = tl.load(log_sums + rows.to(tl.int64) * heads + tl.program_id(1), mask=rows < end, other=0.0)
    return tl.sum(out_tile.to(tl.float32) * grad_tile.to(tl.float32), 1), log_sum


@triton.jit
def _backward_keys(  # type: ignore[no-untyped-def]
    q, k, v, out, grad_out, log_sums, grad_k, grad_v, query_starts, key_starts, seed, scale, natural_scale,
    q_row, q_head, k_row, k_head, v_row, v_head, grad_row, grad_head, heads,
    CAUSAL: tl.constexpr, DROPOUT: tl.constexpr, TILE: tl.constexpr, d_k: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(2) * TILE
    query_start, query_end, key_start, key_end = _bounds(query_starts, key_starts)
    queries, keys = query_end - query_start, key_end - key_start
    if first >= keys:
        return
    k_tile = _load(k, key_start, key_end, first, k_row, k_head, d_k, TILE, D)
    v_tile = _load(v, key_start, key_end, first, v_row, v_head, d_k, TILE, D)
    sums_k = tl.zeros([TILE, D], tl.float32)
    sums_v = tl.zeros([TILE, D], tl.float32)
    begin = first if CAUSAL else 0
    for first_query in range(begin, queries, TILE):
        q_tile = _load(q, query_start, query_end, first_query, q_row, q_head, d_k, TILE, D)
        grad_tile = _load(grad_out, query_start, query_end, first_query, grad_row, grad_head, d_k, TILE, D)
        mean, log_sum = _row_terms(out, grad_tile, log_sums, query_start, query_end, first_query, heads, d_k, TILE, D)
        weights = _weights(q_tile, k_tile, log_sum, first_query, first, queries, keys, scale, CAUSAL, TILE)
        kept = _dropped(weights, seed, query_start, first_query, first, heads, DROPOUT, TILE)
        sums_v += tl.dot(tl.trans(kept.to(grad_tile.dtype)), grad_tile)
        grad_scores = kept * tl.dot(grad_tile, tl.trans(v_tile)) - weights * mean[:, None]
        sums_k += tl.dot(tl.trans(grad_scores.to(q_tile.dtype)), q_tile)
    _store(grad_k, sums_k * natural_scale, key_start, key_end, first, heads, d_k, TILE, D)
    _store(grad_v, sums_v, key_start, key_end, first, heads, d_k, TILE, D)


@triton.jit
def _backward_queries(  # type: ignore[no-untyped-def]
    q, k, v, out, grad_out, log_sums, grad_q, query_starts, key_starts, seed, scale, natural_scale,
    q_row, q_head, k_row, k_head, v_row, v_head, grad_row, grad_head, heads,
    CAUSAL: tl.constexpr, DROPOUT: tl.constexpr, TILE: tl.constexpr, d_k: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(2) * TILE
    query_start, query_end, key_start, key_end = _bounds(query_starts, key_starts)
    queries, keys = query_end - query_start, key_end - key_start
    if first >= queries:
        return
    q_tile = _load(q, query_start, query_end, first, q_row, q_head, d_k, TILE, D)
    grad_tile = _load(grad_out, query_start, query_end, first, grad_row, grad_head, d_k, TILE, D)
    mean, log_sum = _row_terms(out, grad_tile, log_sums, query_start, query_end, first, heads, d_k, TILE, D)
    sums_q = tl.zeros([TILE, D], tl.float32)
    last = tl.minimum(keys, first + TILE) if CAUSAL else keys
    for first_key in range(0, last, TILE):
        k_tile = _load(k, key_start, key_end, first_key, k_row, k_head, d_k, TILE, D)
        v_tile = _load(v, key_start, key_end, first_key, v_row, v_head, d_k, TILE, D)
        weights = _weights(q_tile, k_tile, log_sum, first, first_key, queries, keys, scale, CAUSAL, TILE)
        kept = _dropped(weights, seed, query_start, first, first_key, heads, DROPOUT, TILE)
        grad_scores = kept * tl.dot(grad_tile, tl.trans(v_tile)) - weights * mean[:, None]
        sums_q += tl.dot(grad_scores.to(k_tile.dtype), k_tile)
    _store(grad_q, sums_q * natural_scale, query_start, query_end, first, heads, d_k, TILE, D)


def _strides(*tensors_FHK: Tensor) -> list[int]:
    assert all(x.stride(2) == 1 for x in tensors_FHK)
    return [stride for x in tensors_FHK for stride in x.stride()[:2]]


def _width(d_k: int) -> int:
    """Returns the columns of a tile: a power of 2 that matrix units can multiply."""
    return max(16, triton.next_power_of_2(d_k))


def _grid(starts: Tensor, heads: int, longest: int) -> tuple[int, int, int]:
    return len(starts) - 1, heads, triton.cdiv(longest, _TILE)


@torch.library.custom_op("nmt::packed_attention", mutates_args={})
def attend_packed(
    q_FHK: Tensor, k_GHK: Tensor, v_GHK: Tensor, query_starts: Tensor, key_starts: Tensor, seed: Tensor,
    longest_query: int, longest_key: int, causal: bool, scale: float, dropout: float,  # noqa: ARG001 (for _backward)
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Returns Dropout(softmax(scale · q kᵀ)) v within the sentences, FHK, and log₂ Σ exp of the scores, FH.

    Args:
        query_starts, key_starts: where each sentence begins and the last one ends; int32, B + 1.
        seed: what the dropout depends on; int64, 1; not read without dropout.
        longest_query, longest_key: bounds on the positions of a sentence.
        causal: whether a query sees only the positions up to its own.
    """
    _, heads, d_k = q_FHK.shape
    out_FHK = torch.empty_like(q_FHK, memory_format=torch.contiguous_format)
    log_sums_FH = torch.empty(q_FHK.shape[:2], dtype=torch.float32, device=q_FHK.device)
    _forward[_grid(query_starts, heads, longest_query)](
        q_FHK, k_GHK, v_GHK, out_FHK, log_sums_FH, query_starts, key_starts, seed, scale * _LOG2_E,
        *_strides(q_FHK, k_GHK, v_GHK), heads, causal, dropout, _TILE, d_k, _width(d_k), num_warps=_WARPS,
    )  # fmt: skip
    return out_FHK, log_sums_FH


@torch.library.custom_op("nmt::packed_attention_backward", mutates_args={})
def _backward(
    grad_FHK: Tensor, q_FHK: Tensor, k_GHK: Tensor, v_GHK: Tensor, out_FHK: Tensor, log_sums_FH: Tensor,
    query_starts: Tensor, key_starts: Tensor, seed: Tensor,
    longest_query: int, longest_key: int, causal: bool, scale: float, dropout: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    _, heads, d_k = q_FHK.shape
    grads = [torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q_FHK, k_GHK, v_GHK)]
    inputs = q_FHK, k_GHK, v_GHK, out_FHK, grad_FHK, log_sums_FH
    scales, strides = (scale * _LOG2_E, scale), _strides(q_FHK, k_GHK, v_GHK, grad_FHK)
    options = query_starts, key_starts, seed, *scales, *strides, heads, causal, dropout, _TILE, d_k, _width(d_k)
    _backward_keys[_grid(key_starts, heads, longest_key)](*inputs, *grads[1:], *options, num_warps=_WARPS)
    _backward_queries[_grid(query_starts, heads, longest_query)](*inputs, grads[0], *options, num_warps=_WARPS)
    return grads[0], grads[1], grads[2]


@attend_packed.register_fake
def _(q_FHK: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    out_FHK = torch.empty_like(q_FHK, memory_format=torch.contiguous_format)
    return out_FHK, torch.empty(q_FHK.shape[:2], dtype=torch.float32, device=q_FHK.device)


@_backward.register_fake
def _(_: Tensor, q_FHK: Tensor, k_GHK: Tensor, v_GHK: Tensor, *__: Any) -> tuple[Tensor, ...]:
    return tuple(torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q_FHK, k_GHK, v_GHK))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q_FHK, k_GHK, v_GHK, query_starts, key_starts, seed, *ctx.options = inputs
    ctx.save_for_backward(q_FHK, k_GHK, v_GHK, *output, query_starts, key_starts, seed)


def _gradients(ctx: Any, grad_FHK: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    if grad_FHK.stride(2) != 1:
        grad_FHK = grad_FHK.contiguous()
    return *_backward(grad_FHK, *ctx.saved_tensors, *ctx.options), *[None] * 8


attend_packed.register_autograd(_gradients, setup_context=_keep)
