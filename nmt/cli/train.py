"""`nmt train` trains a model."""

import sys
from dataclasses import fields
from typing import Annotated, Any

import typer
from typer import Argument, Option

from nmt.cli.flags import flags
from nmt.config import ModelConfig, TimeConfig, TrainConfig
from nmt.config.file import options_in
from nmt.errors import NmtError

EXAMPLES = """Examples:

nmt train data --save-dir run --hours 2

nmt train data --arch transformer_base --save-dir run

nmt train data --arch transformer_base --save-dir run --dry-run

nmt train news --init-from run/best.safetensors --save-dir tuned --lr-schedule inverse-sqrt --lr 1e-4

nmt train --config run/config.toml --save-dir run2 --seed 2"""


# Options of which a training needs one, unless a file of --config has it.
WAYS = "--hours", "--minutes", "--arch", "--init-from"


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


@flags()
def train(
    data: Annotated[
        str,
        Argument(
            metavar="DATA", help="Data folder that nmt preprocess wrote; a file of options (--config) may name it."
        ),
    ],
    config: TrainConfig,
    model_overrides: Annotated[dict[str, Any], ModelConfig],
    time: TimeConfig,
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
    dry_run: Annotated[
        bool, Option("--dry-run", help="Only print the plan and the time, memory and disk space that it needs.")
    ] = False,
) -> None:
    """Train a Transformer, or resume the training in --save-dir.

    The options under Model change parts of the architecture that --arch names.
    """
    if time.seconds:
        from nmt.training.hours import train_in_time

        sources = {field.name: context.get_parameter_source(field.name) for field in fields(TrainConfig)}
        # The command line or the file of --config has them.
        given = {name for name, source in sources.items() if source is not None and source.name != "DEFAULT"}
        train_in_time(data, config, model_overrides, given, time.seconds, estimate=dry_run)
        return
    if config.arch is None and config.init_from is None:
        raise typer.TyperException(f"Missing one of {', '.join(WAYS)}")
    from nmt.training.options import architecture
    from nmt.training.ranks import is_rank, launch

    model = architecture(config, model_overrides)
    if config.gpus > 1 and not is_rank():
        launch(sys.argv[1:], config.gpus, config.device)
        return
    from nmt.training import train as training

    (training.dry_run if dry_run else training.train)(data, model, config)
