"""The best continuations of hypotheses.

Shapes: see docs/architecture.md; B sentences, W hypotheses a sentence, V vocabulary, C candidates. In `largest`, rows
are cut into I blocks of J numbers.
"""

from typing import NamedTuple, Self

import torch
from torch import Tensor

# Numbers in a block; `largest` looks at the contents of few blocks only.
_BLOCK = 64


class Candidates(NamedTuple):
    """Continuations of each sentence's hypotheses, in the order in which search prefers them.

    Attributes:
        log_probs_BC: log P of the hypothesis with its new token; -inf where there is no such candidate.
        parents_BC: which hypothesis is continued.
        tokens_BC: the new token.
        token_log_probs_BC: log P of the new token alone.
        ended_BC: whether the token is EOS.
    """

    log_probs_BC: Tensor
    parents_BC: Tensor
    tokens_BC: Tensor
    token_log_probs_BC: Tensor
    ended_BC: Tensor

    @classmethod
    def at(cls, places_BC: Tensor, log_probs_BC: Tensor, x_BWV: Tensor, eos: int) -> Self:
        """Returns the candidates at these places among the W·V numbers `x_BWV`, the tokens' log P."""
        parents_BC, tokens_BC = places_BC // x_BWV.shape[2], places_BC % x_BWV.shape[2]
        token_log_probs_BC = x_BWV.flatten(1).gather(1, places_BC)
        return cls(log_probs_BC, parents_BC, tokens_BC, token_log_probs_BC, tokens_BC == eos)

    def live(self, width: int) -> Tensor:
        """Returns which candidates are the first `width` that do not end, BW."""
        # A stable sort by "has ended" keeps the order of the rest.
        return self.ended_BC.to(torch.uint8).argsort(dim=1, stable=True)[:, :width]


def largest(x_BWV: Tensor, offsets_BW: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Returns the `k` largest numbers x + offset of each sentence, BC, and their places among its W·V numbers.

    Returns all of them if there are fewer than `k`. Rows are cut into blocks: the k largest numbers lie within the k
    blocks with the largest maxima, or behind the last whole block, and finding maxima is much faster than `topk`.
    """
    sentences, width, vocabulary = x_BWV.shape
    blocks = vocabulary // _BLOCK
    whole = blocks * _BLOCK
    x_BWIJ = x_BWV[:, :, :whole].unflatten(2, (blocks, _BLOCK))
    chosen_BC = (x_BWIJ.amax(3) + offsets_BW[:, :, None]).flatten(1).topk(min(k, width * blocks)).indices
    b_B1 = torch.arange(sentences, device=x_BWV.device)[:, None]
    w_BC, i_BC = chosen_BC // max(blocks, 1), chosen_BC % max(blocks, 1)
    inside_BCJ = x_BWIJ[b_B1, w_BC, i_BC] + offsets_BW.gather(1, w_BC)[:, :, None]
    behind_BWX = x_BWV[:, :, whole:] + offsets_BW[:, :, None]
    best_BC, index_BC = torch.cat((inside_BCJ.flatten(1), behind_BWX.flatten(1)), 1).topk(min(k, width * vocabulary))
    places_WV = torch.arange(width * vocabulary, device=x_BWV.device).view(width, vocabulary)
    inside_BCJ = (w_BC * vocabulary + i_BC * _BLOCK)[:, :, None] + places_WV[0, :_BLOCK]
    behind_BX = places_WV[:, whole:].flatten().expand(sentences, -1)
    return best_BC, torch.cat((inside_BCJ.flatten(1), behind_BX), 1).gather(1, index_BC)
