"""Attention of all sentences of a micro-batch in one call, with no padding between them, by a GPU's own kernel for it.

Shapes: B sentences, N flat query positions, M flat key positions, H heads, K d_k, which is d_v.
"""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from nmt.config import ModelConfig
from nmt.data.loader import Side
from nmt.model.runtime import Runtime

# The longest sentence is rounded up to a multiple of this, because code may be compiled for every new length.
_WIDTHS = 32
_DTYPES = torch.float32, torch.bfloat16
_TOLERANCE = 0.05  # of the latter against the former, absolute and relative


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
        query, key = (side.longest + -side.longest % _WIDTHS for side in (queries, keys))
        return cls(_starts(queries.lengths_B), _starts(keys.lengths_B), query, key, causal)

    def attend(self, q_NHK: Tensor, k_MHK: Tensor, v_MHK: Tensor, scale: float) -> Tensor:
        """softmax(scale q kᵀ) v within the sentences; NHK."""
        from torch.nn.attention.varlen import varlen_attn  # takes a while to import

        lengths, longest = (self.query_starts, self.key_starts), (self.longest_query, self.longest_key)
        window = (-1, 0) if self.causal else (-1, -1)
        return varlen_attn(q_NHK, k_MHK, v_MHK, *lengths, *longest, scale=scale, window_size=window)  # type: ignore[return-value]


def _starts(lengths_B: Tensor) -> Tensor:
    return F.pad(lengths_B.cumsum(0), (1, 0)).to(torch.int32)


def can_pack(config: ModelConfig, runtime: Runtime) -> bool:
    """Whether the model can be trained so here."""
    return (
        runtime.device.type == "cuda"
        and runtime.bf16
        and config.attention != "additive"
        and config.attention_dropout == 0
        and config.attention_window is None
        and config.d_k == config.d_v
        and kernel_works(config.heads, config.d_k, runtime.device)
    )


def kernel_works(heads: int, d_k: int, device: torch.device) -> bool:
    """Whether torch's kernel takes these sizes here, and gives what it should, forward and backward.

    What it takes differs from torch to torch and from GPU to GPU, and so it is tried.
    """
    lengths_B, memory_lengths_B = torch.tensor([3, 40, 1], device=device), torch.tensor([7, 5, 9], device=device)
    segments = Segments(_starts(lengths_B), _starts(memory_lengths_B), 64, 32, causal=False)
    draw = partial(torch.randn, generator=torch.Generator(device).manual_seed(0), device=device)
    query_NHK, grad_NHK = draw(44, heads, d_k), draw(44, heads, d_k)
    memory_MHX = draw(21, heads, 2 * d_k)  # keys and values are parts of one tensor, as the model's are
    exact, found = ([x.detach().to(dtype).requires_grad_() for x in (query_NHK, memory_MHX)] for dtype in _DTYPES)
    try:
        attended_NHK = segments.attend(found[0], *_halves(found[1]), scale=d_k**-0.5)
        attended_NHK.backward(grad_NHK.to(attended_NHK.dtype))
    except (ImportError, TypeError, ValueError, RuntimeError):
        return False
    sentences = zip(exact[0].split([3, 40, 1]), exact[1].split([7, 5, 9]), strict=True)
    expected_NHK = torch.cat([_attended(query, *_halves(memory)) for query, memory in sentences])
    expected_NHK.backward(grad_NHK)
    pairs = [(attended_NHK, expected_NHK), *((a.grad, b.grad) for a, b in zip(found, exact, strict=True))]
    return all(
        torch.allclose(a.float(), b, rtol=_TOLERANCE, atol=_TOLERANCE)
        for a, b in pairs
        if a is not None and b is not None
    )


def _halves(memory_MHX: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values."""
    keys_MHK, values_MHK = memory_MHX.chunk(2, -1)
    return keys_MHK, values_MHK


def _attended(q_NHK: Tensor, k_MHK: Tensor, v_MHK: Tensor) -> Tensor:
    """Of one sentence, by torch's other attention."""
    q, k, v = (x.transpose(0, 1) for x in (q_NHK, k_MHK, v_MHK))
    return F.scaled_dot_product_attention(q, k, v).transpose(0, 1)
