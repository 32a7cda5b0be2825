"""Turns the fields of configuration dataclasses into the flags of a command, so that no flag is declared twice."""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from functools import wraps
from types import GenericAlias
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from nmt.options import Config, flag_name

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
    (info,) = parameter.annotation.__metadata__
    panel = info.rich_help_panel
    is_required = parameter.default is inspect.Parameter.empty
    return not is_required, _LAST_PANELS.index(panel) + 1 if panel in _LAST_PANELS else 0


def flags(**configs: type[Config]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Returns a decorator that turns the named dataclass parameters of a command into flags.

    The command receives an instance made from the flags. A parameter whose name ends in `_overrides` receives a dict
    with only those flags that the user gave.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name not in configs]
        own = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
        made = [
            _parameter(f, optional=name.endswith("_overrides"))
            for name, config in configs.items()
            for f in fields(config)  # type: ignore[arg-type]
        ]

        @wraps(command)
        def run(**values: Any) -> None:
            for name, config in configs.items():
                given = {f.name: values.pop(f.name) for f in fields(config)}  # type: ignore[arg-type]
                given = {k: tuple(v) if isinstance(v, list) else v for k, v in given.items()}
                if name.endswith("_overrides"):
                    values[name] = {k: v for k, v in given.items() if v is not None}
                else:
                    values[name] = config(**given)
            command(**values)

        shown = sorted(made + own, key=_place_in_help)
        run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in shown}
        return run

    return decorate
