"""How the sentences of a batch lie in one flat axis, and which query may see which key.

Shapes: see docs/architecture.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional as F

from nmt.text.subword import PAD


@dataclass(frozen=True)
class Block:
    """Consecutive sentences that are padded to the same width; `padded` says whether any of them is shorter."""

    sentences: int
    width: int
    padded: bool


@dataclass(frozen=True)
class Layout:
    """How the sentences of one side of a batch lie in its flat axis F.

    Attributes:
        positions_F: the position of each flat position within its sentence, from 0.
        lengths_B: the number of tokens of each sentence.
        longest: the largest number of positions of a sentence, padding included.
        blocks: the padded blocks, in order; None if the sentences are packed.
    """

    positions_F: Tensor
    lengths_B: Tensor
    longest: int
    blocks: tuple[Block, ...] | None

    @classmethod
    def of_padded(cls, ids_BT: Tensor) -> Self:
        """Returns the layout of `ids_BT.flatten()`. Sentences end with PAD if they are shorter than T."""
        sentences, width = ids_BT.shape
        lengths_B = (ids_BT != PAD).sum(1)
        positions_F = torch.arange(width, device=ids_BT.device).repeat(sentences)
        return cls(positions_F, lengths_B, width, (Block(sentences, width, padded=bool((lengths_B < width).any())),))


@dataclass(frozen=True)
class BlockMask:
    """The mask of a block of sentences whose queries, and whose keys, are padded to one width.

    Attributes:
        sentences: B.
        queries, keys: positions of a sentence, padding included.
        bias: what is added to the scores, broadcast to BHQS; None if every query sees every key.
        window: how restricted attention is cut into blocks; replaces the bias.
    """

    sentences: int
    queries: int
    keys: int
    bias: Tensor | None
    window: Window | None = None

    def keep(self, sentences_X: Tensor) -> Self:
        """Returns the mask of some of the sentences."""
        return replace(self, sentences=len(sentences_X), bias=None if self.bias is None else self.bias[sentences_X])


@dataclass(frozen=True)
class PackedMask:
    """The mask of packed sentences: sentence n of the queries attends to sentence n of the keys.

    One call of a GPU kernel computes sentences of all lengths, without padding.

    Attributes:
        query_starts, key_starts: where each sentence begins and the last one ends; int32, B + 1.
        longest_query, longest_key: bounds on the positions of a sentence.
        causal: whether a query sees only the positions up to its own.
    """

    query_starts: Tensor
    key_starts: Tensor
    longest_query: int
    longest_key: int
    causal: bool

    @classmethod
    def of(cls, queries: Layout, keys: Layout, *, causal: bool) -> Self:
        """Returns the mask of two packed layouts with the same number of sentences."""
        starts = sentence_starts(queries.lengths_B), sentence_starts(keys.lengths_B)
        return cls(*starts, bound_on(queries.longest), bound_on(keys.longest), causal)

    def attend(self, q_FHK: Tensor, k_GHK: Tensor, v_GHK: Tensor, scale: float, dropout: float = 0.0) -> Tensor:
        """Returns Dropout(softmax(scale · q kᵀ)) v within the sentences, FHK."""
        from nmt.model.packed_attention import attend_packed  # needs Triton

        lengths, longest = (self.query_starts, self.key_starts), (self.longest_query, self.longest_key)
        # On the device, so that each replay of a CUDA graph draws another one.
        seed = torch.randint(1 << 31, (1,), device=q_FHK.device) if dropout else self.query_starts
        return attend_packed(q_FHK, k_GHK, v_GHK, *lengths, seed, *longest, self.causal, scale, dropout)[0]


# One mask for each padded block, or one for all packed sentences.
Mask = tuple[BlockMask, ...] | PackedMask


def self_attention_mask(layout: Layout, window: int | None, *, causal: bool) -> Mask:
    """Returns the mask of attention within the sentences of one side."""
    if layout.blocks is None:
        return PackedMask.of(layout, layout, causal=causal)
    if window is None and not causal:
        return padding_mask(layout, layout)
    masks = []
    lengths = layout.lengths_B.split([block.sentences for block in layout.blocks])
    for width, lengths_B in zip((block.width for block in layout.blocks), lengths, strict=True):
        bias, cut = None, None
        if window is None:
            # This also hides padding, because it comes after all tokens of its sentence.
            bias = torch.full((width, width), -torch.inf, device=lengths_B.device).triu_(1)
        else:
            first_BQ, last_BQ = neighbours(lengths_B, width, window, causal=causal)
            if width > 3 * window:  # for shorter sentences, it is less work to compute all scores and to mask them
                cut = Window.of(first_BQ, last_BQ, window)
            else:
                positions_S = torch.arange(width, device=first_BQ.device)
                bias = visible_bias((positions_S >= first_BQ[..., None]) & (positions_S < last_BQ[..., None]))[:, None]
        masks.append(BlockMask(len(lengths_B), width, width, bias, cut))
    return tuple(masks)


def padding_mask(queries: Layout, keys: Layout) -> Mask:
    """Returns the mask that hides padding: sentence n of the queries sees all tokens of sentence n of the keys."""
    if queries.blocks is None or keys.blocks is None:
        return PackedMask.of(queries, keys, causal=False)
    masks = []
    lengths = keys.lengths_B.split([block.sentences for block in keys.blocks])
    for query_block, key_block, lengths_B in zip(queries.blocks, keys.blocks, lengths, strict=True):
        bias_B11S = None
        if key_block.padded:
            positions_S = torch.arange(key_block.width, device=lengths_B.device)
            # A sentence without tokens sees its first position, because the softmax of nothing is NaN.
            bias_B11S = visible_bias(positions_S < lengths_B.clamp(min=1)[:, None])[:, None, None]
        masks.append(BlockMask(query_block.sentences, query_block.width, key_block.width, bias_B11S))
    return tuple(masks)


def visible_bias(visible: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Returns the bias on attention scores that hides what is not visible: 0 where True, −∞ where False."""
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill_(~visible, -torch.inf)


def bound_on(longest: int) -> int:
    """Returns a bound on the length of sentences: a power of 4 and at least 64, so that there are few bounds."""
    bits = max(6, (longest - 1).bit_length())
    return 1 << (bits + bits % 2)


def sentence_starts(lengths_B: Tensor) -> Tensor:
    """Returns where each packed sentence begins and the last one ends; int32, B + 1."""
    return F.pad(lengths_B.cumsum(0), (1, 0)).to(torch.int32)


# Self-attention restricted to a neighbourhood of r positions (paper §4, Table 1).


def neighbours(lengths_B: Tensor, width: int, size: int, *, causal: bool) -> tuple[Tensor, Tensor]:
    """Returns the first key that each query sees and the one after the last, both BQ.

    A query sees the `size` nearest positions. If `size` is even, the extra one lies before the query. At the ends
    of a sentence, and if `causal`, the neighbourhood lies to one side.
    """
    positions_BQ = torch.arange(width, device=lengths_B.device).expand(len(lengths_B), -1)
    if causal:
        return (positions_BQ - size + 1).clamp(min=0), positions_BQ + 1
    first_BQ = torch.minimum(positions_BQ - size // 2, lengths_B[:, None] - size).clamp(min=0)
    return first_BQ, torch.minimum(first_BQ + size, lengths_B[:, None])


@dataclass(frozen=True)
class Window:
    """Attention to neighbourhoods, one block of queries after the other, so that its cost grows with Q and not Q².

    Attributes:
        keys_before: keys before a block's first query that the block sees.
        bias_BI1JX: hides those of a block's keys that a query must not see.
    """

    keys_before: int
    bias_BI1JX: Tensor

    @classmethod
    def of(cls, first_BQ: Tensor, last_BQ: Tensor, size: int) -> Window:
        """Makes the blocks for queries that see at most `size` keys; `first_BQ`, `last_BQ` as in `neighbours`."""
        blocks = -(-first_BQ.shape[1] // size)
        rest = blocks * size - first_BQ.shape[1]
        first, last = (F.pad(x, (0, rest)).unflatten(1, (blocks, size))[..., None] for x in (first_BQ, last_BQ))
        keys_before, keys_behind = size - 1, (size - 1) // 2
        starts_I = torch.arange(blocks, device=first.device) * size - keys_before
        keys_I1X = starts_I[:, None, None] + torch.arange(keys_before + size + keys_behind, device=first.device)
        visible_BIJX = (keys_I1X >= first) & (keys_I1X < last)
        visible_BIJX |= ~visible_BIJX.any(-1, keepdim=True)  # padding sees all, as a softmax over nothing is NaN
        return cls(keys_before, visible_bias(visible_BIJX)[:, :, None])

    def attend(self, q_BHQK: Tensor, k_BHQK: Tensor, v_BHQU: Tensor, function: Callable[..., Tensor]) -> Tensor:
        """Returns `function(q, k, v, bias)` of all blocks, BHQU."""
        sentences, width = q_BHQK.shape[0], q_BHQK.shape[2]
        blocks, _, size, keys = self.bias_BI1JX.shape[1:]
        q = F.pad(q_BHQK, (0, 0, 0, blocks * size - width)).unflatten(2, (blocks, size)).transpose(1, 2)
        behind = (blocks - 1) * size + keys - self.keys_before - width
        k, v = (
            F.pad(x, (0, 0, self.keys_before, behind)).unfold(2, keys, size).permute(0, 2, 1, 4, 3).flatten(0, 1)
            for x in (k_BHQK, v_BHQU)
        )
        attended = function(q.flatten(0, 1), k, v, self.bias_BI1JX.expand(sentences, -1, -1, -1, -1).flatten(0, 1))
        return attended.unflatten(0, (sentences, blocks)).transpose(1, 2).flatten(2, 3)[:, :, :width]
