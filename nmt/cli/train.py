"""`nmt train` trains a model."""

import difflib
import sys
import tomllib
from dataclasses import Field, fields
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from nmt.cli.flags import flags
from nmt.config import ModelConfig, TrainConfig
from nmt.config.options import check_field, flag_name, with_tuples
from nmt.errors import NmtError, naming

EXAMPLES = """Examples:

nmt train data --save-dir run --hours 2

nmt train data --arch transformer_base --save-dir run

nmt train data --arch transformer_base --save-dir run --dry-run

nmt train news --init-from run/best.safetensors --save-dir tuned --lr-schedule inverse-sqrt --lr 1e-4

nmt train --config run/config.toml --save-dir run2 --seed 2"""

_FIELDS: dict[str, Field[Any]] = {field.name: field for field in (*fields(TrainConfig), *fields(ModelConfig))}


def use_config(context: typer.Context, paths: list[str] | None) -> None:
    """Makes the options in a file the defaults of the command.

    Args:
        paths: the values of --config. The option is declared as a list, so that a second value is not lost.
    """
    if not paths:
        return
    if len(paths) > 1:
        raise NmtError(f"--config was given {len(paths)} times; give one file, and the other options as flags")
    context.default_map = options_in(paths[0])


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


@flags(config=TrainConfig, model_overrides=ModelConfig)
def train(
    data: Annotated[str, Argument(metavar="DATA", help="Data folder that nmt preprocess wrote.")],
    config: TrainConfig,
    model_overrides: dict[str, Any],
    context: typer.Context,
    _: Annotated[
        list[str] | None,
        Option(
            "--config",
            metavar="<file>",
            callback=use_config,
            is_eager=True,
            help="TOML file with options, such as config.toml of a run folder. Flags override the file.",
        ),
    ] = None,
    hours: Annotated[
        float | None,
        Option(
            min=0.01,
            max=100_000,
            help="Choose architecture, optimiser, batch size, schedule, dropout, validation and checkpoints, so that "
            "training ends after this many hours. Options that you give stay. Each choice is printed with its reason. "
            "average.safetensors in the run folder is the model to use.",
        ),
    ] = None,
    minutes: Annotated[float | None, Option(min=0.1, max=6_000_000, help="The same as --hours, in minutes.")] = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Only print the plan and the time, memory and disk space that it needs.")
    ] = False,
) -> None:
    """Train a Transformer, or resume the training in --save-dir.

    Options in the panel Model override fields of the architecture.
    """
    if hours is not None and minutes is not None:
        raise NmtError("--hours and --minutes were both given; leave out one of them")
    if seconds := 3600 * (hours or 0) + 60 * (minutes or 0):
        from nmt.training.hours import train_in_time

        sources = {field.name: context.get_parameter_source(field.name) for field in fields(TrainConfig)}
        # The command line or the file of --config has them.
        given = {name for name, source in sources.items() if source is not None and source.name != "DEFAULT"}
        train_in_time(data, config, model_overrides, given, seconds, options_in, estimate=dry_run)
        return
    if config.arch is None and config.init_from is None:
        raise typer.TyperException("Missing option '--arch', or arch in the file of --config")
    from nmt.training.ranks import is_rank, launch
    from nmt.training.run_folder import architecture

    model = architecture(config, model_overrides)
    if config.gpus > 1 and not is_rank():
        launch(sys.argv[1:], config.gpus, config.device)
        return
    from nmt.training import train as training

    (training.dry_run if dry_run else training.train)(data, model, config)
