"""`nmt train` trains a model."""

import sys
from dataclasses import fields
from typing import Annotated, Any

import typer

from nmt.cli.flags import flags
from nmt.cli.options_file import options_in, use_config
from nmt.config import ModelConfig, TrainConfig
from nmt.errors import NmtError

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
    elif dry_run:
        from nmt.training.train import dry_run as estimate

        estimate(data, model, config)
    else:
        from nmt.training.train import train as run_training

        run_training(data, model, config)
