"""Attention over packed sentences: one call of a GPU kernel for sentences of all lengths, without padding.

Shapes: see docs/architecture.md; F flat positions of queries and G of keys, B sentences, H heads, K d_k, which is d_v.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional as F

from nmt.config import ModelConfig
from nmt.data.layout import Layout
from nmt.model.runtime import Runtime

_DTYPES = torch.float32, torch.bfloat16
_TOLERANCE = 0.03  # of a tensor's norm; bf16 rounding stays well below


@dataclass(frozen=True)
class PackedMask:
    """The mask with which sentence n of the queries attends to sentence n of the keys.

    Attributes:
        query_starts, key_starts: where each sentence begins and the last one ends; int32, B + 1.
        longest_query, longest_key: bounds on the positions of a sentence.
        causal: whether a query sees only the positions up to its own.
    """

    query_starts: Tensor
    key_starts: Tensor
    longest_query: int
    longest_key: int
    causal: bool

    @classmethod
    def of(cls, queries: Layout, keys: Layout, *, causal: bool) -> Self:
        """Returns the mask of two packed layouts with the same number of sentences."""
        starts = _starts(queries.lengths_B), _starts(keys.lengths_B)
        return cls(*starts, queries.longest, keys.longest, causal)

    def attend(self, q_FHK: Tensor, k_GHK: Tensor, v_GHK: Tensor, scale: float) -> Tensor:
        """Returns softmax(scale · q kᵀ) v within the sentences, FHK."""
        from torch.nn.attention.varlen import varlen_attn  # slow to import

        lengths, longest = (self.query_starts, self.key_starts), (self.longest_query, self.longest_key)
        window = (-1, 0) if self.causal else (-1, -1)
        return varlen_attn(q_FHK, k_GHK, v_GHK, *lengths, *longest, scale=scale, window_size=window)  # type: ignore[return-value]


def _starts(lengths_B: Tensor) -> Tensor:
    return F.pad(lengths_B.cumsum(0), (1, 0)).to(torch.int32)


def obstacle_to_packing(config: ModelConfig, runtime: Runtime) -> str | None:
    """Describes why a model cannot train on packed batches here; returns None if it can."""
    if runtime.device.type != "cuda" or runtime.dtype != torch.bfloat16:
        return "packed batches need a GPU and bf16"
    if config.attention == "additive" or config.attention_dropout or config.attention_window is not None:
        return "packed batches need dot-product attention without attention dropout and without a window"
    if config.guided_alignment is not None:
        return "packed batches do not compute the attention weights that --guided-alignment trains"
    if config.d_k != config.d_v or not kernel_works(config.heads, config.d_k, runtime.device):
        return f"torch has no kernel for packed batches with --d-k {config.d_k} --d-v {config.d_v} on this GPU"
    return None


def kernel_works(heads: int, d_k: int, device: torch.device) -> bool:
    """Returns whether torch's kernel supports these sizes here and computes the right values and gradients.

    The supported sizes depend on the version of torch and on the GPU, so the kernel is tried.
    """
    cross, causal = ([3, 40, 1], [7, 5, 9]), ([3, 40, 1], [3, 40, 1])
    return _is_right(*cross, heads, d_k, device, causal=False) and _is_right(*causal, heads, d_k, device, causal=True)


def _is_right(
    query_lengths: list[int], key_lengths: list[int], heads: int, d_k: int, device: torch.device, *, causal: bool
) -> bool:
    """Returns whether the kernel in bf16 agrees with torch's other attention in fp32."""
    lengths = query_lengths, key_lengths, key_lengths
    query_starts, key_starts = (_starts(torch.tensor(n, device=device)) for n in (query_lengths, key_lengths))
    mask = PackedMask(query_starts, key_starts, max(query_lengths), max(key_lengths), causal)
    draw = partial(torch.randn, generator=torch.Generator(device).manual_seed(0), device=device)
    inputs = [draw(sum(n), 2 * heads * d_k) for n in lengths]
    grad_FHK = draw(sum(query_lengths), heads, d_k)
    exact, found = ([x.detach().to(dtype).requires_grad_() for x in inputs] for dtype in _DTYPES)
    try:
        attended_FHK = mask.attend(*_heads(found, d_k), scale=d_k**-0.5)
        attended_FHK.backward(grad_FHK.to(attended_FHK.dtype))
    except (ImportError, TypeError, ValueError, RuntimeError):
        return False
    sides = [x.split(n) for x, n in zip(_heads(exact, d_k), lengths, strict=True)]
    expected_FHK = torch.cat([_attended(*sentence, causal=causal) for sentence in zip(*sides, strict=True)])
    expected_FHK.backward(grad_FHK)
    gradients = [_is_close(a.grad, b.grad) for a, b in zip(found, exact, strict=True)]
    return _is_close(attended_FHK, expected_FHK) and all(gradients)


def _is_close(found: Tensor | None, expected: Tensor | None) -> bool:
    return found is not None and expected is not None and bool((found - expected).norm() < _TOLERANCE * expected.norm())


def _heads(inputs: Sequence[Tensor], d_k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the first half of each input, by head, because the model's inputs are slices of wider tensors too."""
    q_FHK, k_GHK, v_GHK = (x.chunk(2, dim=1)[0].unflatten(1, (-1, d_k)) for x in inputs)
    return q_FHK, k_GHK, v_GHK


def _attended(q_FHK: Tensor, k_GHK: Tensor, v_GHK: Tensor, *, causal: bool) -> Tensor:
    """Returns the attention of a single sentence, FHK, computed without the kernel for packed sentences."""
    q, k, v = (x.transpose(0, 1) for x in (q_FHK, k_GHK, v_GHK))
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(0, 1)
