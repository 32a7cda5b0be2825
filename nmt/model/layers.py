"""What the layers are made of: dropout, residual sub-layers, feed-forward, encoder and decoder layer (paper §3.1–3.3).

Shapes: B sentences, N flat positions (see `attention`), D d_model, H heads, K d_k, U d_v; in decoding W hypotheses a
sentence, which are its Q queries, R ≥ B·W rows, T positions so far, P = T·W of all its hypotheses, S source positions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.config import ModelConfig
from nmt.model.attention import MultiHeadAttention, Span, attend, cacheable

# Positions that a cache has room for at first; it doubles when they are full.
_FIRST_POSITIONS = 16


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


@dataclass
class LayerCache:
    """What a decoder layer keeps between steps: keys and values of its own positions and of the encoder output.

    Those of hypothesis w at position t are number t·W + w of its sentence for good, with room for more behind: when
    hypotheses change places nothing is moved, but `DecoderCache` notes which of these are whose.
    """

    keys_BHPK: Tensor
    values_BHPU: Tensor
    memory_keys_BHSK: Tensor
    memory_values_BHSU: Tensor

    def append(self, k_BHWK: Tensor, v_BHWU: Tensor, end: int) -> tuple[Tensor, Tensor]:
        """Keys and values up to `end`, now that the newest position's, which end there, are written."""
        if end > self.keys_BHPK.shape[2]:
            old = self.keys_BHPK, self.values_BHPU
            self.keys_BHPK, self.values_BHPU = (F.pad(x, (0, 0, 0, 2 * end - x.shape[2])) for x in old)
        self.keys_BHPK[:, :, end - k_BHWK.shape[2] : end] = k_BHWK
        self.values_BHPU[:, :, end - v_BHWU.shape[2] : end] = v_BHWU
        return self.keys_BHPK[:, :, :end], self.values_BHPU[:, :, :end]

    def of(self, sentences_B: Tensor) -> "LayerCache":
        """That of some sentences."""
        return LayerCache(*(getattr(self, f.name)[sentences_B] for f in fields(self)))


def _by_sentence(x_RHK: Tensor, span: Span) -> Tensor:
    """Rows that are a span's queries, as BHQK."""
    return x_RHK[: span.sentences * span.queries].unflatten(0, (span.sentences, -1)).transpose(1, 2)


def _by_row(x_BHQU: Tensor, rows: int) -> Tensor:
    """Back again, as R(HU), with rows of zeros behind."""
    x_RX = x_BHQU.transpose(1, 2).flatten(0, 1).flatten(1)
    return x_RX if len(x_RX) == rows else F.pad(x_RX, (0, 0, 0, rows - len(x_RX)))


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

    def start(self, memory_MD: Tensor, span: Span, beam: int) -> LayerCache:
        """The cache over a span's encoder output, with room for a few positions of `beam` hypotheses a sentence."""
        flat = (x[: span.sentences * span.keys] for x in self.memory_attention.project_memory(memory_MD))
        k_BHSK, v_BHSU = (cacheable(x.unflatten(0, (span.sentences, -1)).transpose(1, 2)) for x in flat)
        room = _FIRST_POSITIONS * beam
        k_BHPK, v_BHPU = (x.new_empty(*x.shape[:2], room, x.shape[3]) for x in (k_BHSK, v_BHSU))
        return LayerCache(k_BHPK, v_BHPU, k_BHSK, v_BHSU)

    def step(self, x_RD: Tensor, cache: LayerCache, own: Span, memory: Span) -> Tensor:
        """`forward` at the newest position of every hypothesis, whose keys and values join those in the cache.

        A sentence's hypotheses are its queries, both of `own`, the spans to all positions up to the newest, and of
        `memory`. There may be more rows than hypotheses; those behind are padding.
        """
        q_BHQK, k_BHQK, v_BHQU = (_by_sentence(x, own) for x in self.self_attention.project_self(x_RD))
        attended_BHQU = attend(q_BHQK, *cache.append(k_BHQK, v_BHQU, own.keys), own.bias)
        attended_RX = _by_row(attended_BHQU, len(x_RD))
        x_RD = self.self_attention_residual(x_RD, self.self_attention.output(attended_RX))
        q_BHQK = _by_sentence(self.memory_attention.project_query(x_RD), memory)
        attended_BHQU = attend(q_BHQK, cache.memory_keys_BHSK, cache.memory_values_BHSU, memory.bias)
        attended_RX = _by_row(attended_BHQU, len(x_RD))
        x_RD = self.memory_attention_residual(x_RD, self.memory_attention.output(attended_RX))
        return self.feed_forward_residual(x_RD, self.feed_forward(x_RD))
