"""Scaled dot-product attention and its multi-head form (paper §3.2).

Sentences of several lengths travel together: the positions of all of them lie one after the other in one flat axis N,
and a `Span` says where a block of sentences of one padded width lies in it. Everything but attention works on the flat
axis; attention works block by block.

Shapes: B sentences, Q query positions of a sentence, S key positions, N flat query positions, M flat key positions,
D d_model, H heads, K d_k, U d_v.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Span:
    """A block of sentences whose queries and keys are padded to one width each.

    Attributes:
        sentences: B.
        queries, keys: positions of a sentence, padding included.
        bias: None, or what is added to the scores: 0, and −∞ where a query may not see a key; broadcasts to BHQS.
    """

    sentences: int
    queries: int
    keys: int
    bias: Tensor | None


def key_padding_bias(lengths_B: Tensor, width: int) -> Tensor | None:
    """The bias B11S that hides padding, or None where there is none."""
    if bool((lengths_B == width).all()):
        return None
    padding_BS = torch.arange(width, device=lengths_B.device) >= lengths_B[:, None]
    return torch.zeros(padding_BS.shape, device=lengths_B.device).masked_fill_(padding_BS, -torch.inf)[:, None, None]


def causal_bias(width: int, device: torch.device) -> Tensor:
    """The bias QS that hides the future."""
    return torch.full((width, width), -torch.inf, device=device).triu_(1)


class _MatmulAttention(torch.autograd.Function):
    """Attention as batched matrix products with an fp32 softmax: on CPUs, at the lengths of sentences, several times
    faster than `scaled_dot_product_attention` forwards and backwards. Softmax is spelt out because torch's is slow
    where the last dimension is short."""

    @staticmethod
    def forward(ctx: Any, q_BHQK: Tensor, k_BHSK: Tensor, v_BHSU: Tensor, bias: Tensor | None) -> Tensor:
        scores = (q_BHQK @ k_BHSK.transpose(-1, -2)).to(torch.promote_types(q_BHQK.dtype, torch.float32))
        scores *= q_BHQK.shape[-1] ** -0.5
        if bias is not None:
            scores += bias
        scores -= scores.amax(-1, keepdim=True)
        weights = scores.exp_()
        weights /= weights.sum(-1, keepdim=True)
        ctx.save_for_backward(q_BHQK, k_BHSK, v_BHSU, weights)
        return weights.to(v_BHSU.dtype) @ v_BHSU

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, weights = ctx.saved_tensors
        grad_BHQU = gradients[0]
        grad_v = weights.to(v.dtype).transpose(-1, -2) @ grad_BHQU
        grad_weights = (grad_BHQU @ v.transpose(-1, -2)).to(weights.dtype)
        grad_scores = (grad_weights - (grad_weights * weights).sum(-1, keepdim=True)).mul_(weights)
        grad_scores = grad_scores.mul_(q.shape[-1] ** -0.5).to(q.dtype)
        return grad_scores @ k, grad_scores.transpose(-1, -2) @ q, grad_v, None


def attend(q_BHQK: Tensor, k_BHSK: Tensor, v_BHSU: Tensor, bias: Tensor | None = None) -> Tensor:
    """softmax(q kᵀ / √d_k + bias) v, as BHQU."""
    if q_BHQK.device.type == "cpu":
        return _MatmulAttention.apply(q_BHQK, k_BHSK, v_BHSU, bias)
    return F.scaled_dot_product_attention(
        q_BHQK, k_BHSK, v_BHSU, attn_mask=None if bias is None else bias.to(q_BHQK.dtype)
    )


def attend_spans(q_NHK: Tensor, k_MHK: Tensor, v_MHU: Tensor, spans: Sequence[Span]) -> Tensor:
    """Attention within each span's sentences: N(HU), flat as the queries are."""
    query_sizes = [span.sentences * span.queries for span in spans]
    key_sizes = [span.sentences * span.keys for span in spans]
    outputs = []
    for span, q, k, v in zip(
        spans, q_NHK.split(query_sizes), k_MHK.split(key_sizes), v_MHU.split(key_sizes), strict=True
    ):
        q_BHQK, k_BHSK, v_BHSU = (x.unflatten(0, (span.sentences, -1)).transpose(1, 2) for x in (q, k, v))
        out_BHQU = attend(q_BHQK, k_BHSK, v_BHSU, span.bias)
        outputs.append(out_BHQU.transpose(1, 2).reshape(span.sentences * span.queries, -1))
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


class MultiHeadAttention(nn.Module):
    """Concat(head_1 … head_h) W_O with head_i = Attention(x W_iQ, y W_iK, y W_iV); no biases, as in the paper.

    All heads' W_Q, W_K and W_V are one matrix each; `from_self` and `from_memory` say which are stored together.
    """

    def __init__(self, d_model: int, heads: int, d_k: int, d_v: int, *, over_self: bool) -> None:
        super().__init__()
        self.heads, self.over_self = heads, over_self
        self.sizes = (heads * d_k, heads * d_k, heads * d_v)
        if over_self:
            self.query_key_value = nn.Linear(d_model, sum(self.sizes), bias=False)
        else:
            self.query = nn.Linear(d_model, self.sizes[0], bias=False)
            self.key_value = nn.Linear(d_model, sum(self.sizes[1:]), bias=False)
        self.output = nn.Linear(heads * d_v, d_model, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Glorot's uniform initialisation of each of W_Q, W_K, W_V (not of their concatenation) and W_O."""
        stored = (
            self.query_key_value.weight.split(self.sizes)
            if self.over_self
            else (self.query.weight, *self.key_value.weight.split(self.sizes[1:]))
        )
        for weight in (*stored, self.output.weight):
            nn.init.xavier_uniform_(weight)

    def _by_head(self, *parts: Tensor) -> tuple[Tensor, ...]:
        return tuple(part.unflatten(-1, (self.heads, -1)) for part in parts)

    def project_self(self, x_ND: Tensor) -> tuple[Tensor, ...]:
        """Queries NHK, keys NHK and values NHU of self-attention."""
        return self._by_head(*self.query_key_value(x_ND).split(self.sizes, -1))

    def project_query(self, x_ND: Tensor) -> Tensor:
        return self.query(x_ND).unflatten(-1, (self.heads, -1))

    def project_memory(self, memory_MD: Tensor) -> tuple[Tensor, ...]:
        """Keys MHK and values MHU of attention over the encoder output."""
        return self._by_head(*self.key_value(memory_MD).split(self.sizes[1:], -1))

    def forward(self, x_ND: Tensor, memory_MD: Tensor | None, spans: Sequence[Span]) -> Tensor:
        """Attention of `x_ND` over itself, or over `memory_MD`; ND."""
        if memory_MD is None:
            q, k, v = self.project_self(x_ND)
        else:
            q, (k, v) = self.project_query(x_ND), self.project_memory(memory_MD)
        return self.output(attend_spans(q, k, v, spans))
