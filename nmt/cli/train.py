"""`nmt train` trains a model."""

import os
import shlex
import sys
import time
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nmt import console, extensions
from nmt.cli.flags import flags
from nmt.cli.options_file import options_in, use_config
from nmt.config import ModelConfig, TrainConfig
from nmt.errors import NmtError

if TYPE_CHECKING:
    from nmt.training.loop import Clock

EXAMPLES = """Examples:

nmt train data --save-dir run --hours 2

nmt train data --arch transformer_base --save-dir run

nmt train data --arch transformer_base --save-dir run --dry-run

nmt train news --init-from run/best.safetensors --save-dir tuned --lr-schedule inverse-sqrt --lr 1e-4

nmt train --config run/config.toml --save-dir run2 --seed 2"""


OptionsFile = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        metavar="<file>",
        callback=use_config,
        is_eager=True,
        help="TOML file with options, such as config.toml of a run folder. Flags override the file.",
    ),
]
Hours = Annotated[
    float | None,
    typer.Option(
        min=0.01,
        max=100_000,
        help="Choose architecture, optimiser, batch size, schedule, dropout, validation and checkpoints, so that "
        "training ends after this many hours. Options that you give stay. Each choice is printed with its reason. "
        "average.safetensors in the run folder is the model to use.",
    ),
]
Minutes = Annotated[float | None, typer.Option(min=0.1, max=6_000_000, help="The same as --hours, in minutes.")]


@flags(config=TrainConfig, model_overrides=ModelConfig)
def train(
    data: Annotated[str, typer.Argument(metavar="DATA", help="Data folder that nmt preprocess wrote.")],
    config: TrainConfig,
    model_overrides: dict[str, Any],
    context: typer.Context,
    _: OptionsFile = None,
    hours: Hours = None,
    minutes: Minutes = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print the plan and the time, memory and disk space that it needs.")
    ] = False,
) -> None:
    """Train a Transformer, or resume the training in --save-dir.

    Options in the panel Model override fields of the architecture.
    """
    clock, ready, seconds = None, False, _seconds(hours, minutes)
    with ExitStack() as lock:
        if seconds:
            locking = None if dry_run else lock
            config, model_overrides, clock, ready = _in_time(data, config, model_overrides, context, seconds, locking)
        if not ready:
            lock.close()  # the training takes it
        model = _model_config(config, model_overrides)
        from nmt.training.ranks import is_rank, launch

        if config.gpus > 1 and not is_rank():
            arguments = _arguments(data, model, config, clock, dry_run) if seconds else sys.argv[1:]
            launch(arguments, config.gpus, config.device)
        elif dry_run:
            from nmt.training.dry_run import dry_run as estimate

            estimate(data, model, config)
        else:
            from nmt.training.train import train as run_training

            run_training(data, model, config, clock, ready=ready)


# The environment variable with which the ranks of a training learn which options are the user's. They get all options.
_GIVEN = "NMT_GIVEN"


def _seconds(hours: float | None, minutes: float | None) -> float:
    """Returns the time that --hours or --minutes gives; 0 without them."""
    if hours is not None and minutes is not None:
        raise NmtError("--hours and --minutes were both given; leave out one of them")
    return 3600 * (hours or 0) + 60 * (minutes or 0)


def _in_time(
    data: str,
    config: TrainConfig,
    overrides: dict[str, Any],
    context: typer.Context,
    seconds: float,
    lock: ExitStack | None,
) -> "tuple[TrainConfig, dict[str, Any], Clock | None, bool]":
    """Returns the options, the clock, and whether this process can train with them at once.

    The clock is None if the time does not end the training. The ranks of a training get their options from the process
    that started them. `lock` receives the lock of the run folder, so that a second training does not even measure.
    """
    ends_at = time.monotonic() + seconds
    given = {f.name for f in fields(TrainConfig) if _is_given(context, f.name)}
    from nmt.data.folder import DataFolder
    from nmt.training.hours import clock_of, with_choices
    from nmt.training.ranks import is_launched, is_rank
    from nmt.training.run_folder import RunFolder, numbered
    from nmt.training.train import check_save_dir

    if is_rank() and not is_launched():
        raise NmtError("--hours and --minutes do not work with torchrun; give --gpus, or all options without them")
    opened = DataFolder.open(data)
    if is_rank():
        return config, overrides, clock_of(ends_at, opened, config, os.environ[_GIVEN].split()), False
    folder = RunFolder(Path(config.save_dir))
    if lock is not None:
        check_save_dir(opened, config)
        lock.enter_context(folder.locked())
    if numbered(folder.path, "state"):
        return *_options_of_run(config, overrides, given), None, False
    config, overrides = with_choices(data, config, overrides, given, seconds)
    os.environ[_GIVEN] = " ".join(given)
    if "max_updates" in given or config.lr_schedule == "linear":
        reason = "--max-updates is given" if "max_updates" in given else "--lr-schedule linear needs a fixed number"
        console.info(f"training ends at update {config.max_updates:,} and not by the clock, because {reason}")
        return config, overrides, None, config.gpus == 1
    clock = clock_of(ends_at, opened, config, given)
    clock.warn_if_short(config.max_updates)
    return config, overrides, clock, config.gpus == 1


def _options_of_run(
    config: TrainConfig, overrides: dict[str, Any], given: set[str]
) -> tuple[TrainConfig, dict[str, Any]]:
    """Returns the options in config.toml of the run folder, except for those that are given."""
    from nmt.training.run_folder import CONFIG

    path = Path(config.save_dir) / CONFIG
    if not path.exists():
        raise NmtError(
            f"{config.save_dir} has a training state, but {path}, which has its options, is missing; give the options "
            f"without a time, or another --save-dir"
        )
    console.info(f"{config.save_dir} has a training state; resuming with the options in {path}, whatever the time")
    found = options_in(str(path))
    of_training = {f.name for f in fields(TrainConfig)} & found.keys() - given
    of_model = {f.name for f in fields(ModelConfig)} & found.keys()
    values = config.to_dict() | {name: found[name] for name in of_training}
    resumed = TrainConfig.from_dict(values, str(path))
    extensions.load(resumed.user_module)  # flags load only the module of the command line
    return resumed, {name: found[name] for name in of_model} | overrides


def _is_given(context: typer.Context, name: str) -> bool:
    """Returns whether the command line or the file of --config has this option."""
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def _arguments(data: str, model: ModelConfig, config: TrainConfig, clock: "Clock | None", dry_run: bool) -> list[str]:
    """Returns the arguments of `nmt` for the ranks of a training with --hours or --minutes."""
    from nmt.training.run_folder import command_line

    arguments = shlex.split(command_line(data, model, config))[1:]
    arguments += ["--max-updates", str(config.max_updates)]
    arguments += ["--dry-run"] * dry_run + ["--resume-changed"] * config.resume_changed
    if clock:
        arguments += ["--minutes", f"{max(0.1, (clock.ends_at - time.monotonic()) / 60):.3f}"]
    return arguments


def _model_config(config: TrainConfig, overrides: dict[str, Any]) -> ModelConfig:
    if config.arch is None and config.init_from is None:
        raise typer.TyperException("Missing option '--arch', or arch in the file of --config")
    from nmt.training.run_folder import architecture

    return architecture(config, overrides)
