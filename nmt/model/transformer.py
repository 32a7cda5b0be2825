"""The Transformer (paper §3).

Shapes: B sentences, N flat source positions, M flat target positions, D d_model, V target vocabulary; in decoding W
hypotheses a sentence, R = B·W rows, T positions kept, P = T·W.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.config import ModelConfig
from nmt.data.loader import Side
from nmt.model.attention import Span, Spans
from nmt.model.dropout import Dropout
from nmt.model.layers import DecoderLayer, EncoderLayer, LayerCache
from nmt.model.masks import causal_bias, key_padding_bias, restricted, visible_bias
from nmt.model.packed import Segments
from nmt.model.positions import LearnedPositions, SinusoidalPositions

# Decoding takes rows in multiples of this, because a CPU's bf16 products are compiled for every new number of rows.
_MULTIPLE = 32


@dataclass(frozen=True)
class DecoderCache:
    """The decoder's state between steps, which `step` uses up.

    Attributes:
        layers: keys and values of every layer.
        memory_bias: hides the padding of the encoder output, if there is any.
        length: positions so far.
        ancestors_BWT: the number that a hypothesis had within its sentence when each of the positions that are kept was
            computed, and so which keys and values it sees.
    """

    layers: tuple[LayerCache, ...]
    memory_bias: Tensor | None
    length: int
    ancestors_BWT: Tensor

    def select(self, parents_BW: Tensor, sentences_B: Tensor | None) -> "DecoderCache":
        """The state of the hypotheses that go on from these, by their number within the sentence.

        Only of the sentences numbered in `sentences_B`, unless None; B of `parents_BW` counts those.
        """
        layers, bias, ancestors_BWT = self.layers, self.memory_bias, self.ancestors_BWT
        if sentences_B is not None:
            layers = tuple(layer.of(sentences_B) for layer in layers)
            bias = None if bias is None else bias[sentences_B]
            ancestors_BWT = ancestors_BWT[sentences_B]
        index_BWT = parents_BW[:, :, None].expand(-1, -1, ancestors_BWT.shape[2])
        return DecoderCache(layers, bias, self.length, ancestors_BWT.gather(1, index_BWT))


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
        self.source_positions, self.target_positions = _positions(config)
        self.dropout = Dropout(config.dropout)
        self._call_packed = _call
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        pre = config.norm == "pre"  # whose layers leave their sums as they are
        self.encoder_norm, self.decoder_norm = (nn.LayerNorm(config.d_model) if pre else nn.Identity() for _ in "ed")
        for embedding in (self.target_embedding, self.source_embedding):
            if embedding is not None:
                nn.init.normal_(embedding.weight, std=config.d_model**-0.5)

    def _embed(
        self, embedding: nn.Embedding, tokens_N: Tensor, positions: nn.Module, positions_N: Tensor, longest: int
    ) -> Tensor:
        x_ND = embedding(tokens_N) * self.config.d_model**0.5
        return self.dropout(x_ND + positions(positions_N, longest))

    def _embed_target(self, tokens_N: Tensor, positions_N: Tensor, longest: int) -> Tensor:
        return self._embed(self.target_embedding, tokens_N, self.target_positions, positions_N, longest)

    def encode(self, source: Side) -> Tensor:
        """Encoder output, ND."""
        embedding = self.source_embedding or self.target_embedding
        x_ND = self._embed(embedding, source.tokens_N, self.source_positions, source.positions_N, source.longest)
        spans = self._own_spans(source, causal=False)
        call = self._call_packed if source.blocks is None else _call
        for layer in self.encoder:
            x_ND = call(layer, x_ND, spans)
        return self.encoder_norm(x_ND)

    def decode(self, target: Side, memory_ND: Tensor, source: Side) -> Tensor:
        """Decoder output MD at every target position, which sees the positions up to itself."""
        x_MD = self._embed_target(target.tokens_N, target.positions_N, target.longest)
        spans, memory_spans = self._own_spans(target, causal=True), _spans(target, source)
        call = self._call_packed if target.blocks is None else _call
        for layer in self.decoder:
            x_MD = call(layer, x_MD, memory_ND, spans, memory_spans)
        return self.decoder_norm(x_MD)

    def _own_spans(self, side: Side, *, causal: bool) -> Spans:
        """Of attention from all positions of one side's sentences to the same sentences."""
        size = self.config.attention_window
        if side.blocks is None:
            return Segments.of(side, side, causal=causal)
        if size is not None:
            lengths = side.lengths_B.split([block.sentences for block in side.blocks])
            return [
                Span(b.sentences, b.width, b.width, *restricted(n, b.width, size, causal=causal))
                for b, n in zip(side.blocks, lengths, strict=True)
            ]
        if causal:
            # A position's own padding lies in its future, so the causal bias hides that as well.
            device = side.tokens_N.device
            return [Span(b.sentences, b.width, b.width, causal_bias(b.width, device)) for b in side.blocks]
        return _spans(side, side)

    def compile_layers(self) -> None:
        """Has torch compile the layers for batches without padding, of any size, when they first meet one."""
        self._call_packed = torch.compile(_call, dynamic=True)

    def forward(self, source: Side, target: Side) -> Tensor:
        """Decoder output MD."""
        return self.decode(target, self.encode(source), source)

    def logits(self, x_MD: Tensor) -> Tensor:
        """Scores MV of every next token before the softmax."""
        return F.linear(x_MD, self.target_embedding.weight)

    def start(self, source: Side, beam: int) -> DecoderCache:
        """The cache that decoding these sentences (one block) with `beam` hypotheses each begins with."""
        memory_ND = self.encode(source)
        (span,) = _padded_spans(source, source)
        layers = tuple(layer.start(memory_ND, span, beam) for layer in self.decoder)  # type: ignore[operator]
        return DecoderCache(layers, span.bias, 0, source.tokens_N.new_empty(span.sentences, beam, 0))

    def step(self, tokens_R: Tensor, cache: DecoderCache) -> tuple[Tensor, DecoderCache]:
        """Scores RV of the token after `tokens_R`, one for each hypothesis, and the cache to go on with."""
        sentences, beam, _ = cache.ancestors_BWT.shape
        # Of restricted attention, the newest takes the place of the oldest.
        slot = cache.length % (self.config.attention_window or cache.length + 1)
        newest_BW1 = torch.arange(beam, device=tokens_R.device).expand(sentences, -1)[:, :, None]
        older = cache.ancestors_BWT[:, :, :slot], cache.ancestors_BWT[:, :, slot + 1 :]
        ancestors_BWT = torch.cat((older[0], newest_BW1, older[1]), dim=2)
        keys = ancestors_BWT.shape[2] * beam
        own = Span(sentences, beam, keys, _ancestors_bias(ancestors_BWT) if beam > 1 else None)
        memory = Span(sentences, beam, cache.layers[0].memory_keys_BHSK.shape[2], cache.memory_bias)
        multiple = _MULTIPLE if tokens_R.device.type == "cpu" else 1
        padded_R = F.pad(tokens_R, (0, -len(tokens_R) % multiple))
        x_RD = self._embed_target(padded_R, torch.full_like(padded_R, cache.length), cache.length + 1)
        for layer, layer_cache in zip(self.decoder, cache.layers, strict=True):
            x_RD = layer.step(x_RD, layer_cache, slot, own, memory)  # type: ignore[operator]
        logits_RV = self.logits(self.decoder_norm(x_RD))[: len(tokens_R)]
        return logits_RV, replace(cache, length=cache.length + 1, ancestors_BWT=ancestors_BWT)


def _call(layer: nn.Module, *inputs: Any) -> Any:
    """The layer's output; a function, because that is compiled once for all layers of a kind, and a layer once each."""
    return layer(*inputs)


def _positions(config: ModelConfig) -> tuple[nn.Module, nn.Module]:
    """Of source and target: the same sinusoids, or learned ones each."""
    if config.learned_positions is None:
        sinusoids = SinusoidalPositions(config.d_model)
        return sinusoids, sinusoids
    return tuple(LearnedPositions(config.d_model, config.learned_positions) for _ in range(2))  # type: ignore[return-value]


def _ancestors_bias(ancestors_BWT: Tensor) -> Tensor:
    """The bias B1WP that leaves a hypothesis, of all its sentence's keys, those of its ancestors."""
    numbers_W = torch.arange(ancestors_BWT.shape[1], device=ancestors_BWT.device)
    return visible_bias((ancestors_BWT[..., None] == numbers_W).flatten(2))[:, None]


def _spans(queries: Side, keys: Side) -> Spans:
    """Of attention from all positions of one side's sentences to the other's real ones."""
    return Segments.of(queries, keys) if queries.blocks is None else _padded_spans(queries, keys)


def _padded_spans(queries: Side, keys: Side) -> list[Span]:
    assert queries.blocks is not None and keys.blocks is not None
    lengths = keys.lengths_B.split([block.sentences for block in keys.blocks])
    return [
        Span(q.sentences, q.width, k.width, key_padding_bias(n, k.width) if k.padded else None)
        for q, k, n in zip(queries.blocks, keys.blocks, lengths, strict=True)
    ]
