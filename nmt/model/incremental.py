"""Decoding position by position: the decoder's state between steps, and one step for all hypotheses.

Keys and values are computed once and cached. Those of a step are kept in the next slot, or with a window, in place of
the oldest ones. Row t·W + w of a cache holds hypothesis w at slot t. Reordering moves no keys and values;
`DecoderCache.ancestors_BWT` records which rows belong to which hypothesis.

Sentences can join between two steps. The slots before a sentence that joins are hidden from it. On a CPU, hidden rows
do not change the rounding if the matrix product adds rows in order. It does so for at least `_LEAST_ROWS` rows. MKL
stops doing so at about 240 rows.

Shapes: see docs/architecture.md; B sentences, W hypotheses a sentence, R ≥ B·W rows (padding at the end), T slots,
P ≥ T·W rows of a cache, S source positions, N flat source positions, D d_model, H heads, K d_k, U d_v, V vocabulary.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from nmt.config import ModelConfig
from nmt.model.attention import padded_blocks, widened
from nmt.model.masks import BlockMask, Layout, PackedMask, cross_attention_mask, visible_bias
from nmt.model.transformer import DecoderLayer, MultiHeadAttention, OutputLayer, Transformer

# A step takes a multiple of this many rows, because a CPU's bf16 products are compiled for every new number of rows.
_CPU_MULTIPLE = 32
# On a GPU, attention is computed for a multiple of this many slots. Some are hidden. Its kernels need aligned rows.
_GPU_MULTIPLE = 8
# Slots that a cache has room for at first; the room doubles when they are full.
_FIRST_SLOTS = 16
# A cache has at least so many rows for each sentence. Some are hidden. Sums over fewer rows are rounded differently.
_LEAST_ROWS = 16


class CrossCache(NamedTuple):
    """Keys and values of the encoder output of one block, whose sentences are padded to one width.

    The bias masks the padding; it is None if there is no padding.
    """

    keys_BHSK: Tensor
    values_BHSU: Tensor
    bias_B11S: Tensor | None

    def keep(self, sentences_B: Tensor) -> Self:
        """Returns the cache of some of the sentences."""
        bias_B11S = None if self.bias_B11S is None else self.bias_B11S[sentences_B]
        keys_BHSK, values_BHSU = (x.index_select(0, sentences_B) for x in self[:2])
        return type(self)(keys_BHSK, values_BHSU, bias_B11S)

    @classmethod
    def united(cls, blocks: Sequence[Self]) -> Self:
        """Returns the sentences of all blocks as one block with a bias."""
        width = max(block.keys_BHSK.shape[2] for block in blocks)
        keys = [_padded(block.keys_BHSK, 0, width) for block in blocks]
        values = [_padded(block.values_BHSU, 0, width) for block in blocks]
        return cls(*map(_concatenated, (keys, values, [block.padded_bias(width) for block in blocks])))

    def padded_bias(self, width: int) -> Tensor:
        """Returns a bias for keys that are padded to this width."""
        bias_B11S = self.bias_B11S
        if bias_B11S is None:
            bias_B11S = self.keys_BHSK.new_zeros(len(self.keys_BHSK), 1, 1, self.keys_BHSK.shape[2])
        return F.pad(bias_B11S, (0, width - bias_B11S.shape[3]), value=-torch.inf)

    def join(self, others: Self, places_X: Tensor, sentences: int) -> Self:
        """Returns a block of so many sentences, with those of another block in these places."""
        widest = max(self.keys_BHSK.shape[2], others.keys_BHSK.shape[2])
        bias_B11S = _padded(self.padded_bias(widest), sentences)
        bias_B11S[places_X] = others.padded_bias(widest)
        keys_BHSK = _padded(self.keys_BHSK, sentences, widest)
        values_BHSU = _padded(self.values_BHSU, sentences, widest)
        width = others.keys_BHSK.shape[2]
        keys_BHSK[places_X, :, :width], values_BHSU[places_X, :, :width] = others.keys_BHSK, others.values_BHSU
        longest = int((bias_B11S == 0).any(0).sum())
        return type(self)(keys_BHSK[:, :, :longest], values_BHSU[:, :, :longest], bias_B11S[..., :longest])


@dataclass
class LayerCache:
    """Keys and values of a decoder layer: of its own positions, and of the encoder output block by block."""

    keys_BHPK: Tensor
    values_BHPU: Tensor
    cross: tuple[CrossCache, ...]

    def put(self, k_BHWK: Tensor, v_BHWU: Tensor, slot: int, slots: int) -> tuple[Tensor, Tensor]:
        """Writes the newest keys and values into `slot`; returns the first `slots` slots."""
        hypotheses = k_BHWK.shape[2]
        begin, end = slot * hypotheses, slots * hypotheses
        if end > self.keys_BHPK.shape[2]:
            self.keys_BHPK, self.values_BHPU = (
                F.pad(x, (0, 0, 0, 2 * end - x.shape[2])) for x in (self.keys_BHPK, self.values_BHPU)
            )
        self.keys_BHPK[:, :, begin : begin + hypotheses] = k_BHWK
        self.values_BHPU[:, :, begin : begin + hypotheses] = v_BHWU
        return self.keys_BHPK[:, :, :end], self.values_BHPU[:, :, :end]

    def keep(self, sentences_B: Tensor, of_blocks: Sequence[Tensor]) -> Self:
        """Returns the cache of some of the sentences.

        Args:
            of_blocks: which sentences of each block are kept; blocks without any are dropped.
        """
        cross = tuple(block.keep(kept_B) for block, kept_B in zip(self.cross, of_blocks, strict=True) if len(kept_B))
        # On a CPU, index_select takes a quarter of the time of an index in brackets.
        keys_BHPK, values_BHPU = (x.index_select(0, sentences_B) for x in (self.keys_BHPK, self.values_BHPU))
        return type(self)(keys_BHPK, values_BHPU, cross)

    def join(self, others: Self, places_X: Tensor, sentences: int, unneeded: int) -> Self:
        """Returns a cache of so many sentences, with those of another cache, which begin now, in these places.

        Args:
            unneeded: rows at the beginning that are dropped.
        """
        cross = CrossCache.united(self.cross).join(CrossCache.united(others.cross), places_X, sentences)
        keys_BHPK, values_BHPU = self.keys_BHPK[:, :, unneeded:], self.values_BHPU[:, :, unneeded:]
        return type(self)(_padded(keys_BHPK, sentences), _padded(values_BHPU, sentences), (cross,))


def _padded(x_BHSK: Tensor, sentences: int, width: int = 0) -> Tensor:
    """Returns the tensor with at least so many sentences and positions."""
    more, wider = max(0, sentences - len(x_BHSK)), max(0, width - x_BHSK.shape[2])
    return F.pad(x_BHSK, (0, 0, 0, wider, 0, 0, 0, more)) if more or wider else x_BHSK


def _concatenated(tensors: Sequence[Tensor]) -> Tensor:
    return tensors[0] if len(tensors) == 1 else torch.cat(list(tensors))


@dataclass(frozen=True)
class DecoderCache:
    """The decoder's state between steps. `step` writes into its tensors, so each cache is for one call.

    Attributes:
        layers: keys and values of every layer.
        length: steps so far.
        ancestors_BWT: the ancestor of hypothesis w at slot t, as the number of a hypothesis of the same sentence; -1 if
            there is none. If both hypotheses of a sentence continue hypothesis 1 of the first step, their ancestors are
            [[1, 0], [1, 1]] after the second step: hypothesis 0 sees row 1 at slot 0 and its own row at slot 1.
        starts_B: the step at which each sentence began.
        first: the step that the first slot belongs to.
    """

    layers: tuple[LayerCache, ...]
    length: int
    ancestors_BWT: Tensor
    starts_B: Tensor
    first: int = 0

    def select(self, parents_BW: Tensor, sentences_B: Tensor | None) -> Self:
        """Reorders the cache: new hypothesis w continues old hypothesis `parents_BW[b, w]`.

        If `sentences_B` is given, keeps only the sentences at these places of the present axis B. `parents_BW` then has
        one row for each of them.
        """
        layers, ancestors_BWT, starts_B = self.layers, self.ancestors_BWT, self.starts_B
        if sentences_B is not None:
            of_blocks = self._by_block(sentences_B)
            layers = tuple(layer.keep(sentences_B, of_blocks) for layer in layers)
            ancestors_BWT = ancestors_BWT[sentences_B]
            starts_B = starts_B[sentences_B]
        index_BWT = parents_BW[:, :, None].expand(-1, -1, ancestors_BWT.shape[2])
        return replace(self, layers=layers, ancestors_BWT=ancestors_BWT.gather(1, index_BWT), starts_B=starts_B)

    def join(self, others: Self, places_X: Tensor) -> Self:
        """Adds sentences that begin now: in these places of axis B, whose sentences are dropped, or behind the last."""
        present, beam, _ = self.ancestors_BWT.shape
        sentences = max(present, int(places_X.max()) + 1)
        starts_B = F.pad(self.starts_B, (0, sentences - present))
        starts_B[places_X] = self.length
        first = int(starts_B.min())
        ancestors_BWT = F.pad(self.ancestors_BWT, (0, 0, 0, 0, 0, sentences - present))
        ancestors_BWT[places_X] = -1
        unneeded = first - self.first
        both = zip(self.layers, others.layers, strict=True)
        layers = tuple(x.join(y, places_X, sentences, unneeded * beam) for x, y in both)
        return type(self)(layers, self.length, ancestors_BWT[:, :, unneeded:], starts_B, first)

    def _by_block(self, sentences_B: Tensor) -> list[Tensor]:
        """Returns which sentences of each block are among `sentences_B`, which ascend."""
        found, first = [], 0
        for block in self.layers[0].cross:
            end = first + len(block.keys_BHSK)
            found.append(sentences_B[(sentences_B >= first) & (sentences_B < end)] - first)
            first = end
        return found


def can_join(config: ModelConfig) -> bool:
    """Returns whether `DecoderCache.join` works with this model.

    The position of a sentence that is done keeps growing until another sentence takes its place. Models with learned
    positions could run out of them.
    """
    return config.learned_positions is None and config.attention_window is None


def start(model: Transformer, ids_N: Tensor, source: Layout, beam: int) -> DecoderCache:
    """Encodes sentences, which lie in padded blocks; returns the cache to decode `beam` hypotheses of each with."""
    mask = cross_attention_mask(source, source)
    assert not isinstance(mask, PackedMask)
    encoded_ND = model.encode(ids_N, source)
    layers = tuple(_start_layer(layer, encoded_ND, mask, beam) for layer in model.decoder)  # type: ignore[arg-type]
    sentences = len(source.lengths_B)
    return DecoderCache(layers, 0, ids_N.new_empty(sentences, beam, 0), ids_N.new_zeros(sentences))


def _start_layer(layer: DecoderLayer, encoded_ND: Tensor, mask: tuple[BlockMask, ...], beam: int) -> LayerCache:
    """Returns a layer's cache with the keys and values of the encoder output, and room for a few positions."""
    blocks = padded_blocks(mask, *layer.cross_attention.keys_values(encoded_ND))
    cross = tuple(_cross_cache(_cacheable(k), _cacheable(v), block.bias) for block, k, v in blocks)
    sentences = sum(block.sentences for block in mask)
    k_BHPK, v_BHPU = (x.new_zeros(sentences, x.shape[1], _FIRST_SLOTS * beam, x.shape[3]) for x in cross[0][:2])
    return LayerCache(k_BHPK, v_BHPU, cross)


def _cross_cache(keys_BHSK: Tensor, values_BHSU: Tensor, bias_B11S: Tensor | None) -> CrossCache:
    return CrossCache(keys_BHSK, values_BHSU, None if bias_B11S is None else bias_B11S.to(keys_BHSK.dtype))


def _cacheable(x_BHSK: Tensor) -> Tensor:
    """Returns keys or values in the form that attention would otherwise convert them to at every step."""
    return widened(x_BHSK) if x_BHSK.device.type == "cpu" else x_BHSK.contiguous()


@dataclass(frozen=True)
class _Step:
    """What all layers share in one step: where the newest position goes, and what each hypothesis sees.

    Attributes:
        slot: the slot of the newest position.
        slots: the number of slots in use.
        self_bias: hides from each hypothesis all rows except those of its ancestors, B1WP.
    """

    sentences: int
    beam: int
    slot: int
    slots: int
    self_bias: Tensor

    def rows(self, x_RHK: Tensor) -> Tensor:
        """Returns the rows of hypotheses by sentence, BHWK."""
        return x_RHK[: self.sentences * self.beam].unflatten(0, (self.sentences, -1)).transpose(1, 2)


def step(
    model: Transformer, ids_R: Tensor, cache: DecoderCache, output: OutputLayer | None = None
) -> tuple[Tensor, DecoderCache]:
    """Returns the logits RV of the token after `ids_R`, the newest of each hypothesis, and the next cache.

    Logits are those of the tokens in `output`, or of all.
    """
    sentences, beam, _ = cache.ancestors_BWT.shape
    window = model.config.attention_window
    slot = cache.length - cache.first
    slot = slot % window if window else slot
    multiple = 1 if ids_R.device.type == "cpu" else _GPU_MULTIPLE
    needed = max(math.ceil((slot + 1) / multiple) * multiple, math.ceil(_LEAST_ROWS / beam))
    missing = needed - cache.ancestors_BWT.shape[2]
    ancestors_BWT = F.pad(cache.ancestors_BWT, (0, max(0, missing)), value=-1)
    ancestors_BWT[:, :, slot] = torch.arange(beam, device=ids_R.device)
    bias_B1WP = _ancestors_bias(ancestors_BWT, cache.layers[0].keys_BHPK.dtype)
    now = _Step(sentences, beam, slot, ancestors_BWT.shape[2], bias_B1WP)
    in_bf16 = ids_R.device.type == "cpu" and torch.is_autocast_enabled("cpu")
    padded_R = F.pad(ids_R, (0, -len(ids_R) % _CPU_MULTIPLE)) if in_bf16 else ids_R
    x_RD = model.embed_target(padded_R, *_positions(cache, len(padded_R)))
    for layer, layer_cache in zip(model.decoder, cache.layers, strict=True):
        x_RD = _step_layer(layer, x_RD, layer_cache, now)  # type: ignore[arg-type]
    logits_RV = model.logits(model.decoder_norm(x_RD), output)[: len(ids_R)]
    return logits_RV, replace(cache, length=cache.length + 1, ancestors_BWT=ancestors_BWT)


def _positions(cache: DecoderCache, rows: int) -> tuple[Tensor, int]:
    """Returns the position of the newest token of each row, and a number above all of them."""
    sentences, beam, _ = cache.ancestors_BWT.shape
    positions_R = (cache.length - cache.starts_B).repeat_interleave(beam)
    return F.pad(positions_R, (0, rows - sentences * beam)), cache.length + 1 - cache.first


def _ancestors_bias(ancestors_BWT: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns the bias B1WP that shows each hypothesis the rows of its ancestors."""
    numbers_W = torch.arange(ancestors_BWT.shape[1], device=ancestors_BWT.device)
    return visible_bias((ancestors_BWT[..., None] == numbers_W).flatten(2), dtype)[:, None]


def _step_layer(layer: DecoderLayer, x_RD: Tensor, cache: LayerCache, now: _Step) -> Tensor:
    """Returns the layer's output RD at the newest position, whose keys and values go into the cache."""

    def self_attention(x_RD: Tensor) -> Tensor:
        q_BHWK, k_BHWK, v_BHWU = map(now.rows, layer.self_attention.self_projections(x_RD))
        k_BHPK, v_BHPU = cache.put(k_BHWK, v_BHWU, now.slot, now.slots)
        attended_BHWU = layer.self_attention.function(q_BHWK, k_BHPK, v_BHPU, now.self_bias)
        return _output(layer.self_attention, attended_BHWU, len(x_RD))

    def cross_attention(x_RD: Tensor) -> Tensor:
        q_BHWK = now.rows(layer.cross_attention.queries(x_RD))
        blocks = zip(q_BHWK.split([len(x.keys_BHSK) for x in cache.cross]), cache.cross, strict=True)
        attended = [layer.cross_attention.function(q_BHWK, *cross) for q_BHWK, cross in blocks]
        return _output(layer.cross_attention, _concatenated(attended), len(x_RD))

    x_RD = layer.self_attention_residual(x_RD, self_attention)
    x_RD = layer.cross_attention_residual(x_RD, cross_attention)
    return layer.feed_forward_residual(x_RD, layer.feed_forward)


def _output(attention: MultiHeadAttention, attended_BHWU: Tensor, rows: int) -> Tensor:
    """Returns the output of multi-head attention, with as many rows as asked for."""
    x_RX = attended_BHWU.transpose(1, 2).flatten(0, 1).flatten(1)
    return attention.output(x_RX if len(x_RX) == rows else F.pad(x_RX, (0, 0, 0, rows - len(x_RX))))
