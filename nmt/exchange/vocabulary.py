"""How the ids of other toolkits become ours, in which 0 to 3 are PAD, UNK, BOS and EOS.

MarianMT begins a target with its PAD, and fairseq with its EOS. nmt has a separate id for BOS. So one row of their
embeddings becomes two rows of ours, and an output bias makes one of the two practically impossible.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nmt.errors import NmtError
from nmt.text.subword import without_surrogates

SPECIAL_PIECES = "<pad>", "<unk>", "<s>", "</s>"
# A logit of this size has practically the probability 0. It is finite, because label smoothing sums all logits.
_SILENT = -100.0


@dataclass(frozen=True)
class Ids:
    """The ids of another toolkit.

    Attributes:
        special: its ids of PAD, UNK, BOS and EOS.
        size: how many ids there are.
    """

    special: tuple[int, int, int, int]
    size: int

    @property
    def order(self) -> list[int]:
        """Their id for each of ours."""
        return [*self.special, *(i for i in range(self.size) if i not in self.special)]

    def output_bias(self, bias_V: Tensor) -> Tensor:
        """Returns the bias of our logits for the bias of theirs."""
        ours_V = bias_V[self.order]
        silent = [i for i, theirs in enumerate(self.special) if theirs in self.special[i + 1 :]]
        ours_V[silent] = _SILENT
        return ours_V

    def vocabulary(self, pieces: Mapping[int, str], origin: str) -> list[str]:
        """Returns the piece of each of our ids. An id without a piece gets a name, and so does a second special piece.

        Raises:
            NmtError: a piece has such a name, or is not text. The message names `origin`.
        """
        rest = (pieces.get(i, f"<unused {i}>") for i in self.order[len(SPECIAL_PIECES) :])
        found = [*SPECIAL_PIECES, *(f"<{piece}>" if piece in SPECIAL_PIECES else piece for piece in rest)]
        for piece, count in Counter(found).items():
            if piece != without_surrogates(piece):
                raise NmtError(f"{origin} has the piece {piece!r:.40}, which is not valid text; rename it")
            if count > 1:
                raise NmtError(f"{origin} has the piece {piece!r:.40}, a name that nmt uses itself; rename it")
        return found


def ids_of(special: Sequence[object], size: int, origin: str) -> Ids:
    """Returns the ids of another toolkit.

    Raises:
        NmtError: a special id is not one of the ids. The message names `origin`.
    """
    names = ("padding", "the unknown piece", "the beginning of a target", "the end of a sentence")
    for name, value in zip(names, special, strict=True):
        if type(value) is not int or not 0 <= value < size:
            raise NmtError(
                f"{origin}: the id of {name} is {value!r:.40}, but there are {size:,} ids; export the model again"
            )
    return Ids(tuple(special), size)  # type: ignore[arg-type] # they were checked


def rows_of(embedding_VD: Tensor, ids: Ids, columns_D: Tensor) -> Tensor:
    """Returns an embedding in the order of our ids and columns."""
    return embedding_VD[torch.tensor(ids.order)].index_select(1, columns_D)
