"""Diverse beam search (Vijayakumar et al. 2016): later groups avoid the tokens that earlier groups choose.

Shapes: see docs/architecture.md; B groups (those of a sentence are neighbours), W hypotheses a group, V vocabulary,
C candidates, X groups of one number.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from nmt.decoding.candidates import Candidates, largest


@dataclass(frozen=True)
class Diversity:
    """Hamming diversity between the groups of a sentence.

    Attributes:
        groups: groups of a sentence.
        strength: λ, what a token's log P loses for each hypothesis of an earlier group that continues with it now.
    """

    groups: int
    strength: float

    def candidates(self, log_probs_BWV: Tensor, offsets_BW: Tensor, k: int, eos: int) -> Candidates:
        """Returns the `k` best candidates of each group, ranked with the penalty, with their log P without it.

        EOS has no penalty, so that all groups can end at the length that suits them.
        """
        _, width, vocabulary = log_probs_BWV.shape
        counts_XV = log_probs_BWV.new_zeros(len(log_probs_BWV) // self.groups, vocabulary)
        made = []
        for group in range(self.groups):
            x_XWV, offsets_XW = log_probs_BWV[group :: self.groups], offsets_BW[group :: self.groups]
            ranks_XC, places_XC = largest(x_XWV - self.strength * counts_XV[:, None], offsets_XW, k)
            parents_XC = places_XC // vocabulary
            log_probs_XC = offsets_XW.gather(1, parents_XC) + x_XWV.flatten(1).gather(1, places_XC)
            made.append(Candidates.at(places_XC, log_probs_XC, x_XWV, eos))
            live_XW = made[-1].live(width)
            counted_XW = ranks_XC.isfinite().gather(1, live_XW)
            counts_XV.scatter_add_(1, made[-1].tokens_BC.gather(1, live_XW), counted_XW.to(counts_XV.dtype))
        return Candidates(*(torch.stack(parts, 1).flatten(0, 1) for parts in zip(*made, strict=True)))
