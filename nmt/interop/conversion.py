"""How ids and weights of other toolkits become ours, and ours theirs, and which architectures a toolkit supports."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from nmt.config import ModelConfig
from nmt.config.options import flag_name
from nmt.errors import NmtError
from nmt.interop.foreign_model import Tensors
from nmt.model.architectures import weight_shapes
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


# How the ids of other toolkits become ours, in which 0 to 3 are PAD, UNK, BOS and EOS.

SPECIAL_PIECES = "<pad>", "<unk>", "<s>", "</s>"
# A logit of this size has practically the probability 0. It is finite, because label smoothing sums all logits.
SILENT = -100.0


@dataclass(frozen=True)
class Ids:
    """The ids of another toolkit."""

    special: tuple[int, ...]
    size: int

    @property
    def order(self) -> list[int]:
        """Their id for each of ours."""
        return [*self.special, *(i for i in range(self.size) if i not in self.special)]

    def output_bias(self, bias_V: Tensor) -> Tensor:
        """Returns the bias of our logits for the bias of theirs."""
        ours_V = bias_V[self.order]
        silent = [i for i, theirs in enumerate(self.special) if theirs in self.special[i + 1 :]]
        ours_V[silent] = SILENT
        return ours_V

    def embedding(self, theirs_VD: Tensor) -> Tensor:
        """Returns an embedding in the order of our ids and columns."""
        return theirs_VD[self.order].index_select(1, our_columns(theirs_VD.shape[1]))

    def vocabulary(self, pieces: Mapping[int, str], origin: str) -> list[str]:
        """Returns the piece of each id of an nmt model.

        The other toolkit's id may have no piece, or its piece may have the name of one of ours. It gets another name.
        """
        rest = (pieces.get(i, f"<unused {i}>") for i in self.order[len(SPECIAL_PIECES) :])
        vocabulary = [*SPECIAL_PIECES, *(f"<{piece}>" if piece in SPECIAL_PIECES else piece for piece in rest)]
        for piece, count in Counter(vocabulary).items():
            if piece != without_surrogates(piece):
                raise NmtError(f"{origin} has the piece {piece!r:.40}, which is not valid text; rename it")
            if count > 1:
                raise NmtError(f"{origin} has the piece {piece!r:.40}, a name that nmt uses itself; rename it")
        return vocabulary


# The names of a layer's weights in nmt, and those of the matrices in MarianMT and fairseq that nmt joins into one.
_THEIR_NAMES = {
    "self_attention.query_key_value": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attention.output": ("self_attn.out_proj",),
    "self_attention_residual.norm": ("self_attn_layer_norm",),
    "cross_attention.query": ("encoder_attn.q_proj",),
    "cross_attention.key_value": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "cross_attention.output": ("encoder_attn.out_proj",),
    "cross_attention_residual.norm": ("encoder_attn_layer_norm",),
    "feed_forward.inner": ("fc1",),
    "feed_forward.outer": ("fc2",),
    "feed_forward_residual.norm": ("final_layer_norm",),
}


def _names(config: ModelConfig) -> Iterator[tuple[str, list[str], tuple[int, ...], int]]:
    """Yields our name of each weight in encoder and decoder without `.weight`, their names, and the shape of each.

    The number is the axis that `our_columns` reorders, which is the model's width.
    """
    for name, shape in weight_shapes(config, 1).items():
        ours, _, kind = name.rpartition(".")
        stack, *layer = ours.split(".", 2)
        if kind == "weight" and (len(layer) == 2 or stack.endswith("_norm")):
            final_norm = [f"{stack.removesuffix('_norm')}.layer_norm"]
            theirs = [f"{stack}.layers.{layer[0]}.{x}" for x in _THEIR_NAMES[layer[1]]] if layer else final_norm
            width_axis = 0 if ours.endswith(("output", "outer", "norm")) else 1
            yield ours, theirs, (shape[0] // len(theirs), *shape[1:]), width_axis


def our_columns(d_model: int) -> Tensor:
    """Returns, for each column of `d_model` in nmt, the number of the same column in the other toolkit.

    The columns of the sinusoidal position encoding have different orders. In nmt, sines and cosines alternate, as in
    section 3.5 of the paper. In the other toolkit, all sines come before all cosines.
    """
    return torch.arange(d_model).view(2, -1).T.flatten()


def from_theirs(config: ModelConfig, tensors: Tensors, prefix: str = "") -> dict[str, Tensor]:
    """Returns the weights of encoder and decoder by our names, from a model of MarianMT or fairseq.

    The width of a head is d_model / heads. Attention always gets biases, whatever the config says.

    Args:
        prefix: the beginning of the other toolkit's names.
    """
    columns, weights = our_columns(config.d_model), {}
    for ours, theirs, shape, axis in _names(config):
        weight = torch.cat([tensors.take(f"{prefix}{name}.weight", shape) for name in theirs])
        bias = torch.cat([tensors.take(f"{prefix}{name}.bias", shape[:1]) for name in theirs])
        weights[f"{ours}.weight"] = weight.index_select(axis, columns)
        weights[f"{ours}.bias"] = bias[columns] if axis == 0 else bias
    return weights


def to_theirs(config: ModelConfig, weights: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Returns the weights of encoder and decoder by the other toolkit's names. Biases that the model lacks are zero."""
    columns, tensors = our_columns(config.d_model).argsort(), {}
    for ours, theirs, shape, axis in _names(config):
        weight = weights[f"{ours}.weight"].index_select(axis, columns)
        bias = weights.get(f"{ours}.bias", weight.new_zeros(len(weight)))
        bias = bias[columns] if axis == 0 else bias
        for name, rows, biases in zip(theirs, weight.split(shape[0]), bias.split(shape[0]), strict=True):
            tensors[f"{prefix}{name}.weight"], tensors[f"{prefix}{name}.bias"] = rows.contiguous(), biases.contiguous()
    return tensors
