"""The keys and values that the decoder keeps between steps.

A step writes its keys and values into the next slot or, with a window, over those of the oldest slot. Row t·W + w
of a cache holds hypothesis w at slot t. Reordering hypotheses moves no keys and values:
`DecoderCache.ancestors_BWT` says which rows belong to which hypothesis, and the mask hides all others.

Sentences can join between two steps; the slots before they joined are hidden from them. A hidden row adds 0 to a
sum. That leaves the rounding as it is if the matrix product adds rows in order, as MKL does for `_LEAST_ROWS` to
about 240 rows. For these, a sentence that joins gets the same numbers as one that is decoded from the beginning.

Shapes: see docs/architecture.md; B sentences, W hypotheses a sentence, R ≥ B·W rows (padding at the end), T slots,
P ≥ T·W rows of a cache, S source positions, H heads, K d_k, U d_v.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional as F

from nmt.model.attention import cut
from nmt.model.cpu_kernels import widened
from nmt.model.masks import BlockMask, Mask, visible_bias

# A cache has at least so many rows for each sentence, because sums over fewer rows are rounded differently. The
# additional rows are hidden.
_LEAST_ROWS = 16


@dataclass
class LayerCache:
    """The keys and values of a decoder layer.

    Attributes:
        own: those of the layer's own positions, BHPK and BHPU.
        source: those of the encoder output, BHSK and BHSU of each block of sentences.
        slot: the slot of the newest position.
    """

    own: tuple[Tensor, ...]
    source: tuple[tuple[Tensor, ...], ...]
    slot: int = 0

    @classmethod
    def of_source(cls, keys_values: Sequence[Tensor], blocks: Sequence[tuple[int, int]], beam: int) -> Self:
        """Returns a cache with the keys NHK and values NHU of the encoder output, and room for 16 positions.

        The room doubles when it is full.

        Args:
            blocks: sentences of each block of the flat axis, and their width.
        """
        # Attention would otherwise convert them to this form at every step.
        cacheable = widened if keys_values[0].device.type == "cpu" else Tensor.contiguous
        source = tuple(tuple(map(cacheable, cut(x_NHK, blocks))) for x_NHK in keys_values)
        sentences = sum(sentences for sentences, _ in blocks)
        return cls(tuple(x.new_zeros(sentences, x.shape[1], 16 * beam, x.shape[3]) for x, *_ in source), source)

    def append(self, k_RHK: Tensor, v_RHU: Tensor, mask: Mask) -> list[list[Tensor]]:
        """Writes the newest keys and values into `slot`; returns all keys and values in the mask, as one block."""
        assert isinstance(mask, tuple)
        (block,) = mask
        if (missing := block.keys - self.own[0].shape[2]) > 0:
            self.own = tuple(F.pad(x, (0, 0, 0, block.keys + missing)) for x in self.own)
        first = self.slot * block.queries
        for x_BHPK, new_RHK in zip(self.own, (k_RHK, v_RHU), strict=True):
            (new_BHWK,) = cut(new_RHK, [(block.sentences, block.queries)])
            x_BHPK[:, :, first : first + block.queries] = new_BHWK
        return [[x_BHPK[:, :, : block.keys]] for x_BHPK in self.own]

    def keep(self, sentences_B: Tensor, kept_by_block: Sequence[Tensor]) -> Self:
        """Returns the cache of some of the sentences.

        Args:
            kept_by_block: which sentences of each block are kept; blocks without any are dropped.
        """
        source = (
            tuple(x.index_select(0, kept_B) for x, kept_B in zip(blocks, kept_by_block, strict=True) if len(kept_B))
            for blocks in self.source
        )
        # On a CPU, index_select takes a quarter of the time of an index in brackets.
        return type(self)(tuple(x.index_select(0, sentences_B) for x in self.own), tuple(source))

    def join(self, others: Self, indices_X: Tensor, sentences: int, longest: int, unneeded: int) -> Self:
        """Returns a cache of so many sentences, with those of another cache, which begin now, at these indices.

        Args:
            longest: source positions of the longest sentence.
            unneeded: rows at the beginning that are dropped.
        """
        own = tuple(_padded(x[:, :, unneeded:], sentences) for x in self.own)
        return type(self)(own, self._joined_source(others, indices_X, sentences, longest))

    def _joined_source(
        self, others: Self, indices_X: Tensor, sentences: int, longest: int
    ) -> tuple[tuple[Tensor, ...], ...]:
        source = []
        for x_BHSK, others_BHSK in zip(map(_united, self.source), map(_united, others.source), strict=True):
            width = others_BHSK.shape[2]
            x_BHSK = _padded(x_BHSK, sentences, width)
            x_BHSK[indices_X, :, :width] = others_BHSK
            source.append((x_BHSK[:, :, :longest],))
        return tuple(source)


class RecurrentCache(LayerCache):
    """The cache of a layer with an SSRU: `own` is the state BWD of each hypothesis."""

    def reordered(self, parents_BW: Tensor) -> Self:
        """Returns the cache in which hypothesis w continues old hypothesis `parents_BW[b, w]`."""
        (state_BWD,) = self.own
        index_BWD = parents_BW[:, :, None].expand(-1, -1, state_BWD.shape[2])
        return type(self)((state_BWD.gather(1, index_BWD),), self.source)

    def join(self, others: Self, indices_X: Tensor, sentences: int, longest: int, _unneeded: int) -> Self:
        """Returns a cache as `LayerCache.join` does; new sentences begin with a state of zero."""
        (state_BWD,) = self.own
        state_BWD = F.pad(state_BWD, (0, 0, 0, 0, 0, max(0, sentences - len(state_BWD))))
        state_BWD[indices_X] = 0
        return type(self)((state_BWD,), self._joined_source(others, indices_X, sentences, longest))


def _padded(x_BHSK: Tensor, sentences: int, width: int = 0) -> Tensor:
    """Returns the tensor with at least so many sentences and positions."""
    more, wider = max(0, sentences - len(x_BHSK)), max(0, width - x_BHSK.shape[2])
    return F.pad(x_BHSK, (0, 0, 0, wider, 0, 0, 0, more)) if more or wider else x_BHSK


def _united(blocks: Sequence[Tensor]) -> Tensor:
    """Returns the sentences of all blocks BHSK as one block of the largest width."""
    width = max(x.shape[2] for x in blocks)
    return blocks[0] if len(blocks) == 1 else torch.cat([_padded(x, 0, width) for x in blocks])


@dataclass(frozen=True)
class DecoderCache:
    """The decoder's state between steps. A step writes into its tensors, so each cache is for one call.

    Attributes:
        layers: keys and values of every layer.
        cross_mask: hides the padding of the encoder output, block by block.
        ancestors_BWT: the ancestor of hypothesis w at slot t, as the number of a hypothesis of the same sentence; -1 if
            there is none. If both hypotheses of a sentence continue hypothesis 1 of the first step, their ancestors are
            [[1, 0], [1, 1]] after the second step: hypothesis 0 sees row 1 at slot 0 and its own row at slot 1.
        starts_B: the step at which each sentence began.
        length: steps so far.
        first: the step that the first slot belongs to.
    """

    layers: tuple[LayerCache, ...]
    cross_mask: tuple[BlockMask, ...]
    ancestors_BWT: Tensor
    starts_B: Tensor
    length: int = 0
    first: int = 0

    def next_step(self, window: int | None) -> tuple[Self, tuple[BlockMask, ...]]:
        """Returns the cache with a slot for the next position, and the mask that shows each hypothesis its ancestors.

        Args:
            window: slots that are used again and again; None if every position gets its own slot.

        States need neither slots nor a mask.
        """
        if isinstance(self.layers[0], RecurrentCache):
            return replace(self, length=self.length + 1), ()
        sentences, beam, slots = self.ancestors_BWT.shape
        slot = self.length - self.first
        slot = slot % window if window else slot
        # Kernels of attention on a GPU need aligned rows. Additional slots are hidden.
        multiple = 1 if self.ancestors_BWT.device.type == "cpu" else 8
        slots = max(slots, math.ceil((slot + 1) / multiple) * multiple, math.ceil(_LEAST_ROWS / beam))
        ancestors_BWT = F.pad(self.ancestors_BWT, (0, slots - self.ancestors_BWT.shape[2]), value=-1)
        hypotheses_W = torch.arange(beam, device=ancestors_BWT.device)
        ancestors_BWT[:, :, slot] = hypotheses_W
        visible_BWP = (ancestors_BWT[..., None] == hypotheses_W).flatten(2)
        bias_B1WP = visible_bias(visible_BWP, self.layers[0].own[0].dtype)[:, None]
        for layer in self.layers:
            layer.slot = slot
        cache = replace(self, ancestors_BWT=ancestors_BWT, length=self.length + 1)
        return cache, (BlockMask(sentences, beam, slots * beam, bias_B1WP),)

    def select(self, parents_BW: Tensor, sentences_B: Tensor | None) -> Self:
        """Reorders the cache: new hypothesis w continues old hypothesis `parents_BW[b, w]`.

        If `sentences_B` is given, keeps only the sentences at these indices of the present axis B, which ascend.
        `parents_BW` then has one row for each of them.
        """
        cache = self
        if sentences_B is not None:
            kept_by_block, first = [], 0  # which sentences of each block are kept
            for block in self.cross_mask:
                end = first + block.sentences
                kept_by_block.append(sentences_B[(sentences_B >= first) & (sentences_B < end)] - first)
                first = end
            blocks = zip(self.cross_mask, kept_by_block, strict=True)
            cache = replace(
                self,
                layers=tuple(layer.keep(sentences_B, kept_by_block) for layer in self.layers),
                cross_mask=tuple(block.keep(kept_B) for block, kept_B in blocks if len(kept_B)),
                ancestors_BWT=self.ancestors_BWT[sentences_B],
                starts_B=self.starts_B[sentences_B],
            )
        index_BWT = parents_BW[:, :, None].expand(-1, -1, cache.ancestors_BWT.shape[2])
        layers = tuple(
            layer.reordered(parents_BW) if isinstance(layer, RecurrentCache) else layer for layer in cache.layers
        )
        return replace(cache, layers=layers, ancestors_BWT=cache.ancestors_BWT.gather(1, index_BWT))

    def join(self, others: Self, indices_X: Tensor) -> Self:
        """Adds sentences that begin now: at these indices of B, whose sentences are dropped, or behind the last."""
        present, beam, _ = self.ancestors_BWT.shape
        sentences = max(present, int(indices_X.max()) + 1)
        starts_B = F.pad(self.starts_B, (0, sentences - present))
        starts_B[indices_X] = self.length
        first = int(starts_B.min())
        unneeded = first - self.first
        ancestors_BWT = F.pad(self.ancestors_BWT, (0, 0, 0, 0, 0, sentences - present))
        ancestors_BWT[indices_X] = -1
        widest = max(block.keys for block in (*self.cross_mask, *others.cross_mask))
        bias_B11S = _padded(self._source_bias(widest), sentences)
        bias_B11S[indices_X] = others._source_bias(widest)
        longest = int((bias_B11S == 0).any(0).sum())
        layers = tuple(
            layer.join(more, indices_X, sentences, longest, unneeded * beam)
            for layer, more in zip(self.layers, others.layers, strict=True)
        )
        cross_mask = BlockMask(sentences, beam, longest, bias_B11S[..., :longest])
        return type(self)(layers, (cross_mask,), ancestors_BWT[:, :, unneeded:], starts_B, self.length, first)

    def _source_bias(self, width: int) -> Tensor:
        """Returns the bias B11S that hides the padding of encoder output of this width."""
        zero = self.layers[0].source[0][0].new_zeros(1)
        biases = [zero.expand(b.sentences, 1, 1, b.keys) if b.bias is None else b.bias for b in self.cross_mask]
        return torch.cat([F.pad(x, (0, width - x.shape[3]), value=-torch.inf) for x in biases])
