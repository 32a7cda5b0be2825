"""Which architectures other toolkits support, and how their ids and columns become ours."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from nmt.config import ModelConfig
from nmt.config.options import flag_name
from nmt.errors import NmtError
from nmt.text.subword import without_surrogates

# Model options that both CTranslate2 and MarianMT support, or that have no effect after training.
_COMMON = "activation", "attention_biases", "output_bias", "attention_dropout", "activation_dropout", "guided_alignment"


def check_supported(config: ModelConfig, origin: str, toolkit: str, more: Collection[str] = ()) -> None:
    """Raises an error unless a toolkit supports an architecture.

    Args:
        more: the options that this toolkit supports beyond `_COMMON`.
    """
    if config.d_k != config.d_v or config.heads * config.d_k != config.d_model:
        raise NmtError(
            f"{toolkit} needs d_k and d_v to be d_model / heads, but {origin} has d_model {config.d_model}, "
            f"heads {config.heads}, d_k {config.d_k} and d_v {config.d_v}; "
            f"nmt generate translates with --engine pytorch"
        )
    unsupported = [flag_name(name) for name in config.variants() if name not in (*_COMMON, *more)]
    if unsupported:
        raise NmtError(
            f"{toolkit} does not support {' or '.join(unsupported)}, which {origin} uses; "
            f"nmt generate translates with --engine pytorch"
        )


SPECIAL_PIECES = "<pad>", "<unk>", "<s>", "</s>"
# A logit of this size has practically the probability 0. It is finite, because label smoothing sums all logits.
SILENT = -100.0


@dataclass(frozen=True)
class ForeignVocabulary:
    """The ids of another toolkit. In nmt, 0 to 3 are PAD, UNK, BOS and EOS.

    Attributes:
        special: its ids of PAD, UNK, BOS and EOS.
        pieces: the piece of each id that has one.
        size: the number of ids.
    """

    special: tuple[int, ...]
    pieces: Mapping[int, str]
    size: int

    @property
    def order(self) -> list[int]:
        """The other toolkit's id for each of ours."""
        return [*self.special, *(i for i in range(self.size) if i not in self.special)]

    def our_bias(self, bias_V: Tensor) -> Tensor:
        """Returns the bias of our logits for the bias of theirs."""
        ours_V = bias_V[self.order]
        ours_V[[i for i, theirs in enumerate(self.special) if theirs in self.special[i + 1 :]]] = SILENT
        return ours_V

    def our_embedding(self, theirs_VD: Tensor) -> Tensor:
        """Returns an embedding in the order of our ids and columns."""
        return theirs_VD[self.order].index_select(1, our_columns(theirs_VD.shape[1]))

    def our_pieces(self, origin: str) -> list[str]:
        """Returns the piece of each id of an nmt model.

        The other toolkit's id may have no piece, or its piece may have the name of one of ours. It gets another name.
        """
        rest = (self.pieces.get(i, f"<unused {i}>") for i in self.order[len(SPECIAL_PIECES) :])
        vocabulary = [*SPECIAL_PIECES, *(f"<{piece}>" if piece in SPECIAL_PIECES else piece for piece in rest)]
        for piece, count in Counter(vocabulary).items():
            if piece != without_surrogates(piece):
                raise NmtError(f"{origin} has the piece {piece!r:.40}, which is not valid text; rename it")
            if count > 1:
                raise NmtError(f"{origin} has the piece {piece!r:.40}, a name that nmt uses itself; rename it")
        return vocabulary


def our_columns(d_model: int) -> Tensor:
    """Returns, for each column of `d_model` in nmt, the number of the same column in the other toolkit.

    The columns of the sinusoidal position encoding have different orders. In nmt, sines and cosines alternate, as in
    section 3.5 of the paper. In the other toolkit, all sines come before all cosines.
    """
    return torch.arange(d_model).view(2, -1).T.flatten()
