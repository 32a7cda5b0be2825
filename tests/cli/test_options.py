"""Every field of a configuration refuses wrong types and wrong values in a sentence that names its flag."""

from dataclasses import Field, fields
from types import UnionType
from typing import Any, get_args

import pytest
from commands import failed

from nmt import config as configs
from nmt.config import DataConfig, ModelConfig, SearchConfig, TrainConfig
from nmt.config.options import Config, flag_name
from nmt.errors import NmtError
from nmt.model.architectures import ARCHITECTURES

GOOD: dict[type[Config], dict[str, Any]] = {
    ModelConfig: ARCHITECTURES["transformer_tiny"].to_dict(),
    TrainConfig: {"save_dir": "run"},
    DataConfig: {"source_lang": "en", "target_lang": "de", "train": ("t",), "valid": "v", "dest": "d"},
    SearchConfig: {},
    configs.PlanConfig: {},
    configs.RuntimeConfig: {},
    configs.EngineConfig: {},
    configs.ServeConfig: {},
    configs.ScoreConfig: {},
}
FIELDS = [pytest.param(config, f, id=f"{config.__name__}.{f.name}") for config in GOOD for f in fields(config)]
WRONG = [b"x", [], {}, {"a": 1}, object(), 1j, "a\0b", float("nan"), float("inf"), -(10**400), 10**400, ("a", 1)]


@pytest.mark.parametrize(("config", "declared"), FIELDS)
def test_each_field_refuses_wrong_values(config: type[Config], declared: Field[Any]) -> None:
    others = {int: [True, 1.0, "1"], float: [True, "1"], str: [1, True], bool: [0, 1, "yes"]}
    kind, *optional = get_args(declared.type) if isinstance(declared.type, UnionType) else (declared.type,)
    if optional:
        config(**GOOD[config] | {declared.name: None})
    for value in [*WRONG, *others.get(kind, [1, "other"]), *([] if optional else [None])]:
        with pytest.raises(NmtError) as error:
            config(**GOOD[config] | {declared.name: value})
        assert str(error.value).startswith(f"{flag_name(declared.name)} must ")
        assert "\n" not in str(error.value)
        assert len(str(error.value)) < 300


@pytest.mark.parametrize("config, values, message", [
    (ModelConfig, {"dropout": 7}, "--dropout must be at least 0 and below 1, but is 7"),
    (ModelConfig, {"d_ff": 2**31 - 1}, "--d-ff must be at least 1 and at most 50000, but is 2147483647"),
    (ModelConfig, {"learned_positions": 2**31 - 1}, "--learned-positions must be at least 1 and at most 1000000"),
    (ModelConfig, {"sinusoids": "fairseq", "d_model": 2}, "--sinusoids fairseq needs a --d-model of at least 4"),
    (ModelConfig, {"norm": "middle"}, "--norm must be one of post, pre, but is 'middle'"),
    (TrainConfig, {"gpus": 1025}, "--gpus must be at least 1 and at most 1024, but is 1025"),
    (TrainConfig, {"rank_timeout": 1e300}, "--rank-timeout must be above 0 and at most 1000000, but is 1e+300"),
    (TrainConfig, {"batch_groups": 2**31 - 1}, "--batch-groups must be at least 1 and at most 10000"),
    (TrainConfig, {"ema": 1.0}, "--ema must be above 0 and below 1, but is 1.0"),
    (TrainConfig, {"valid_metric": ("ter",)}, "--valid-metric must be one of bleu, chrf, nll, but is 'ter'"),
    (TrainConfig, {"seed": 10**400}, "--seed must be at most 2147483647, but is 1000"),
    (DataConfig, {"workers": 2**31 - 1}, "--workers must be at least 1 and at most 1024, but is 2147483647"),
    (DataConfig, {"weight": (1e9,)}, "--weight must be above 0 and at most 1000000, but is 1000000000.0"),
    (DataConfig, {"weight": (1, 0)}, "--weight must be above 0 and at most 1000000, but is 0"),
    (DataConfig, {"weight": (1, 2)}, "--weight must be given once for each of the 1 --train, but is 1 2"),
    (DataConfig, {"train": ("a", 3)}, "--train must be text, but is 3"),
    (DataConfig, {"test": "test"}, "--test must be a list in brackets, but is 'test'"),
    (DataConfig, {"tokenizer": "none", "normalize_punctuation": "source"},
     "--normalize-punctuation is source, but --tokenizer none"),
    (DataConfig, {"dest": "a\0b"}, r"--dest must not contain a NUL character, but is 'a\x00b'"),
    (SearchConfig, {"beam": 2**31 - 1}, "--beam must be at least 1 and at most 10000, but is 2147483647"),
])  # fmt: skip
def test_messages_name_flag_range_and_value(config: type[Config], values: dict[str, Any], message: str) -> None:
    with pytest.raises(NmtError) as error:
        config(**GOOD[config] | values)
    assert message in str(error.value)


def test_whole_numbers_and_upper_limits_are_accepted() -> None:
    assert TrainConfig(save_dir="run", save_minutes=5).save_minutes == 5
    assert DataConfig(**GOOD[DataConfig] | {"weight": (1_000_000,)}).weight == (1_000_000,)
    longest = {"alignments": ("links",), "max_length": 65_535}
    assert DataConfig(**GOOD[DataConfig] | longest).max_length == 65_535


def test_items_of_lists_are_checked_on_the_command_line() -> None:
    data = ["--source-lang=en", "--target-lang=de", "--train=t", "--valid=v", "--dest=d"]
    assert "--weight must be above 0 and at most 1000000, but is -1.0" in failed("preprocess", *data, "--weight=-1")
    assert "--train must not contain a NUL character" in failed("preprocess", *data, "--train=a\0b")
