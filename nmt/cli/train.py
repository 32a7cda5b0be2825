"""`nmt train` trains a model."""

import sys
from dataclasses import replace
from typing import Annotated, Any

import typer

from nmt.cli.flags import flags, use_config
from nmt.config import ModelConfig, TrainConfig
from nmt.model.architectures import model_config

EXAMPLES = """Examples:

nmt train data --arch transformer_base --save-dir run

nmt train data --arch transformer_base --save-dir run --dry-run

nmt train news --init-from run/best.safetensors --save-dir tuned --lr-schedule inverse-sqrt --lr 1e-4

nmt train --config run/config.toml --save-dir run2 --seed 2"""


@flags(config=TrainConfig, model_overrides=ModelConfig)
def train(
    data: Annotated[str, typer.Argument(help="Data folder that nmt preprocess wrote.")],
    config: TrainConfig,
    model_overrides: dict[str, Any],
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
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print the plan and the time, memory and disk space that it needs.")
    ] = False,
) -> None:
    """Train a Transformer, or resume the training in --save-dir.

    Options in the panel Model override fields of the architecture.
    """
    model = _model_config(config, model_overrides)
    from nmt.training.ranks import is_rank

    if config.gpus > 1 and not is_rank():
        from nmt.training.ranks import launch

        launch(sys.argv[1:], config.gpus, config.device)
        return
    if dry_run:
        from nmt.training.dry_run import dry_run as run_training
    else:
        from nmt.training.train import train as run_training
    run_training(data, model, config)


def _model_config(config: TrainConfig, overrides: dict[str, Any]) -> ModelConfig:
    if config.arch is not None:
        return model_config(config.arch, **overrides)
    if config.init_from is None:
        raise typer.TyperException("Missing option '--arch', or arch in the file of --config")
    from nmt.checkpoint_file import read_model_config

    return replace(read_model_config(config.init_from), **overrides)
