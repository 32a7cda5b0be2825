"""Turns the fields of configuration dataclasses into flags, reads --config, and describes wrong command lines."""

import difflib
import inspect
import tomllib
from collections.abc import Callable, Collection
from dataclasses import MISSING, Field, fields
from functools import wraps
from pathlib import Path
from reprlib import repr as shortened
from textwrap import shorten
from types import GenericAlias
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from typer.core import TyperOption

from nmt import extensions
from nmt.config import ModelConfig, TrainConfig
from nmt.config.options import Config, check_field, flag_name
from nmt.errors import NmtError, naming

# The sections that a help page shows last.
_LAST_PANELS = ("Model", "Hardware")
# Flags whose spelling differs from the name of their field.
_SPELLINGS = {"joint_vocab": ["--joint-vocab/--separate-vocab"]}


def _parameter(declared: Field[Any], optional: bool) -> inspect.Parameter:
    spelling = _SPELLINGS.get(declared.name, [flag_name(declared.name)] if declared.type is not bool else [])
    info = typer.Option(*spelling, help=declared.metadata["help"], rich_help_panel=declared.metadata["panel"])
    kind: Any = declared.type
    default = declared.default
    if get_origin(kind) is tuple:
        item = get_args(kind)[0]
        if get_origin(item) is Literal:  # typer has no lists of choices; the configuration checks them
            info.metavar, item = "|".join(get_args(item)), str
        kind = GenericAlias(list, item)
        default = list(default) if default is not MISSING else MISSING
    if optional:
        kind, default = kind | None, None
    return inspect.Parameter(
        declared.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if default is MISSING else default,
        annotation=Annotated[kind, info],
    )


def _place_in_help(parameter: inspect.Parameter) -> tuple[bool, int]:
    """Returns the sort key that lists required flags first."""
    if parameter.annotation is typer.Context:  # is not shown
        return True, 0
    (info,) = parameter.annotation.__metadata__
    panel = info.rich_help_panel
    is_required = parameter.default is inspect.Parameter.empty
    return not is_required, _LAST_PANELS.index(panel) + 1 if panel in _LAST_PANELS else 0


def flags(
    *, without: Collection[str] = (), **configs: type[Config]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Returns a decorator that turns the named dataclass parameters of a command into flags.

    The command receives an instance made from the flags. A parameter whose name ends in `_overrides` receives a dict
    with only those flags that the user gave. The fields in `without` keep their defaults and get no flag.
    """

    def flagged(config: type[Config]) -> list[Field[Any]]:
        return [field for field in fields(config) if field.name not in without]  # type: ignore[arg-type]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name not in configs]
        own = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
        made = [
            _parameter(f, optional=name.endswith("_overrides"))
            for name, config in configs.items()
            for f in flagged(config)
        ]

        @wraps(command)
        def run(**values: Any) -> None:
            for name, config in configs.items():
                given = {f.name: values.pop(f.name) for f in flagged(config)}
                given = {k: tuple(v) if isinstance(v, list) else v for k, v in given.items()}
                if name.endswith("_overrides"):
                    values[name] = {k: v for k, v in given.items() if v is not None}
                else:
                    values[name] = config(**given)
                extensions.load(given.get("user_module"))
            command(**values)

        shown = sorted(made + own, key=_place_in_help)
        run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in shown}
        return run

    return decorate


# A shell pattern that matches thousands of files must not fill the screen.
_LONGEST = 500
EXIT_CODE = 2
# Names of other toolkits' options, and what they are called here.
_OTHER_NAMES = {
    "--epochs": "--max-updates",
    "--max-epochs": "--max-updates",
    "--batch-size": "--batch-tokens",
    "--max-tokens": "--batch-tokens",
    "--beam-size": "--beam",
    "--lenpen": "--alpha",
}


def sentence(error: Any) -> str | None:
    """Returns what is wrong with the command line, or None if typer has already shown the command's help.

    A wrong value gets a sentence in the style of the configurations' checks, such as `--beam must be a whole number,
    but is 'abc'`. For everything else, it is typer's own text with a reference to the help.
    """
    cause: Any = error.__cause__
    if isinstance(error, typer.BadParameter) and isinstance(error.param, TyperOption) and hasattr(cause, "errors"):
        given = cause.errors()[0]["input"]  # pydantic has rejected the value, and typer's message omits it
        return f"{error.param.opts[0]} must be {_accepted(error.param)}, but is {shortened(given)}"
    text = error.format_message()
    context = getattr(error, "ctx", None)  # absent where the parser found the error
    flag = getattr(error, "option_name", "")
    if context and _OTHER_NAMES.get(flag) in {name for param in context.command.params for name in param.opts}:
        text = f"{flag} is called {_OTHER_NAMES[flag]} here"
    help_page = f"{context.command_path if context else 'nmt COMMAND'} --help"
    return f"{shorten(text, _LONGEST, placeholder=' …').rstrip('.')}; see {help_page}" if text else None


def _accepted(param: TyperOption) -> str:
    """Describes what an option accepts: `a whole number from 1 to 8`, or `one of auto, cpu, cuda`."""
    described = param.type_descriptor
    if described.choices:
        return f"one of {', '.join(map(str, described.choices))}"
    kind = "a whole number" if described.annotation in (int, list[int]) else "a number"
    return kind if param.max is None else f"{kind} from {param.min:,} to {param.max:,}"


# Options of `nmt train` from a TOML file (--config). Flags on the command line override the file.

_FIELDS: dict[str, Field[Any]] = {
    field.name: field for config in (TrainConfig, ModelConfig) for field in fields(config)
}
# The argument of the command, which is no option.
_DATA = "data"
_ONLY_FLAGS = "hours", "minutes", "dry_run"


def use_config(context: typer.Context, paths: list[str] | None) -> None:
    """Makes the options in a file the defaults of the command.

    Args:
        paths: the values of --config. The option is declared as a list, so that a second value is not lost.
    """
    if not paths:
        return
    if len(paths) > 1:
        raise NmtError(f"--config was given {len(paths)} times; give one file, and the other options as flags")
    (path,) = paths
    context.default_map = options_in(path)


def options_in(path: str) -> dict[str, Any]:
    """Returns the options in a file by the names of their fields; checks their values."""
    try:
        # A file name in the options may not be UTF-8. It is decoded in the same way as names on the command line.
        found = tomllib.loads(Path(path).read_text(encoding="utf-8-sig", errors="surrogateescape"))
    except OSError as error:
        raise NmtError(f"--config {path} cannot be read ({error.strerror}); give a file in TOML") from error
    except (tomllib.TOMLDecodeError, ValueError, RecursionError) as error:
        raise NmtError(f"--config {path} is not TOML: {error}; write one option a line, such as seed = 1") from error
    options = {name.replace("-", "_"): value for name, value in found.items()}
    if len(options) < len(found):
        raise NmtError(f"--config {path} has an option in two spellings, with - and with _; leave out one of them")
    return {name: _value(path, name, value) for name, value in options.items()}


def _value(path: str, name: str, value: Any) -> Any:
    """Returns the value of an option as the command line would give it; checks it."""
    if name == _DATA:
        if isinstance(value, str) and "\0" not in value:
            return value
        raise NmtError(f"--config {path}: data must be the name of a data folder in quotes, but is {value!r:.40}")
    if name in _ONLY_FLAGS:
        raise NmtError(f"--config {path} has {name.replace('_', '-')!r}; give {flag_name(name)} on the command line")
    if name not in _FIELDS:
        close = difflib.get_close_matches(name, [_DATA, *_FIELDS], n=1)
        hint = f" (perhaps {close[0].replace('_', '-')} is meant)" if close else ""
        raise NmtError(
            f"--config {path} has the unknown option {name.replace('_', '-')!r:.80}{hint}; nmt train --help lists the "
            f"options"
        )
    with naming(f"--config {path}"):
        check_field(_FIELDS[name], tuple(value) if isinstance(value, list) else value)
    return value
