"""The named architectures."""

import difflib
from dataclasses import replace
from typing import Any

from nmt.config import ModelConfig
from nmt.errors import NmtError

_BASE = ModelConfig(
    encoder_layers=6, decoder_layers=6, d_model=512, d_ff=2048, heads=8, d_k=64, d_v=64, dropout=0.1
)  # fmt: skip

ARCHITECTURES: dict[str, ModelConfig] = {
    # Paper Table 3, rows "base" and "big" (§5.4: P_drop 0.3 for en-de).
    "transformer_base": _BASE,
    "transformer_big": replace(_BASE, d_model=1024, d_ff=4096, heads=16, dropout=0.3),
    # Paper §6.3: "a 4-layer transformer with d_model = 1024"; the rest as in big.
    "transformer_parsing": replace(
        _BASE, encoder_layers=4, decoder_layers=4, d_model=1024, d_ff=4096, heads=16, dropout=0.1
    ),
    # Wu et al. 2021 (arXiv:2105.14462): the size that suits Multi30k's 29,000 pairs.
    "transformer_tiny": replace(
        _BASE, encoder_layers=4, decoder_layers=4, d_model=128, d_ff=256, heads=4, d_k=32, d_v=32, dropout=0.3
    ),
}


def model_config(name: str, **overrides: Any) -> ModelConfig:
    """The architecture called `name`, with some fields replaced.

    Raises:
        NmtError: no such architecture (names the closest ones), or a field out of range.
    """
    if name not in ARCHITECTURES:
        close = difflib.get_close_matches(name, ARCHITECTURES, n=3, cutoff=0.4) or list(ARCHITECTURES)
        raise NmtError(f"--arch {name} is unknown; did you mean {' or '.join(close)}? `nmt architectures` lists all")
    return replace(ARCHITECTURES[name], **overrides)
