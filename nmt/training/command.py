"""The command that starts a training: its options as a TOML file and as a command line."""

import json
import shlex
from dataclasses import fields
from pathlib import Path
from typing import Any

from nmt.checkpoint_file import read_model_config
from nmt.config import ModelConfig, TrainConfig
from nmt.config.options import flag_name
from nmt.files import replaced_file, writing
from nmt.model.architectures import ARCHITECTURES

CONFIG = "config.toml"
# Options that are meant for a single start of a training.
_FOR_ONCE = ("resume_changed",)


def options_of(data_folder: str, model_config: ModelConfig, config: TrainConfig) -> dict[str, Any]:
    """Returns the options of a training by name, without those that are not set.

    Options of the model are included only if they differ from the architecture.

    Raises:
        NmtError: the checkpoint of --init-from, whose architecture is needed, cannot be read.
    """
    architecture = ARCHITECTURES[config.arch] if config.arch else read_model_config(str(config.init_from))
    default = architecture.to_dict()
    model = {name: value for name, value in model_config.to_dict().items() if default.get(name) != value}
    options = {"data": data_folder, **config.to_dict(), **model}
    return {
        name: value for name, value in options.items() if value is not None and value != () and name not in _FOR_ONCE
    }


def command_line(data_folder: str, model_config: ModelConfig, config: TrainConfig) -> str:
    """Returns the shortest command line that starts a training: with the options that differ from their defaults."""
    defaults = {field.name: field.default for field in fields(TrainConfig)}
    words = ["nmt", "train", data_folder]
    for name, value in options_of(data_folder, model_config, config).items():
        if name != "data" and value != defaults.get(name):
            words += _words(name, value)
    return shlex.join(words)


def _words(name: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [flag_name(name if value else f"no_{name}")]
    values = value if isinstance(value, tuple) else (value,)
    return [word for item in values for word in (flag_name(name), str(item))]


def write_config(folder: Path, options: dict[str, Any]) -> None:
    """Writes options to config.toml of a run folder, which `nmt train --config` reads.

    Raises:
        NmtError: the file cannot be written.
    """
    path = folder / CONFIG
    lines = [f"{name.replace('_', '-')} = {_toml(value)}\n" for name, value in options.items()]
    text = "# nmt train --config THIS_FILE starts or resumes this training.\n" + "".join(lines)
    with writing(path, "give another --save-dir"), replaced_file(path, "give another --save-dir") as file:
        file.write(text.encode(errors="surrogateescape"))  # as file names are decoded


def _toml(value: Any) -> str:
    """Returns a value in TOML. Strings of TOML are those of JSON, but a DEL must be escaped."""
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
