"""What the layers are made of: residual sub-layers, feed-forward, encoder and decoder layer (paper §3.1–3.3).

Shapes: B sentences, N flat positions (see `attention`), D d_model, H heads, K d_k, U d_v; in decoding W hypotheses a
sentence, which are its Q queries, R ≥ B·W rows, T positions so far, P = T·W of all its hypotheses, S source positions.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields

from torch import Tensor, nn
from torch.nn import functional as F

from nmt.config import ModelConfig
from nmt.model.attention import MultiHeadAttention, Span, Spans, cacheable
from nmt.model.dropout import Dropout

# Positions that a cache has room for at first; it doubles when they are full.
_FIRST_POSITIONS = 16


class Residual(nn.Module):
    """LayerNorm(x + Dropout(Sublayer(x))), the post-norm of the paper, or x + Dropout(Sublayer(LayerNorm(x))).

    The latter, pre-norm, is that of Wang et al. 2019 (arXiv:1906.01787) and of the authors' later code.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.pre = config.norm == "pre"
        self.norm = nn.LayerNorm(config.d_model)
        self.dropout = Dropout(config.dropout)

    def forward(self, x_ND: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        if self.pre:
            return x_ND + self.dropout(sublayer(self.norm(x_ND)))
        return self.norm(x_ND + self.dropout(sublayer(x_ND)))


class FeedForward(nn.Module):
    """max(0, x W_1 + b_1) W_2 + b_2."""

    def __init__(self, d_model: int, d_ff: int, dropout: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.inner = nn.Linear(d_model, d_ff)
        self.outer = nn.Linear(d_ff, d_model)
        for linear in (self.inner, self.outer):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x_ND: Tensor) -> Tensor:
        return self.outer(self.dropout(F.relu(self.inner(x_ND))))


class EncoderLayer(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config, over_self=True)
        self.self_attention_residual = Residual(config)
        self.feed_forward = FeedForward(config.d_model, config.d_ff, config.activation_dropout)
        self.feed_forward_residual = Residual(config)

    def forward(self, x_ND: Tensor, spans: Spans) -> Tensor:
        x_ND = self.self_attention_residual(x_ND, lambda x: self.self_attention(x, None, spans))
        return self.feed_forward_residual(x_ND, self.feed_forward)


@dataclass
class LayerCache:
    """What a decoder layer keeps between steps: keys and values of its own positions and of the encoder output.

    Those of hypothesis w at the position kept in slot t are number t·W + w of its sentence, with room for more behind:
    when hypotheses change places nothing is moved, but `DecoderCache` notes which of these are whose.
    """

    keys_BHPK: Tensor
    values_BHPU: Tensor
    memory_keys_BHSK: Tensor
    memory_values_BHSU: Tensor

    def put(self, k_BHWK: Tensor, v_BHWU: Tensor, slot: int, slots: int, most: int | None) -> tuple[Tensor, Tensor]:
        """Keys and values of the first `slots` slots, `most` at any time, now that the newest are in `slot`."""
        hypotheses = k_BHWK.shape[2]
        begin, end = slot * hypotheses, slots * hypotheses
        if end > self.keys_BHPK.shape[2]:
            old, room = (self.keys_BHPK, self.values_BHPU), hypotheses * min(2 * slots, most or 2 * slots)
            self.keys_BHPK, self.values_BHPU = (F.pad(x, (0, 0, 0, room - x.shape[2])) for x in old)
        self.keys_BHPK[:, :, begin : begin + hypotheses] = k_BHWK
        self.values_BHPU[:, :, begin : begin + hypotheses] = v_BHWU
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
        self.window = config.attention_window
        self.self_attention = MultiHeadAttention(config, over_self=True)
        self.self_attention_residual = Residual(config)
        self.memory_attention = MultiHeadAttention(config, over_self=False)
        self.memory_attention_residual = Residual(config)
        self.feed_forward = FeedForward(config.d_model, config.d_ff, config.activation_dropout)
        self.feed_forward_residual = Residual(config)

    def forward(self, x_ND: Tensor, memory_MD: Tensor, spans: Spans, memory_spans: Spans) -> Tensor:
        x_ND = self.self_attention_residual(x_ND, lambda x: self.self_attention(x, None, spans))
        x_ND = self.memory_attention_residual(x_ND, lambda x: self.memory_attention(x, memory_MD, memory_spans))
        return self.feed_forward_residual(x_ND, self.feed_forward)

    def start(self, memory_MD: Tensor, span: Span, beam: int) -> LayerCache:
        """The cache over a span's encoder output, with room for a few positions of `beam` hypotheses a sentence."""
        flat = (x[: span.sentences * span.keys] for x in self.memory_attention.project_memory(memory_MD))
        k_BHSK, v_BHSU = (cacheable(x.unflatten(0, (span.sentences, -1)).transpose(1, 2)) for x in flat)
        room = min(_FIRST_POSITIONS, self.window or _FIRST_POSITIONS) * beam
        k_BHPK, v_BHPU = (x.new_empty(*x.shape[:2], room, x.shape[3]) for x in (k_BHSK, v_BHSU))
        return LayerCache(k_BHPK, v_BHPU, k_BHSK, v_BHSU)

    def step(self, x_RD: Tensor, cache: LayerCache, slot: int, own: Span, memory: Span) -> Tensor:
        """`forward` at the newest position of every hypothesis, whose keys and values go into `slot` of the cache.

        A sentence's hypotheses are its queries, both of `own`, the spans to all positions kept with the newest, and of
        `memory`. There may be more rows than hypotheses; those behind are padding.
        """

        def attend_own(x_RD: Tensor) -> Tensor:
            q_BHQK, k_BHQK, v_BHQU = (_by_sentence(x, own) for x in self.self_attention.project_self(x_RD))
            k_BHPK, v_BHPU = cache.put(k_BHQK, v_BHQU, slot, own.keys // own.queries, self.window)
            attended_BHQU = self.self_attention.function(q_BHQK, k_BHPK, v_BHPU, own.bias)
            return self.self_attention.output(_by_row(attended_BHQU, len(x_RD)))

        def attend_memory(x_RD: Tensor) -> Tensor:
            q_BHQK = _by_sentence(self.memory_attention.project_query(x_RD), memory)
            k_BHSK, v_BHSU = cache.memory_keys_BHSK, cache.memory_values_BHSU
            attended_BHQU = self.memory_attention.function(q_BHQK, k_BHSK, v_BHSU, memory.bias)
            return self.memory_attention.output(_by_row(attended_BHQU, len(x_RD)))

        x_RD = self.self_attention_residual(x_RD, attend_own)
        x_RD = self.memory_attention_residual(x_RD, attend_memory)
        return self.feed_forward_residual(x_RD, self.feed_forward)
