"""The Transformer of "Attention Is All You Need" as a toolkit for neural machine translation."""

from importlib import import_module
from typing import Any

__version__ = "0.3.0"

# The module of each public name, imported at first use, so that `import nmt` and `nmt --help` do not import torch.
_PUBLIC = {
    "Translator": "nmt.translate.translator",
    "NmtError": "nmt.errors",
    "build_model": "nmt.checkpoint",
    "load_checkpoint": "nmt.checkpoint",
}
__all__ = ["NmtError", "Translator", "__version__", "build_model", "load_checkpoint"]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'nmt' has no attribute {name!r}")
