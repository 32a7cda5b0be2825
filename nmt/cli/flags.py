"""Turns the fields of configuration dataclasses into flags of commands."""

import inspect
from collections.abc import Callable, Collection
from dataclasses import MISSING, Field, fields
from functools import wraps
from types import GenericAlias
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from typer import Argument, Option

from nmt import extensions
from nmt.config.options import Config, flag_name, with_tuples

# The argument of commands that load one model, or several as an ensemble.
Checkpoints = Annotated[list[str], Argument(metavar="CHECKPOINT", help="Checkpoint files; several form an ensemble.")]
Command = Callable[..., None]
# The sections that a help page shows last.
_LAST_PANELS = ("Model", "Hardware")
# Flags whose spelling differs from the name of their field.
_SPELLINGS = {"joint_vocab": ["--joint-vocab/--separate-vocab"]}


def _parameter(declared: Field[Any], optional: bool) -> inspect.Parameter:
    spelling = _SPELLINGS.get(declared.name, [flag_name(declared.name)] if declared.type is not bool else [])
    info = Option(*spelling, help=declared.metadata["help"], rich_help_panel=declared.metadata["panel"])
    kind: Any = declared.type
    default = inspect.Parameter.empty if declared.default is MISSING else declared.default
    if get_origin(kind) is tuple:
        item = get_args(kind)[0]
        if get_origin(item) is Literal:  # typer has no lists of choices; the configuration checks them
            info.metavar, item = "|".join(get_args(item)), str
        kind = GenericAlias(list, item)
        default = list(default) if isinstance(default, tuple) else default
    if optional:
        kind, default = kind | None, None
    annotation = Annotated[kind, info]
    return inspect.Parameter(declared.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _help_order(parameter: inspect.Parameter) -> tuple[bool, int]:
    """Returns the sort key that lists required flags first."""
    if parameter.annotation is typer.Context:  # is not shown
        return True, 0
    (info,) = parameter.annotation.__metadata__
    panel, is_required = info.rich_help_panel, parameter.default is inspect.Parameter.empty
    return not is_required, _LAST_PANELS.index(panel) + 1 if panel in _LAST_PANELS else 0


def flags(*, without: Collection[str] = (), **configs: type[Config]) -> Callable[[Command], Command]:
    """Returns a decorator that turns the named dataclass parameters of a command into flags.

    The command receives an instance made from the flags. A parameter whose name ends in `_overrides` receives a dict
    with only those flags that the user gave. The fields in `without` keep their defaults and get no flag.
    """

    def fields_of(config: type[Config]) -> list[Field[Any]]:
        return [field for field in fields(config) if field.name not in without]  # type: ignore[arg-type]

    def decorate(command: Command) -> Command:
        declared = inspect.signature(command, eval_str=True).parameters.values()
        parameters = [
            _parameter(field, optional=name.endswith("_overrides"))
            for name, config in configs.items()
            for field in fields_of(config)
        ] + [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in declared if p.name not in configs]
        parameters.sort(key=_help_order)

        @wraps(command)
        def run(**values: Any) -> None:
            for name, config in configs.items():
                options = with_tuples({field.name: values.pop(field.name) for field in fields_of(config)})
                if name.endswith("_overrides"):
                    values[name] = {option: value for option, value in options.items() if value is not None}
                else:
                    values[name] = config(**options)
                extensions.load(options.get("user_module"))
            command(**values)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate
