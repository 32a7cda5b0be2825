"""The Transformer of "Attention Is All You Need" as a toolkit for neural machine translation.

All public names are here. docs/python.md has examples.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nmt.aligning.job import AlignedPair
    from nmt.api import align, preprocess, score, train
    from nmt.checkpoint import Checkpoint, build_model, load_checkpoint
    from nmt.config import ModelConfig, RuntimeConfig, SearchConfig
    from nmt.errors import BusyError, DamagedError, MemoryRanOutError, NmtError, OptionError, StoppedError
    from nmt.extensions import register_architecture, register_criterion, register_scorer
    from nmt.model.architectures import model_config
    from nmt.model.transformer import Transformer
    from nmt.scoring import Confidence, MetricScore
    from nmt.search.api import Scorer
    from nmt.text.codec import TextCodec
    from nmt.text.directions import Direction
    from nmt.text.subword import BOS, EOS, PAD
    from nmt.translate.translator import Translator
    from nmt.translate.units import Translation, Unit

__version__ = "0.3.0"

__all__ = [
    "BOS", "EOS", "PAD", "AlignedPair", "BusyError", "Checkpoint", "Confidence", "DamagedError", "Direction",
    "MemoryRanOutError", "MetricScore", "ModelConfig", "NmtError", "OptionError", "RuntimeConfig", "Scorer",
    "SearchConfig", "StoppedError", "TextCodec", "Transformer", "Translation", "Translator", "Unit", "__version__",
    "align", "build_model", "load_checkpoint", "model_config", "preprocess", "register_architecture",
    "register_criterion", "register_scorer", "score", "train",
]  # fmt: skip

# The public names by their modules, which are imported at first use, so that `import nmt` does not import torch.
_NAMES = {
    "nmt.aligning.job": "AlignedPair",
    "nmt.api": "align preprocess score train",
    "nmt.checkpoint": "Checkpoint build_model load_checkpoint",
    "nmt.config": "ModelConfig RuntimeConfig SearchConfig",
    "nmt.errors": "BusyError DamagedError MemoryRanOutError NmtError OptionError StoppedError",
    "nmt.extensions": "register_architecture register_criterion register_scorer",
    "nmt.model.architectures": "model_config",
    "nmt.model.transformer": "Transformer",
    "nmt.scoring": "Confidence MetricScore",
    "nmt.search.api": "Scorer",
    "nmt.text.codec": "Direction TextCodec",
    "nmt.text.subword": "BOS EOS PAD",
    "nmt.translate.translator": "Translator",
    "nmt.translate.units": "Translation Unit",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'nmt' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
