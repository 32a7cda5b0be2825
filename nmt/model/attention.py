"""Attention functions and their multi-head form (paper §3.2).

Sentences of several lengths travel together: the positions of all of them lie one after the other in one flat axis N,
and a `Span` says where a block of sentences of one padded width lies in it. Everything but attention works on the flat
axis; attention works block by block, or, where nothing is padded, on all sentences at once (see `packed`).

Shapes: B sentences, Q query positions of a sentence, S key positions, N flat query positions, M flat key positions,
D d_model, H heads, K d_k, U d_v.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.config import ModelConfig
from nmt.model.dropout import Dropout, random_mask
from nmt.model.masks import Window
from nmt.model.packed import Segments


@dataclass(frozen=True)
class Span:
    """A block of sentences whose queries and keys are padded to one width each.

    Attributes:
        sentences: B.
        queries, keys: positions of a sentence, padding included.
        bias: None, or what is added to the scores: 0, and −∞ where a query may not see a key; broadcasts to BHQS.
        window: None, or how attention that is restricted to a neighbourhood is cut up, instead of by `bias`.
    """

    sentences: int
    queries: int
    keys: int
    bias: Tensor | None
    window: Window | None = None


class _MatmulAttention(torch.autograd.Function):
    """Attention as batched matrix products and softmax in fp32 (or what is wider).

    On CPUs, at the lengths of sentences, this is several times faster than `scaled_dot_product_attention` and its
    backward pass. Softmax is spelt out because torch's is slow where the last dimension is short. And bfloat16 would
    gain nothing here: oneDNN compiles a kernel of a megabyte for every new shape, and the shapes are ever new.
    """

    @staticmethod
    def forward(
        ctx: Any, q_BHQK: Tensor, k_BHSK: Tensor, v_BHSU: Tensor, bias: Tensor | None, scale: float, dropout: float
    ) -> Tensor:
        q, k, v = map(_widened, (q_BHQK, k_BHSK, v_BHSU))
        weights = q @ k.transpose(-1, -2)
        weights *= scale
        if bias is not None:
            weights += bias
        weights -= weights.amax(-1, keepdim=True)
        weights.exp_()
        weights /= weights.sum(-1, keepdim=True)
        keep, ctx.keep_scale = random_mask(weights.shape, dropout) if dropout else (None, 1.0)
        ctx.scale = scale
        ctx.save_for_backward(q_BHQK, k_BHSK, v_BHSU, weights, keep)
        return (_dropped(weights, keep, ctx.keep_scale) @ v).to(v_BHSU.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        *inputs, weights, keep = ctx.saved_tensors
        q, k, v = map(_widened, inputs)
        grad_out = _widened(gradients[0])
        grad_v = _dropped(weights, keep, ctx.keep_scale).transpose(-1, -2) @ grad_out
        grad_scores = _dropped(grad_out @ v.transpose(-1, -2), keep, ctx.keep_scale)
        grad_scores -= (grad_scores * weights).sum(-1, keepdim=True)
        grad_scores *= weights
        grad_scores *= ctx.scale
        dtype = gradients[0].dtype
        grad_k = grad_scores.transpose(-1, -2) @ q
        return (grad_scores @ k).to(dtype), grad_k.to(dtype), grad_v.to(dtype), None, None, None


def _dropped(x: Tensor, keep: Tensor | None, scale: float) -> Tensor:
    return x if keep is None else (x * keep).mul_(scale)


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


class DotProduct(nn.Module):
    """Dropout(softmax(q kᵀ / √d_k + bias)) v, or without the √d_k."""

    def __init__(self, d_k: int, dropout: float, *, scaled: bool) -> None:
        super().__init__()
        self.dropout = dropout
        self.scale = d_k**-0.5 if scaled else 1.0

    def forward(self, q_BHQK: Tensor, k_BHSK: Tensor, v_BHSU: Tensor, bias: Tensor | None = None) -> Tensor:
        """BHQU."""
        dropout = self.dropout if self.training else 0.0
        if q_BHQK.device.type == "cpu":
            with torch.autocast("cpu", enabled=False):  # which would bring back bfloat16
                return _MatmulAttention.apply(q_BHQK, k_BHSK, v_BHSU, bias, self.scale, dropout)
        mask = None if bias is None else bias.to(q_BHQK.dtype)
        return F.scaled_dot_product_attention(q_BHQK, k_BHSK, v_BHSU, mask, dropout, scale=self.scale)


class Additive(nn.Module):
    """Dropout(softmax(w · tanh(q + k) + bias)) v.

    The scores are a feed-forward network with one hidden layer, whose first matrices are W_Q and W_K (Bahdanau et al.
    2015, arXiv:1409.0473; the paper's §3.2.1). Slow: it looks at d_k numbers for every score.
    """

    def __init__(self, heads: int, d_k: int, dropout: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.direction_HK = nn.Parameter(torch.empty(heads, d_k))
        nn.init.normal_(self.direction_HK, std=d_k**-0.5)

    def forward(self, q_BHQK: Tensor, k_BHSK: Tensor, v_BHSU: Tensor, bias: Tensor | None = None) -> Tensor:
        """BHQU."""
        hidden_BHQSK = torch.tanh(q_BHQK[:, :, :, None] + k_BHSK[:, :, None])
        scores = torch.einsum("bhqsk,hk->bhqs", hidden_BHQSK, self.direction_HK.to(hidden_BHQSK.dtype))
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        weights = (scores if bias is None else scores + bias).softmax(-1)
        return self.dropout(weights).to(v_BHSU.dtype) @ v_BHSU


AttentionFunction = DotProduct | Additive


def attention_function(config: ModelConfig) -> AttentionFunction:
    c = config
    if c.attention == "additive":
        return Additive(c.heads, c.d_k, c.attention_dropout)
    return DotProduct(c.d_k, c.attention_dropout, scaled=c.attention == "scaled-dot-product")


Spans = Sequence[Span] | Segments


def attend_spans(q_NHK: Tensor, k_MHK: Tensor, v_MHU: Tensor, spans: Spans, function: AttentionFunction) -> Tensor:
    """Attention within each span's sentences: N(HU), flat as the queries are, and 0 behind the last span."""
    if isinstance(spans, Segments):
        assert isinstance(function, DotProduct)
        return spans.attend(q_NHK, k_MHK, v_MHU, function.scale).flatten(1)
    outputs, query, key = [], 0, 0
    for span in spans:
        queries, keys = span.sentences * span.queries, span.sentences * span.keys
        flat = (q_NHK[query : query + queries], k_MHK[key : key + keys], v_MHU[key : key + keys])
        q_BHQK, k_BHSK, v_BHSU = (x.unflatten(0, (span.sentences, -1)).transpose(1, 2) for x in flat)
        if span.window is None:
            attended_BHQU = function(q_BHQK, k_BHSK, v_BHSU, span.bias)
        else:
            attended_BHQU = span.window.attend(q_BHQK, k_BHSK, v_BHSU, function)
        outputs.append(attended_BHQU.transpose(1, 2).reshape(queries, -1))
        query, key = query + queries, key + keys
    if query < len(q_NHK):
        outputs.append(outputs[0].new_zeros(len(q_NHK) - query, outputs[0].shape[1]))
    return torch.cat(outputs)


class MultiHeadAttention(nn.Module):
    """Concat(head_1 … head_h) W_O with head_i = Attention(x W_iQ, y W_iK, y W_iV); no biases, as in the paper.

    All heads' W_Q, W_K and W_V are one matrix each, stored together where they are multiplied with the same input.
    """

    def __init__(self, config: ModelConfig, *, over_self: bool) -> None:
        super().__init__()
        self.heads = config.heads
        self.function = attention_function(config)
        self.sizes = (config.heads * config.d_k, config.heads * config.d_k, config.heads * config.d_v)
        if over_self:
            self.query_key_value = nn.Linear(config.d_model, sum(self.sizes), bias=False)
        else:
            self.query = nn.Linear(config.d_model, self.sizes[0], bias=False)
            self.key_value = nn.Linear(config.d_model, sum(self.sizes[1:]), bias=False)
        self.output = nn.Linear(config.heads * config.d_v, config.d_model, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Glorot's uniform initialisation of the matrices as they are stored, so that joint ones start smaller.

        The paper does not say how to start; this is what its authors' code did. With every part of a joint matrix
        started by itself, at up to √2 times the size, small models linger long at ignoring the source.
        """
        for part in self.children():
            if isinstance(part, nn.Linear):
                nn.init.xavier_uniform_(part.weight)

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

    def project(self, x_ND: Tensor, memory_MD: Tensor | None) -> tuple[Tensor, ...]:
        """Queries NHK, keys MHK and values MHU of attention of `x_ND` over itself, or over `memory_MD`."""
        if memory_MD is None:
            return self.project_self(x_ND)
        return self.project_query(x_ND), *self.project_memory(memory_MD)

    def forward(self, x_ND: Tensor, memory_MD: Tensor | None, spans: Spans) -> Tensor:
        """Attention of `x_ND` over itself, or over `memory_MD`; ND."""
        q, k, v = self.project(x_ND, memory_MD)
        return self.output(attend_spans(q, k, v, spans, self.function))
