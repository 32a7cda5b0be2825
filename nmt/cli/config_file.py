"""Options of `nmt train` from a TOML file (--config). Flags on the command line override the file."""

import codecs
import difflib
import tomllib
from collections import Counter
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

import typer

from nmt.config import ModelConfig, TrainConfig
from nmt.errors import NmtError
from nmt.options import check_field

_FIELDS: dict[str, Field[Any]] = {
    field.name: field for config in (TrainConfig, ModelConfig) for field in fields(config)
}
# The argument of the command, which is no option.
_DATA = "data"


def use_config(context: typer.Context, paths: list[str] | None) -> None:
    """Makes the options in a file the defaults of the command.

    Args:
        paths: the values of --config. The option is declared as a list, so that a second value is not lost.

    Raises:
        NmtError: there are several files, or the file cannot be read, is not TOML, or has an unknown option or a wrong
            value.
    """
    if not paths:
        return
    if len(paths) > 1:
        raise NmtError(f"--config was given {len(paths)} times; give one file, and the other options as flags")
    (path,) = paths
    context.default_map = {name: _value(path, name, value) for name, value in _options(path).items()}


def _options(path: str) -> dict[str, Any]:
    """Returns the options in a file by the names of their fields."""
    try:
        # A file name in the options may be no UTF-8. It is decoded as names on the command line are.
        text = Path(path).read_bytes().removeprefix(codecs.BOM_UTF8)
        found = tomllib.loads(text.decode(errors="surrogateescape"))
    except OSError as error:
        raise NmtError(f"--config {path} cannot be read ({error.strerror}); give a file in TOML") from error
    except (tomllib.TOMLDecodeError, ValueError, RecursionError) as error:
        raise NmtError(f"--config {path} is not TOML: {error}; write one option a line, such as seed = 1") from error
    names = [name.replace("-", "_") for name in found]
    for name, count in Counter(names).items():
        if count > 1:
            raise NmtError(f"--config {path} has {name} and {name.replace('_', '-')}; leave out one of them")
    return dict(zip(names, found.values(), strict=True))


def _value(path: str, name: str, value: Any) -> Any:
    """Returns the value of an option as the command line would give it; checks it."""
    if name == _DATA:
        if isinstance(value, str) and "\0" not in value:
            return value
        raise NmtError(f"--config {path}: data must be the name of a data folder in quotes, but is {value!r:.40}")
    if name not in _FIELDS:
        close = difflib.get_close_matches(name, [_DATA, *_FIELDS], n=1)
        hint = f" (perhaps {close[0].replace('_', '-')} is meant)" if close else ""
        raise NmtError(
            f"--config {path} has the unknown option {name.replace('_', '-')!r:.80}{hint}; nmt train --help lists the "
            f"options"
        )
    try:
        check_field(_FIELDS[name], tuple(value) if isinstance(value, list) else value)
    except NmtError as error:
        raise NmtError(f"--config {path}: {error}") from error
    return value
