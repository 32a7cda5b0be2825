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
from nmt.config.options import Config, check_relations, flag_name, with_tuples

# Marks parameters whose values are checkpoints, in place of which names of published models may stand.
CHECKPOINT = "checkpoint"
# The arguments of commands that load one model, or several as an ensemble.
Checkpoint = Annotated[
    str, Argument(metavar="CHECKPOINT", help="Checkpoint file, or name of a published model."), CHECKPOINT
]
Checkpoints = Annotated[
    list[str],
    Argument(metavar="CHECKPOINT", help="Checkpoint files, or names of published models; several form an ensemble."),
    CHECKPOINT,
]
Command = Callable[..., None]
# The sections that a help page shows last.
_LAST_PANELS = ("Model", "Hardware")


def _parameter(declared: Field[Any], optional: bool) -> inspect.Parameter:
    flag = flag_name(declared.name)
    spelling = [f"{flag}/{off}"] if (off := declared.metadata["off"]) else [flag] if declared.type is not bool else []
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
    info = parameter.annotation.__metadata__[0]
    panel, is_required = info.rich_help_panel, parameter.default is inspect.Parameter.empty
    return not is_required, _LAST_PANELS.index(panel) + 1 if panel in _LAST_PANELS else 0


def _config(parameter: inspect.Parameter) -> type[Config] | None:
    """Returns the configuration that a parameter of a command takes, if it takes one."""
    kind = (get_args(parameter.annotation) or [parameter.annotation])[-1]
    return kind if isinstance(kind, type) and issubclass(kind, Config) else None


def _has_checkpoints(annotation: Any) -> bool:
    if isinstance(annotation, type) and issubclass(annotation, Config):
        return bool(annotation.checkpoint_options())
    return CHECKPOINT in get_args(annotation)


def flags(*, without: Collection[str] = ()) -> Callable[[Command], Command]:
    """Returns a decorator for commands that turns the fields of their configurations into flags.

    A parameter whose type is a configuration receives an instance made from the flags. A parameter of the type
    `Annotated[dict[str, Any], CONFIGURATION]` receives a dict with only those flags that the user gave. The fields in
    `without` keep their defaults and get no flag. Where the user names a published model, the command gets its file.
    """

    def decorate(command: Command) -> Command:
        declared = inspect.signature(command, eval_str=True).parameters
        configs = {name: config for name, parameter in declared.items() if (config := _config(parameter))}
        shown = {name: [f for f in fields(config) if f.name not in without] for name, config in configs.items()}  # type: ignore[arg-type]
        overrides = {name for name, config in configs.items() if declared[name].annotation is not config}
        with_checkpoints = [name for name, parameter in declared.items() if _has_checkpoints(parameter.annotation)]
        parameters = [_parameter(field, name in overrides) for name in configs for field in shown[name]]
        parameters += [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for n, p in declared.items() if n not in configs]
        parameters.sort(key=_help_order)

        @wraps(command)
        def run(**values: Any) -> None:
            for name, config in configs.items():
                options = with_tuples({field.name: values.pop(field.name) for field in shown[name]})
                if name in overrides:
                    values[name] = {option: value for option, value in options.items() if value is not None}
                else:
                    values[name] = config(**options)
                extensions.load(options.get("user_module"))
            check_relations(*(values[name] for name in configs if name not in overrides))
            if with_checkpoints:
                from nmt.interop.hub import with_files

                values |= {name: with_files(values[name]) for name in with_checkpoints}
            command(**values)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate
