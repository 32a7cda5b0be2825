"""The Transformer (paper §3).

Shapes: B sentences, N flat source positions, M flat target positions, D d_model, R rows of a decoding step, V target
vocabulary.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.config import ModelConfig
from nmt.data.loader import Side
from nmt.model.attention import Span, causal_bias, key_padding_bias
from nmt.model.layers import DecoderLayer, Dropout, EncoderLayer, LayerCache
from nmt.model.positions import SinusoidalPositions


@dataclass(frozen=True)
class DecoderCache:
    """The decoder's state between steps; `length` positions have been generated."""

    layers: tuple[LayerCache, ...]
    memory_bias: Tensor | None
    length: int

    def select(self, rows_R: Tensor, sentences_B: Tensor | None) -> "DecoderCache":
        """The state of these rows, in this order; and of these sentences only, unless None."""
        bias = self.memory_bias
        if bias is not None and sentences_B is not None:
            bias = bias[sentences_B]
        return DecoderCache(tuple(layer.select(rows_R, sentences_B) for layer in self.layers), bias, self.length)


class Transformer(nn.Module):
    """Encoder and decoder. The target embedding is the pre-softmax matrix, and the source embedding too if shared.

    Args:
        source_size, target_size: pieces in the vocabularies.
        shared: whether both languages have the same vocabulary, and so one embedding.
    """

    def __init__(self, config: ModelConfig, source_size: int, target_size: int, *, shared: bool) -> None:
        super().__init__()
        self.config = config
        self.target_embedding = nn.Embedding(target_size, config.d_model)
        self.source_embedding = None if shared else nn.Embedding(source_size, config.d_model)
        self.positions = SinusoidalPositions(config.d_model)
        self.dropout = Dropout(config.dropout)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        for embedding in (self.target_embedding, self.source_embedding):
            if embedding is not None:
                nn.init.normal_(embedding.weight, std=config.d_model**-0.5)

    def _embed(self, embedding: nn.Embedding, tokens_N: Tensor, positions_N: Tensor, longest: int) -> Tensor:
        x_ND = embedding(tokens_N) * self.config.d_model**0.5
        return self.dropout(x_ND + self.positions(positions_N, longest))

    def encode(self, source: Side) -> Tensor:
        """Encoder output, ND."""
        x_ND = self._embed(
            self.source_embedding or self.target_embedding, source.tokens_N, source.positions_N, source.longest
        )
        spans = _spans(source, source)
        for layer in self.encoder:
            x_ND = layer(x_ND, spans)
        return x_ND

    def decode(self, target: Side, memory_ND: Tensor, source: Side) -> Tensor:
        """Decoder output MD at every target position, which sees the positions up to itself."""
        x_MD = self._embed(self.target_embedding, target.tokens_N, target.positions_N, target.longest)
        # A position's own padding lies in its future, so the causal bias hides that as well.
        spans = [Span(b.sentences, b.width, b.width, causal_bias(b.width, x_MD.device)) for b in target.blocks]
        memory_spans = _spans(target, source)
        for layer in self.decoder:
            x_MD = layer(x_MD, memory_ND, spans, memory_spans)
        return x_MD

    def forward(self, source: Side, target: Side) -> Tensor:
        """Decoder output MD."""
        return self.decode(target, self.encode(source), source)

    def logits(self, x_MD: Tensor) -> Tensor:
        """Scores MV of every next token before the softmax."""
        return F.linear(x_MD, self.target_embedding.weight)

    def start(self, source: Side) -> DecoderCache:
        """The cache that decoding these sentences (one block) begins with."""
        memory_ND = self.encode(source)
        spans = _spans(source, source)
        layers = tuple(layer.start(memory_ND, spans) for layer in self.decoder)  # type: ignore[operator]
        return DecoderCache(layers, spans[0].bias, 0)

    def step(self, tokens_R: Tensor, cache: DecoderCache) -> tuple[Tensor, DecoderCache]:
        """Scores RV of the token after `tokens_R`, and the cache to go on with."""
        x_RD = self._embed(self.target_embedding, tokens_R, torch.full_like(tokens_R, cache.length), cache.length + 1)
        layers = []
        for layer, layer_cache in zip(self.decoder, cache.layers, strict=True):
            x_RD, layer_cache = layer.step(x_RD, layer_cache, cache.memory_bias)  # type: ignore[operator]
            layers.append(layer_cache)
        return self.logits(x_RD), DecoderCache(tuple(layers), cache.memory_bias, cache.length + 1)


def _spans(queries: Side, keys: Side) -> list[Span]:
    """Spans of attention from all positions of one side's sentences to the other's real ones."""
    lengths = keys.lengths_B.split([block.sentences for block in keys.blocks])
    return [
        Span(q.sentences, q.width, k.width, key_padding_bias(n, k.width) if k.padded else None)
        for q, k, n in zip(queries.blocks, keys.blocks, lengths, strict=True)
    ]
