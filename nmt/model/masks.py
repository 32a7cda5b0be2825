"""Attention masks: which query sees which key.

A mask is made once for a batch and used by all layers. Padded sentences have a bias on their scores, 0 or −∞; packed
sentences have their boundaries (see `nmt.model.packed`).

Shapes: see docs/architecture.md; B sentences, Q queries and S keys of a sentence.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nmt.data.layout import Layout
from nmt.model.packed import PackedMask
from nmt.model.windows import Window, neighbours, visible_bias

# Restricted attention is computed block by block in sentences wider than this many windows. Below, masking the whole
# square of scores is less work.
_WINDOWS_WORTH_CUTTING = 3


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


# One mask for each padded block, or one for all packed sentences.
Mask = tuple[BlockMask, ...] | PackedMask


def self_attention_mask(layout: Layout, window: int | None, *, causal: bool) -> Mask:
    """Returns the mask of attention within the sentences of one side.

    Args:
        window: how many nearest positions a query sees (paper §4); None for all.
        causal: whether a query sees only the positions up to its own.
    """
    if layout.blocks is None:
        return PackedMask.of(layout, layout, causal=causal)
    if window is None and not causal:
        return cross_attention_mask(layout, layout)
    lengths = layout.lengths_B.split([block.sentences for block in layout.blocks])
    return tuple(
        _restricted(n, block.width, window, causal=causal) if window else _causal(n, block.width)
        for block, n in zip(layout.blocks, lengths, strict=True)
    )


def cross_attention_mask(queries: Layout, keys: Layout) -> Mask:
    """Returns the mask with which sentence n of the queries sees all real positions of sentence n of the keys."""
    if queries.blocks is None or keys.blocks is None:
        return PackedMask.of(queries, keys, causal=False)
    lengths = keys.lengths_B.split([block.sentences for block in keys.blocks])
    return tuple(
        BlockMask(q.sentences, q.width, k.width, padding_bias(n, k.width) if k.padded else None)
        for q, k, n in zip(queries.blocks, keys.blocks, lengths, strict=True)
    )


def _causal(lengths_B: Tensor, width: int) -> BlockMask:
    # A sentence's padding lies in the future of all its tokens, so the causal bias hides that as well.
    bias_QS = torch.full((width, width), -torch.inf, device=lengths_B.device).triu_(1)
    return BlockMask(len(lengths_B), width, width, bias_QS)


def _restricted(lengths_B: Tensor, width: int, size: int, *, causal: bool) -> BlockMask:
    first_BQ, last_BQ = neighbours(lengths_B, width, size, causal=causal)
    if width > _WINDOWS_WORTH_CUTTING * size:
        return BlockMask(len(lengths_B), width, width, None, Window.of(first_BQ, last_BQ, size))
    positions_S = torch.arange(width, device=first_BQ.device)
    visible_BQS = (positions_S >= first_BQ[..., None]) & (positions_S < last_BQ[..., None])
    return BlockMask(len(lengths_B), width, width, visible_bias(visible_BQS)[:, None])


def padding_bias(lengths_B: Tensor, width: int) -> Tensor:
    """Returns the bias B11S that hides the padding of the keys.

    The first key of an empty sentence is not hidden, so that its softmax is finite.
    """
    seen_B1 = lengths_B.clamp(min=1)[:, None]
    return visible_bias(torch.arange(width, device=lengths_B.device) < seen_B1)[:, None, None]
