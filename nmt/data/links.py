"""The word alignments of a micro-batch, for --guided-alignment.

Shapes: see docs/architecture.md; B sentences, T target and S source positions of a sentence, L links.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nmt.data.store import ParallelSplit, sentences_of
from nmt.model.masks import Layout, moved


@dataclass(frozen=True)
class Links:
    """The linked pieces of a padded micro-batch.

    The attention weights of one head are B × T × S numbers for each block, and those of all blocks lie end to end.

    Attributes:
        places_L: the place of each link in these numbers.
        shares_L: 1 over the number of links that its target piece has.
    """

    places_L: Tensor
    shares_L: Tensor

    def to(self, device: torch.device) -> "Links":
        """Returns the links with their tensors on the device."""
        return Links(moved(self.places_L, device), moved(self.shares_L, device))


def links_of(split: ParallelSplit, blocks: Sequence[np.ndarray], source: Layout, target: Layout) -> Links:
    """Returns the links of a padded micro-batch."""
    assert split.links and source.blocks and target.blocks
    places, shares, start = [], [], 0
    for block, of_source, of_target in zip(blocks, source.blocks, target.blocks, strict=True):
        for links in sentences_of(split.links, block):
            i, j = links.astype(np.int64).reshape(-1, 2).T
            places.append(start + j * of_source.width + i)
            shares.append(1 / np.bincount(j)[j])
            start += of_target.width * of_source.width
    return Links(torch.from_numpy(np.concatenate(places)), torch.from_numpy(np.concatenate(shares)).float())
