"""The options of all commands. Each option is declared once, as a dataclass field that carries its help text.

This package does not import torch, so that `nmt --help` is fast.
"""

# Other packages import these names from here.
# ruff: noqa: F401
from nmt.config.aligning import AlignConfig, AlignFiles
from nmt.config.data import CleanConfig, CorpusConfig, DataConfig, Normalization, SubwordKind, Tokenizer
from nmt.config.exchange import Facts, SelectionConfig
from nmt.config.jobs import DocumentFiles, JobConfig, RescoringFiles, TranslationFiles
from nmt.config.model import ModelConfig
from nmt.config.options import flag_name, names_in
from nmt.config.serving import ServeConfig
from nmt.config.training import BatchConfig, PlanConfig, RuntimeConfig, TimeConfig, TrainConfig
from nmt.config.translation import DirectionConfig, EngineConfig, ScoreConfig, SearchConfig, VocabularyMapConfig
