"""Checks that data, model and options fit together, before training starts."""

from pathlib import Path

import torch

from nmt import console
from nmt.checkpoint import WEIGHT_BYTES, check_memory
from nmt.config import ModelConfig, SearchConfig, TrainConfig
from nmt.data.folder import DataFolder, ParallelSplit
from nmt.errors import NmtError
from nmt.scoring.tokenizers import tokenizer_warning
from nmt.training.ema import AVERAGE_BYTES
from nmt.training.optimizer import ADAM_BYTES
from nmt.training.tensorboard import require_tensorboard

# Bytes that training needs for each parameter: the weight, its gradient and Adam's moments.
_TRAINING_BYTES = 2 * WEIGHT_BYTES + ADAM_BYTES


def check_fit(data: DataFolder, model_config: ModelConfig, config: TrainConfig) -> None:
    """Checks that data, model and options fit together. Warns if BLEU lacks the tokeniser of the target language.

    Raises:
        NmtError: the run folder is the data folder, alignments are missing, a sentence is longer than the number of
            learned positions, the model is too large for the memory, or a package is not installed.
    """
    if Path(config.save_dir).resolve() == data.path.resolve():
        raise NmtError(f"--save-dir {config.save_dir} is the data folder; choose another folder for the run")
    if model_config.guided_alignment is not None and data.split("train").links is None:
        if config.init_from is None:
            raise NmtError(
                f"--guided-alignment needs word alignments, but {data.path} has none; give them to nmt preprocess "
                f"--alignments"
            )
        console.warn(
            f"{data.path} has no word alignments, so the head that --guided-alignment names does not learn them"
        )
    if config.tensorboard:
        require_tensorboard()
    _check_positions(data, model_config, config)
    if "bleu" in config.valid_metric and (warning := tokenizer_warning(data.codec.config.target_lang)):
        console.warn(warning)
    if config.device == "cpu" or not torch.cuda.is_available():
        bytes_each = _TRAINING_BYTES if config.ema is None else _TRAINING_BYTES + AVERAGE_BYTES
        check_memory(model_config, data.codec, config.gpus * bytes_each)


def _check_positions(data: DataFolder, model_config: ModelConfig, config: TrainConfig) -> None:
    if model_config.learned_positions is None:
        return
    for name in ("train", "valid"):
        split = data.split(name)
        longest = max(split.source.longest, split.target.longest)
        model_config.check_positions(
            longest,
            f"{data.path} has {name} sentences of",
            f"give --learned-positions {longest}, or preprocess with a smaller --max-length",
        )
    if config.translates:
        longest = SearchConfig().longest
        model_config.check_positions(
            longest,
            "translations for validation may have",
            f"give --learned-positions {longest} or --valid-metric nll",
        )


def check_device_tokens(split: ParallelSplit, device_tokens: int) -> None:
    """Raises NmtError if a sentence is longer than --device-tokens, in any of its encodings."""
    longest = max(split.source.longest, split.target.longest)
    if longest > device_tokens:
        raise NmtError(
            f"--device-tokens {device_tokens} is too small for the longest training sentence, which needs {longest}; "
            f"give at least that, or drop long pairs with nmt preprocess --max-length"
        )
