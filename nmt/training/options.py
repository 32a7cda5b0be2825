"""The options of a training: as its architecture, as a command line, and in config.toml of its run folder."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from nmt import console, extensions
from nmt.checkpoint_format import read_model_config
from nmt.config import ModelConfig, TrainConfig, flag_name
from nmt.config.file import options_in
from nmt.errors import NmtError
from nmt.files import replaced_file
from nmt.model.architectures import layers_taken, model_config

CONFIG = "config.toml"


def architecture(config: TrainConfig, overrides: Mapping[str, Any] | None = None) -> ModelConfig:
    """Returns the architecture of --arch, or of the checkpoint of --init-from, with other values of some options."""
    if config.arch:
        return model_config(config.arch).overridden(overrides or {})
    base, changed = read_model_config(str(config.init_from)), dict(overrides or {})
    if base.guided_alignment:  # the layer has another number in a student, or is left out
        taken = layers_taken(base.decoder_layers, changed.get("decoder_layers", base.decoder_layers))
        places = {layer: place for place, layer in enumerate(taken, 1)}
        changed.setdefault("guided_alignment", places.get(base.guided_alignment))
    return base.overridden(changed)


def options_of(
    data_folder: str, model_config: ModelConfig, config: TrainConfig, default: ModelConfig
) -> dict[str, Any]:
    """Returns the options of a training by name, without those that are not set.

    Args:
        default: the `architecture` without options of the model.
    """
    model = model_config.to_dict()
    changed = {name: model[name] for name, _, _ in model_config.changed_from(default.to_dict())}
    widths = {name: model[name] for name in ("d_k", "d_v")}
    others = {name: value for name, value in changed.items() if name not in widths}
    is_derived = model["d_model"] % model["heads"] == 0 and default.overridden(others) == model_config
    changed = others if is_derived else changed | (widths if changed.keys() & {"d_model", "heads"} else {})
    options = {"data": data_folder, **config.to_dict(), **changed}
    del options["resume_changed"]  # it is meant for a single start
    return {name: value for name, value in options.items() if value is not None and value != ()}


def command_line(data_folder: str, model_config: ModelConfig, config: TrainConfig) -> str:
    """Returns the shortest command line that starts a training: with the options that differ from their defaults."""
    defaults = {field.name: field.default for field in fields(TrainConfig)}
    words = ["nmt", "train", data_folder]
    for name, value in options_of(data_folder, model_config, config, architecture(config)).items():
        if name != "data" and value != defaults.get(name):
            words += flag_words(name, value)
    return shlex.join(words)


def flag_words(name: str, value: Any) -> list[str]:
    """Returns the words of a command line that give an option this value."""
    if isinstance(value, bool):
        return [flag_name(name if value else f"no_{name}")]
    values = value if isinstance(value, tuple) else (value,)
    return [word for item in values for word in (flag_name(name), str(item))]


def write_config(folder: Path, options: dict[str, Any]) -> None:
    """Writes options to config.toml of a run folder, which `nmt train --config` reads."""
    text = "# nmt train --config THIS_FILE starts or resumes this training.\n"
    for name, value in options.items():
        # Strings of TOML are those of JSON, but a DEL must be escaped.
        toml = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        text += f"{name.replace('_', '-')} = {toml}\n"
    with replaced_file(folder / CONFIG, "give another --save-dir") as file:
        file.write(text.encode(errors="surrogateescape"))  # as file names are decoded


def options_of_run(
    config: TrainConfig, overrides: dict[str, Any], given: set[str]
) -> tuple[TrainConfig, dict[str, Any]]:
    """Returns the options in config.toml of the run folder, except for those that are given."""
    path = Path(config.save_dir) / CONFIG
    if not path.exists():
        raise NmtError(
            f"{config.save_dir} has a training state, but {path}, which has its options, is missing; give the options "
            f"without a time, or another --save-dir"
        )
    console.info(f"{config.save_dir} has a training state; resuming with the options in {path}, whatever the time")
    stored = options_in(str(path))
    training_options = {f.name: stored[f.name] for f in fields(TrainConfig) if f.name in stored.keys() - given}
    resumed = TrainConfig.from_dict(config.to_dict() | training_options, str(path))
    extensions.load(resumed.user_module)  # flags load only the module of the command line
    return resumed, {f.name: stored[f.name] for f in fields(ModelConfig) if f.name in stored} | overrides
