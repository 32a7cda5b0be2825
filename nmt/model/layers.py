"""What the layers are made of: dropout, residual sub-layers, feed-forward, encoder and decoder layer (paper §3.1–3.3).

Shapes: B sentences, N flat positions (see `attention`), D d_model, H heads, K d_k, U d_v; in decoding T positions
generated, S source positions, Q hypotheses a sentence, R = B·Q rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.config import ModelConfig
from nmt.model.attention import MultiHeadAttention, Span, attend


class _RandomBitsDropout(torch.autograd.Function):
    """Dropout whose mask is cut from random 16-bit numbers, because torch draws a CPU mask one element at a time.

    The probability is rounded to a multiple of 2^-16, and the scale is that of the rounded one.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, probability: float) -> Tensor:
        dropped = round(probability * 65536)
        words = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
        keep = words.view(torch.int16)[: x.numel()].view(x.shape) >= dropped - 32768
        ctx.save_for_backward(keep)
        ctx.scale = 65536 / (65536 - dropped)
        return (x * keep).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (keep,) = ctx.saved_tensors
        return (gradients[0] * keep).mul_(ctx.scale), None


class Dropout(nn.Module):
    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.probability == 0:
            return x
        if x.device.type == "cpu":
            return _RandomBitsDropout.apply(x, self.probability)
        return F.dropout(x, self.probability)


class Residual(nn.Module):
    """LayerNorm(x + Dropout(Sublayer(x))): the post-norm of the paper."""

    def __init__(self, d_model: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.dropout = Dropout(dropout)

    def forward(self, x_ND: Tensor, sublayer_ND: Tensor) -> Tensor:
        return self.norm(x_ND + self.dropout(sublayer_ND))


class FeedForward(nn.Module):
    """max(0, x W_1 + b_1) W_2 + b_2."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.inner = nn.Linear(d_model, d_ff)
        self.outer = nn.Linear(d_ff, d_model)
        for linear in (self.inner, self.outer):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x_ND: Tensor) -> Tensor:
        return self.outer(F.relu(self.inner(x_ND)))


class EncoderLayer(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        c = config
        self.self_attention = MultiHeadAttention(c.d_model, c.heads, c.d_k, c.d_v, over_self=True)
        self.self_attention_residual = Residual(c.d_model, c.dropout)
        self.feed_forward = FeedForward(c.d_model, c.d_ff)
        self.feed_forward_residual = Residual(c.d_model, c.dropout)

    def forward(self, x_ND: Tensor, spans: Sequence[Span]) -> Tensor:
        x_ND = self.self_attention_residual(x_ND, self.self_attention(x_ND, None, spans))
        return self.feed_forward_residual(x_ND, self.feed_forward(x_ND))


@dataclass(frozen=True)
class LayerCache:
    """What a decoder layer keeps between steps: keys and values of its own positions and of the encoder output."""

    keys_RHTK: Tensor
    values_RHTU: Tensor
    memory_keys_BHSK: Tensor
    memory_values_BHSU: Tensor

    def select(self, rows_R: Tensor, sentences_B: Tensor | None) -> "LayerCache":
        own = (self.keys_RHTK[rows_R], self.values_RHTU[rows_R])
        memory = (self.memory_keys_BHSK, self.memory_values_BHSU)
        if sentences_B is not None:
            memory = (memory[0][sentences_B], memory[1][sentences_B])
        return LayerCache(*own, *memory)


class DecoderLayer(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        c = config
        self.self_attention = MultiHeadAttention(c.d_model, c.heads, c.d_k, c.d_v, over_self=True)
        self.self_attention_residual = Residual(c.d_model, c.dropout)
        self.memory_attention = MultiHeadAttention(c.d_model, c.heads, c.d_k, c.d_v, over_self=False)
        self.memory_attention_residual = Residual(c.d_model, c.dropout)
        self.feed_forward = FeedForward(c.d_model, c.d_ff)
        self.feed_forward_residual = Residual(c.d_model, c.dropout)

    def forward(self, x_ND: Tensor, memory_MD: Tensor, spans: Sequence[Span], memory_spans: Sequence[Span]) -> Tensor:
        x_ND = self.self_attention_residual(x_ND, self.self_attention(x_ND, None, spans))
        x_ND = self.memory_attention_residual(x_ND, self.memory_attention(x_ND, memory_MD, memory_spans))
        return self.feed_forward_residual(x_ND, self.feed_forward(x_ND))

    def start(self, memory_MD: Tensor, spans: Sequence[Span]) -> LayerCache:
        """An empty cache over one span's encoder output."""
        (span,) = spans
        keys, values = self.memory_attention.project_memory(memory_MD)
        k_BHSK, v_BHSU = (x.unflatten(0, (span.sentences, -1)).transpose(1, 2).contiguous() for x in (keys, values))
        return LayerCache(k_BHSK[:, :, :0], v_BHSU[:, :, :0], k_BHSK, v_BHSU)

    def step(self, x_RD: Tensor, cache: LayerCache, memory_bias: Tensor | None) -> tuple[Tensor, LayerCache]:
        """One position further for every row; `forward` at the newest position, from cached keys and values."""
        q_RHK, k_RHK, v_RHU = self.self_attention.project_self(x_RD)
        cache = replace(
            cache,
            keys_RHTK=torch.cat((cache.keys_RHTK, k_RHK[:, :, None]), dim=2),
            values_RHTU=torch.cat((cache.values_RHTU, v_RHU[:, :, None]), dim=2),
        )
        attended_RHU = attend(q_RHK[:, :, None], cache.keys_RHTK, cache.values_RHTU)[:, :, 0]
        x_RD = self.self_attention_residual(x_RD, self.self_attention.output(attended_RHU.flatten(1)))
        # A sentence's hypotheses are that sentence's queries: its keys and values are never copied per hypothesis.
        q_BHQK = (
            self.memory_attention.project_query(x_RD).unflatten(0, (len(cache.memory_keys_BHSK), -1)).transpose(1, 2)
        )
        attended_BHQU = attend(q_BHQK, cache.memory_keys_BHSK, cache.memory_values_BHSU, memory_bias)
        attended_RD = self.memory_attention.output(attended_BHQU.transpose(1, 2).flatten(0, 1).flatten(1))
        x_RD = self.memory_attention_residual(x_RD, attended_RD)
        return self.feed_forward_residual(x_RD, self.feed_forward(x_RD)), cache
