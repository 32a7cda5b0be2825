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


def key_padding_bias(lengths_B: Tensor, width: int) -> Tensor:
    """The bias B11S that hides padding."""
    padding_BS = torch.arange(width, device=lengths_B.device) >= lengths_B[:, None]
    return torch.zeros(padding_BS.shape, device=lengths_B.device).masked_fill_(padding_BS, -torch.inf)[:, None, None]


def causal_bias(width: int, device: torch.device) -> Tensor:
    """The bias QS that hides the future."""
    return torch.full((width, width), -torch.inf, device=device).triu_(1)


class _MatmulAttention(torch.autograd.Function):
    """Attention as batched matrix products and softmax in fp32 (or what is wider).

    On CPUs, at the lengths of sentences, this is several times faster than `scaled_dot_product_attention` and its
    backward pass. Softmax is spelt out because torch's is slow where the last dimension is short. And bfloat16 would
    gain nothing here: oneDNN compiles a kernel of a megabyte for every new shape, and the shapes are ever new.
    """

    @staticmethod
    def forward(ctx: Any, q_BHQK: Tensor, k_BHSK: Tensor, v_BHSU: Tensor, bias: Tensor | None) -> Tensor:
        q, k, v = map(_widened, (q_BHQK, k_BHSK, v_BHSU))
        weights = q @ k.transpose(-1, -2)
        weights *= q.shape[-1] ** -0.5
        if bias is not None:
            weights += bias
        weights -= weights.amax(-1, keepdim=True)
        weights.exp_()
        weights /= weights.sum(-1, keepdim=True)
        ctx.save_for_backward(q_BHQK, k_BHSK, v_BHSU, weights)
        return (weights @ v).to(v_BHSU.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        *inputs, weights = ctx.saved_tensors
        q, k, v = map(_widened, inputs)
        grad_out = _widened(gradients[0])
        grad_v = weights.transpose(-1, -2) @ grad_out
        grad_scores = grad_out @ v.transpose(-1, -2)
        grad_scores -= (grad_scores * weights).sum(-1, keepdim=True)
        grad_scores *= weights
        grad_scores *= q.shape[-1] ** -0.5
        dtype = gradients[0].dtype
        return (grad_scores @ k).to(dtype), (grad_scores.transpose(-1, -2) @ q).to(dtype), grad_v.to(dtype), None


def _widened(x_BHSK: Tensor) -> Tensor:
    """The same in fp32 or wider, laid out so that batched products take it as it is."""
    dtype = torch.promote_types(x_BHSK.dtype, torch.float32)
    by_batch, by_head, by_position, _ = x_BHSK.stride()
    if x_BHSK.dtype == dtype and by_batch == x_BHSK.shape[1] * by_head and by_position == x_BHSK.shape[3]:
        return x_BHSK
    # `to` does not change the layout where it has no type to change.
    return x_BHSK.contiguous() if x_BHSK.dtype == dtype else x_BHSK.to(dtype, memory_format=torch.contiguous_format)


def cacheable(x_BHSK: Tensor) -> Tensor:
    """Keys or values so that `attend` need not convert them each time."""
    return _widened(x_BHSK) if x_BHSK.device.type == "cpu" else x_BHSK.contiguous()


def attend(q_BHQK: Tensor, k_BHSK: Tensor, v_BHSU: Tensor, bias: Tensor | None = None) -> Tensor:
    """softmax(q kᵀ / √d_k + bias) v, as BHQU."""
    if q_BHQK.device.type == "cpu":
        with torch.autocast("cpu", enabled=False):  # which would bring back bfloat16
            return _MatmulAttention.apply(q_BHQK, k_BHSK, v_BHSU, bias)
    return F.scaled_dot_product_attention(
        q_BHQK, k_BHSK, v_BHSU, attn_mask=None if bias is None else bias.to(q_BHQK.dtype)
    )


def attend_spans(q_NHK: Tensor, k_MHK: Tensor, v_MHU: Tensor, spans: Sequence[Span]) -> Tensor:
    """Attention within each span's sentences: N(HU), flat as the queries are, and 0 behind the last span."""
    outputs, query, key = [], 0, 0
    for span in spans:
        queries, keys = span.sentences * span.queries, span.sentences * span.keys
        flat = (q_NHK[query : query + queries], k_MHK[key : key + keys], v_MHU[key : key + keys])
        q_BHQK, k_BHSK, v_BHSU = (x.unflatten(0, (span.sentences, -1)).transpose(1, 2) for x in flat)
        outputs.append(attend(q_BHQK, k_BHSK, v_BHSU, span.bias).transpose(1, 2).reshape(queries, -1))
        query, key = query + queries, key + keys
    if query < len(q_NHK):
        outputs.append(outputs[0].new_zeros(len(q_NHK) - query, outputs[0].shape[1]))
    return torch.cat(outputs)


class MultiHeadAttention(nn.Module):
    """Concat(head_1 … head_h) W_O with head_i = Attention(x W_iQ, y W_iK, y W_iV); no biases, as in the paper.

    All heads' W_Q, W_K and W_V are one matrix each, stored together where they are multiplied with the same input.
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
        """Glorot's uniform initialisation of the matrices as they are stored, so that joint ones start smaller.

        The paper does not say how to start; this is what its authors' code did. With every part of a joint matrix
        started by itself, at up to √2 times the size, small models linger long at ignoring the source.
        """
        for weight in self.parameters():
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
