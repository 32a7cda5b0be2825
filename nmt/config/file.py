"""Reads the options of a training from a file, such as config.toml of a run folder."""

import difflib
import tomllib
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

from nmt.config.model import ModelConfig
from nmt.config.options import check_field, flag_name, with_tuples
from nmt.config.training import TrainConfig
from nmt.errors import NmtError, naming

_FIELDS: dict[str, Field[Any]] = {field.name: field for field in (*fields(TrainConfig), *fields(ModelConfig))}


def options_in(path: str) -> dict[str, Any]:
    """Returns the options in a file by the names of their fields; checks their values."""
    try:
        # A file name in the options may not be UTF-8. It is decoded in the same way as names on the command line.
        content = tomllib.loads(Path(path).read_text(encoding="utf-8-sig", errors="surrogateescape"))
    except OSError as error:
        raise NmtError(f"--config {path} cannot be read ({error.strerror}); give a file in TOML") from error
    except (tomllib.TOMLDecodeError, ValueError, RecursionError) as error:
        raise NmtError(f"--config {path} is not TOML: {error}; write one option a line, such as seed = 1") from error
    options = {name.replace("-", "_"): value for name, value in content.items()}
    if len(options) < len(content):
        raise NmtError(f"--config {path} has an option in two spellings, with - and with _; leave out one of them")
    for name, value in with_tuples(options).items():
        spelling = name.replace("_", "-")
        if name == "data":  # the argument of the command, which is no option
            if not isinstance(value, str) or "\0" in value:
                raise NmtError(
                    f"--config {path}: data must be the name of a data folder in quotes, but is {options[name]!r:.40}"
                )
        elif name in ("hours", "minutes", "dry_run"):
            raise NmtError(f"--config {path} has {spelling!r}; give {flag_name(name)} on the command line")
        elif name not in _FIELDS:
            close = difflib.get_close_matches(name, ["data", *_FIELDS], n=1)
            hint = f" (perhaps {close[0].replace('_', '-')} is meant)" if close else ""
            raise NmtError(
                f"--config {path} has the unknown option {spelling!r:.80}{hint}; nmt train --help lists the options"
            )
        else:
            with naming(f"--config {path}"):
                check_field(_FIELDS[name], value)
    return options
