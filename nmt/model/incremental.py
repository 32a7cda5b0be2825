"""Decoding position by position: the state before the first position, and one step for all hypotheses.

Keys and values of earlier positions and of the encoder output are computed once, and kept in a `DecoderCache`.

Shapes: see docs/architecture.md; B sentences, R rows of hypotheses with padding at the end, N flat source positions,
D d_model, V vocabulary.
"""

from dataclasses import replace
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional as F

from nmt.config import ModelConfig
from nmt.model.cache import DecoderCache, LayerCache
from nmt.model.masks import BlockMask, Layout, padding_mask
from nmt.model.transformer import DecoderLayer, OutputLayer, Transformer

# A step takes a multiple of this many rows, because a CPU's bf16 products are compiled for every new number of rows.
_CPU_MULTIPLE = 32


def can_join(config: ModelConfig) -> bool:
    """Returns whether `DecoderCache.join` works with this model.

    The position of a sentence that is done keeps growing until another sentence takes its place. Models with learned
    positions could run out of them.
    """
    return config.learned_positions is None and config.attention_window is None


def start(model: Transformer, ids_N: Tensor, source: Layout, beam: int) -> DecoderCache:
    """Encodes sentences, which lie in padded blocks; returns the cache to decode `beam` hypotheses of each with."""
    assert source.blocks is not None
    encoded_ND = model.encode(ids_N, source)
    sizes = [(block.sentences, block.width) for block in source.blocks]
    attentions = [cast(DecoderLayer, layer).cross_attention for layer in model.decoder]
    layers = tuple(LayerCache.of_source(cross.keys_values(encoded_ND), sizes, beam) for cross in attentions)
    dtype = layers[0].own[0].dtype
    mask = tuple(
        replace(block, queries=beam, bias=None if block.bias is None else block.bias.to(dtype))
        for block in cast(tuple[BlockMask, ...], padding_mask(source, source))
    )
    sentences = len(source.lengths_B)
    return DecoderCache(layers, mask, ids_N.new_empty(sentences, beam, 0), ids_N.new_zeros(sentences))


def step(
    model: Transformer, ids_R: Tensor, cache: DecoderCache, output: OutputLayer | None = None
) -> tuple[Tensor, DecoderCache]:
    """Returns the logits RV of the token after `ids_R`, the newest of each hypothesis, and the next cache.

    Logits are those of the tokens in `output`, or of all.
    """
    in_bf16 = ids_R.device.type == "cpu" and torch.is_autocast_enabled("cpu")
    padding = -len(ids_R) % _CPU_MULTIPLE if in_bf16 else 0
    _, beam, _ = cache.ancestors_BWT.shape
    positions_R = (cache.length - cache.starts_B).repeat_interleave(beam)
    longest = cache.length + 1 - cache.first
    x_RD = model.embed_target(F.pad(ids_R, (0, padding)), F.pad(positions_R, (0, padding)), longest)
    cache, self_mask = cache.next_step(model.config.attention_window)
    for layer, layer_cache in zip(model.decoder, cache.layers, strict=True):
        x_RD = layer(x_RD, None, self_mask, cache.cross_mask, layer_cache)
    return model.logits(model.decoder_norm(x_RD), output)[: len(ids_R)], cache
