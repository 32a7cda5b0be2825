"""The Transformer (paper §3).

Shapes: B sentences, N flat source positions, M flat target positions, D d_model, V target vocabulary; in decoding W
hypotheses a sentence, R = B·W rows, T positions so far, P = T·W.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.config import ModelConfig
from nmt.data.loader import Side
from nmt.model.attention import Span, causal_bias, key_padding_bias
from nmt.model.layers import DecoderLayer, Dropout, EncoderLayer, LayerCache
from nmt.model.positions import SinusoidalPositions

# Decoding takes rows in multiples of this, because a CPU's bf16 products are compiled for every new number of rows.
_MULTIPLE = 32


@dataclass(frozen=True)
class DecoderCache:
    """The decoder's state between steps, which `step` uses up.

    Attributes:
        layers: keys and values of every layer.
        memory_bias: hides the padding of the encoder output, if there is any.
        ancestors_BWT: the number that a hypothesis had within its sentence when each of its positions was computed, and
            so which keys and values it sees.
    """

    layers: tuple[LayerCache, ...]
    memory_bias: Tensor | None
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
        return DecoderCache(layers, bias, ancestors_BWT.gather(1, index_BWT))


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

    def start(self, source: Side, beam: int) -> DecoderCache:
        """The cache that decoding these sentences (one block) with `beam` hypotheses each begins with."""
        memory_ND = self.encode(source)
        (span,) = _spans(source, source)
        layers = tuple(layer.start(memory_ND, span, beam) for layer in self.decoder)  # type: ignore[operator]
        return DecoderCache(layers, span.bias, source.tokens_N.new_empty(span.sentences, beam, 0))

    def step(self, tokens_R: Tensor, cache: DecoderCache) -> tuple[Tensor, DecoderCache]:
        """Scores RV of the token after `tokens_R`, one for each hypothesis, and the cache to go on with."""
        sentences, beam, length = cache.ancestors_BWT.shape
        numbers_W = torch.arange(beam, device=tokens_R.device)
        ancestors_BWT = torch.cat((cache.ancestors_BWT, numbers_W.expand(sentences, -1)[:, :, None]), dim=2)
        own = Span(sentences, beam, (length + 1) * beam, _ancestors_bias(ancestors_BWT) if beam > 1 else None)
        memory = Span(sentences, beam, cache.layers[0].memory_keys_BHSK.shape[2], cache.memory_bias)
        padded_R = F.pad(tokens_R, (0, -len(tokens_R) % _MULTIPLE))
        x_RD = self._embed(self.target_embedding, padded_R, torch.full_like(padded_R, length), length + 1)
        for layer, layer_cache in zip(self.decoder, cache.layers, strict=True):
            x_RD = layer.step(x_RD, layer_cache, own, memory)  # type: ignore[operator]
        return self.logits(x_RD)[: len(tokens_R)], replace(cache, ancestors_BWT=ancestors_BWT)


def _ancestors_bias(ancestors_BWT: Tensor) -> Tensor:
    """The bias B1WP that leaves a hypothesis, of all its sentence's keys, those of its ancestors."""
    numbers_W = torch.arange(ancestors_BWT.shape[1], device=ancestors_BWT.device)
    other_BWP = (ancestors_BWT[..., None] != numbers_W).flatten(2)
    return torch.zeros(other_BWP.shape, device=other_BWP.device).masked_fill_(other_BWP, -torch.inf)[:, None]


def _spans(queries: Side, keys: Side) -> list[Span]:
    """Spans of attention from all positions of one side's sentences to the other's real ones."""
    lengths = keys.lengths_B.split([block.sentences for block in keys.blocks])
    return [
        Span(q.sentences, q.width, k.width, key_padding_bias(n, k.width) if k.padded else None)
        for q, k, n in zip(queries.blocks, keys.blocks, lengths, strict=True)
    ]
