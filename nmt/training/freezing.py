"""Groups of weights that training can leave as they are."""

from collections.abc import Sequence

from torch import nn

from nmt.errors import NmtError

# The beginnings of the names of the weights in each group of --freeze.
_GROUPS = {
    "embeddings": ("source_embedding.", "target_embedding.", "source_positions.", "target_positions.", "output_bias"),
    "encoder": ("encoder.", "encoder_norm."),
    "decoder": ("decoder.", "decoder_norm."),
}


def is_frozen(name: str, groups: Sequence[str]) -> bool:
    """Returns whether a weight belongs to one of the groups."""
    return any(name.startswith(_GROUPS[group]) for group in groups)


def freeze(model: nn.Module, groups: Sequence[str]) -> None:
    """Excludes the weights of the groups from training.

    Raises:
        NmtError: no weight is left to train.
    """
    for name, weight in model.named_parameters():
        weight.requires_grad_(not is_frozen(name, groups))
    if not any(weight.requires_grad for weight in model.parameters()):
        raise NmtError("--freeze leaves no weights to train; leave out one of its values")
