"""The names of the files in a data folder, and the types of their numbers."""

from typing import Any

import numpy as np

from nmt.text.codec import TextConfig

TRAIN = "train"
OFFSET_TYPE = np.dtype("<i8")
LINK_TYPE = np.dtype("<u2")


def token_type(vocab_size: int) -> np.dtype[Any]:
    """Returns the integer type of stored tokens: two bytes if the vocabulary is small enough, otherwise four."""
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")


def array_names(split: str, lang: str) -> tuple[str, str]:
    """Returns the file names of the tokens and the offsets of one side of a split."""
    return f"{split}.{lang}.tokens", f"{split}.{lang}.offsets"


def link_names(split: str, config: TextConfig) -> tuple[str, str]:
    """Returns the file names of the alignments of a split and of their offsets."""
    pair = f"{config.source_lang}-{config.target_lang}"
    return f"{split}.{pair}.links", f"{split}.{pair}.offsets"


def raw_name(split: str, lang: str) -> str:
    """Returns the file name of a split's raw text in one language."""
    return f"{split}.{lang}.txt"


def model_names(config: TextConfig) -> tuple[str, str]:
    """Returns the file names of the source and the target subword model, which may be the same."""
    if config.one_model:
        return "subword.model", "subword.model"
    return f"subword.{config.source_lang}.model", f"subword.{config.target_lang}.model"
