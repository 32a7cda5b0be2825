"""Checks that another toolkit can compute a model before the model is exported."""

from collections.abc import Collection

from nmt.config import ModelConfig
from nmt.config.options import flag_name
from nmt.errors import NmtError


def check_supported(config: ModelConfig, origin: str, toolkit: str, supported: Collection[str]) -> None:
    """Raises an error unless a toolkit supports an architecture.

    Args:
        toolkit: its name, for messages.
        supported: the options of the model, besides its sizes, that the toolkit supports.

    Raises:
        NmtError: it does not. The message names `origin` and the options.
    """
    if config.d_k != config.d_v or config.heads * config.d_k != config.d_model:
        raise NmtError(
            f"{toolkit} needs d_k and d_v to be d_model / heads, but {origin} has d_model {config.d_model}, "
            f"heads {config.heads}, d_k {config.d_k} and d_v {config.d_v}; translate with nmt generate"
        )
    unsupported = [flag_name(name) for name in config.variants() if name not in supported]
    if unsupported:
        raise NmtError(
            f"{toolkit} does not support {' or '.join(unsupported)}, which {origin} uses; translate with nmt generate"
        )
