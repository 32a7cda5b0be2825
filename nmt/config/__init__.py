"""The options of every command, each declared once: the field is the flag, its help text the flag's help.

No torch is imported here, so that `nmt --help` answers at once.
"""

from nmt.config.data import DataConfig, SubwordKind, Tokenizer
from nmt.config.model import ModelConfig
from nmt.config.training import BatchConfig, PlanConfig, RuntimeConfig, TrainConfig
from nmt.config.translation import ScoreConfig, SearchConfig

__all__ = [
    "BatchConfig",
    "DataConfig",
    "ModelConfig",
    "PlanConfig",
    "RuntimeConfig",
    "ScoreConfig",
    "SearchConfig",
    "SubwordKind",
    "Tokenizer",
    "TrainConfig",
]
