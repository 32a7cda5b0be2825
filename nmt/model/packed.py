"""Attention of all sentences of a micro-batch in one call, with no padding between them, by a GPU's own kernel for it.

Shapes: B sentences, N flat query positions, M flat key positions, H heads, K d_k, which is d_v.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from nmt.config import ModelConfig
from nmt.data.loader import PACKED_MULTIPLE, Side
from nmt.model.runtime import Runtime

_DTYPES = torch.float32, torch.bfloat16
_TOLERANCE = 0.03  # bf16's part of a tensor's norm, with a good margin


@dataclass(frozen=True)
class Segments:
    """How packed queries and keys fall into sentences, of which the n-th of the queries' sees the n-th of the keys'.

    Attributes:
        query_starts, key_starts: where each sentence begins and the last one ends; int32, B + 1.
        longest_query, longest_key: positions, of which no sentence has more.
        causal: whether a position sees those up to itself only.
    """

    query_starts: Tensor
    key_starts: Tensor
    longest_query: int
    longest_key: int
    causal: bool

    @classmethod
    def of(cls, queries: Side, keys: Side, *, causal: bool = False) -> "Segments":
        longest_query, longest_key = (max(side.longest, PACKED_MULTIPLE) for side in (queries, keys))  # or the filler
        return cls(_starts(queries.lengths_B), _starts(keys.lengths_B), longest_query, longest_key, causal)

    def attend(self, q_NHK: Tensor, k_MHK: Tensor, v_MHK: Tensor, scale: float) -> Tensor:
        """softmax(scale q kᵀ) v within the sentences; NHK."""
        from torch.nn.attention.varlen import varlen_attn  # takes a while to import

        lengths, longest = (self.query_starts, self.key_starts), (self.longest_query, self.longest_key)
        window = (-1, 0) if self.causal else (-1, -1)
        return varlen_attn(q_NHK, k_MHK, v_MHK, *lengths, *longest, scale=scale, window_size=window)  # type: ignore[return-value]


def _starts(lengths_B: Tensor) -> Tensor:
    return F.pad(lengths_B.cumsum(0), (1, 0)).to(torch.int32)


def obstacle_to_packing(config: ModelConfig, runtime: Runtime) -> str:
    """Why a model cannot be trained without padding here, in words; '' if it can."""
    if runtime.device.type != "cuda" or not runtime.bf16:
        return "it is for a GPU in bf16"
    if config.attention == "additive" or config.attention_dropout or config.attention_window is not None:
        return "attention has to be by dot products, without dropout and window"
    if config.d_k != config.d_v or not kernel_works(config.heads, config.d_k, runtime.device):
        return f"this GPU and torch have no kernel for --d-k {config.d_k} --d-v {config.d_v}"
    return ""


def kernel_works(heads: int, d_k: int, device: torch.device) -> bool:
    """Whether torch's kernel takes these sizes here, and gives what it should, forward and backward.

    What it takes differs from torch to torch and from GPU to GPU, and so it is tried.
    """
    memory, causal = ([3, 40, 1], [7, 5, 9]), ([3, 40, 1], [3, 40, 1])
    return _is_right(*memory, heads, d_k, device, causal=False) and _is_right(*causal, heads, d_k, device, causal=True)


def _is_right(
    query_lengths: list[int], key_lengths: list[int], heads: int, d_k: int, device: torch.device, *, causal: bool
) -> bool:
    """Whether the kernel agrees, in bf16, with torch's other attention in fp32."""
    lengths = query_lengths, key_lengths, key_lengths
    query_starts, key_starts = (_starts(torch.tensor(n, device=device)) for n in (query_lengths, key_lengths))
    segments = Segments(query_starts, key_starts, max(query_lengths), max(key_lengths), causal)
    draw = partial(torch.randn, generator=torch.Generator(device).manual_seed(0), device=device)
    inputs = [draw(sum(n), 2 * heads * d_k) for n in lengths]
    grad_NHK = draw(sum(query_lengths), heads, d_k)
    exact, found = ([x.detach().to(dtype).requires_grad_() for x in inputs] for dtype in _DTYPES)
    try:
        attended_NHK = segments.attend(*_heads(found, d_k), scale=d_k**-0.5)
        attended_NHK.backward(grad_NHK.to(attended_NHK.dtype))
    except (ImportError, TypeError, ValueError, RuntimeError):
        return False
    sides = [x.split(n) for x, n in zip(_heads(exact, d_k), lengths, strict=True)]
    expected_NHK = torch.cat([_attended(*sentence, causal=causal) for sentence in zip(*sides, strict=True)])
    expected_NHK.backward(grad_NHK)
    pairs = [(attended_NHK, expected_NHK), *((a.grad, b.grad) for a, b in zip(found, exact, strict=True))]
    return all(a is not None and b is not None and bool((a - b).norm() < _TOLERANCE * b.norm()) for a, b in pairs)


def _heads(inputs: Sequence[Tensor], d_k: int) -> tuple[Tensor, Tensor, Tensor]:
    """The first half of each, by head: as in the model, they are parts of something wider."""
    q_NHK, k_MHK, v_MHK = (x.chunk(2, dim=1)[0].unflatten(1, (-1, d_k)) for x in inputs)
    return q_NHK, k_MHK, v_MHK


def _attended(q_NHK: Tensor, k_MHK: Tensor, v_MHK: Tensor, *, causal: bool) -> Tensor:
    """Of one sentence, by torch's other attention."""
    q, k, v = (x.transpose(0, 1) for x in (q_NHK, k_MHK, v_MHK))
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(0, 1)
