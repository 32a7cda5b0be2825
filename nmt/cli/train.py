"""`nmt train` trains a model."""

import shlex
import sys
import time
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from nmt import console
from nmt.cli.flags import flags, options_in, use_config
from nmt.config import ModelConfig, TrainConfig
from nmt.errors import NmtError
from nmt.model.architectures import model_config

EXAMPLES = """Examples:

nmt train data --save-dir run --hours 2

nmt train data --arch transformer_base --save-dir run

nmt train data --arch transformer_base --save-dir run --dry-run

nmt train news --init-from run/best.safetensors --save-dir tuned --lr-schedule inverse-sqrt --lr 1e-4

nmt train --config run/config.toml --save-dir run2 --seed 2"""


Hours = Annotated[
    float | None,
    typer.Option(
        min=0.01,
        max=100_000,
        help="Choose all options that are not given, so that training ends after this time with the best model that it "
        "allows, in average.safetensors. Each choice is printed with its reason.",
    ),
]
Minutes = Annotated[float | None, typer.Option(min=0.1, max=6_000_000, help="The same as --hours, in minutes.")]


@flags(config=TrainConfig, model_overrides=ModelConfig)
def train(
    data: Annotated[str, typer.Argument(help="Data folder that nmt preprocess wrote.")],
    config: TrainConfig,
    model_overrides: dict[str, Any],
    context: typer.Context,
    _: Annotated[
        list[str] | None,
        typer.Option(
            "--config",
            metavar="<file>",
            callback=use_config,
            is_eager=True,
            help="TOML file with options, such as config.toml of a run folder. Flags override the file.",
        ),
    ] = None,
    hours: Hours = None,
    minutes: Minutes = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print the plan and the time, memory and disk space that it needs.")
    ] = False,
) -> None:
    """Train a Transformer, or resume the training in --save-dir.

    Options in the panel Model override fields of the architecture.
    """
    ends_at = None
    if hours is not None or minutes is not None:
        config, model_overrides, ends_at = _in_time(data, config, model_overrides, context, hours, minutes)
    model = _model_config(config, model_overrides)
    from nmt.training.ranks import is_rank

    if config.gpus > 1 and not is_rank():
        from nmt.training.ranks import launch

        in_time = hours is not None or minutes is not None
        arguments = _arguments(data, model, config, ends_at, dry_run) if in_time else sys.argv[1:]
        launch(arguments, config.gpus, config.device)
    elif dry_run:
        from nmt.training.dry_run import dry_run as estimate

        estimate(data, model, config)
    else:
        from nmt.training.train import train as run_training

        run_training(data, model, config, ends_at)


def _in_time(
    data: str,
    config: TrainConfig,
    overrides: dict[str, Any],
    context: typer.Context,
    hours: float | None,
    minutes: float | None,
) -> tuple[TrainConfig, dict[str, Any], float | None]:
    """Returns the options for --hours or --minutes, and when training should end; None if the time does not end it.

    The ranks of a training get their options from the process that started them.
    """
    if hours is not None and minutes is not None:
        raise NmtError("--hours and --minutes were both given; leave out one of them")
    seconds = 3600 * (hours or 0) + 60 * (minutes or 0)
    ends_at = time.monotonic() + seconds
    from nmt.training.ranks import is_rank

    if is_rank():
        return config, overrides, ends_at
    given = {f.name for f in fields(TrainConfig) if _is_given(context, f.name)}
    if config.init_from is not None:
        raise NmtError("--init-from does not go with --hours and --minutes; give --max-updates instead of the time")
    from nmt.training.hours import with_choices
    from nmt.training.run_folder import CONFIG, numbered

    folder = Path(config.save_dir)
    if not numbered(folder, "state"):
        config, overrides, by_clock = with_choices(data, config, overrides, given, seconds)
        return config, overrides, ends_at if by_clock else None
    console.info(f"{folder} has a training state; resuming with the options in {folder / CONFIG}, whatever the time")
    found = options_in(str(folder / CONFIG))
    of_training = {f.name for f in fields(TrainConfig)} & found.keys() - given
    of_model = {f.name for f in fields(ModelConfig)} & found.keys()
    values = config.to_dict() | {name: found[name] for name in of_training}
    config = TrainConfig.from_dict(values, str(folder / CONFIG))
    return config, {name: found[name] for name in of_model} | overrides, None


def _is_given(context: typer.Context, name: str) -> bool:
    """Returns whether the command line or the file of --config has this option."""
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def _arguments(data: str, model: ModelConfig, config: TrainConfig, ends_at: float | None, dry_run: bool) -> list[str]:
    """Returns the arguments of `nmt` for the ranks of a training with --hours or --minutes."""
    from nmt.training.run_folder import command_line

    arguments = shlex.split(command_line(data, model, config))[1:]
    if dry_run:
        arguments.append("--dry-run")
    if ends_at is not None:
        arguments += ["--minutes", f"{max(0.1, (ends_at - time.monotonic()) / 60):.3f}"]
    return arguments


def _model_config(config: TrainConfig, overrides: dict[str, Any]) -> ModelConfig:
    if config.arch is not None:
        return model_config(config.arch, **overrides)
    if config.init_from is None:
        raise typer.TyperException("Missing option '--arch', or arch in the file of --config")
    from nmt.checkpoint_file import read_model_config

    return replace(read_model_config(config.init_from), **overrides)
