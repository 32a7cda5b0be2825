"""The command `nmt`: its subcommands, and how errors end."""

import sys
from typing import Annotated

import typer

from nmt import __version__, console
from nmt.cli.architectures import architectures
from nmt.cli.attention import attention
from nmt.cli.average_checkpoints import average_checkpoints
from nmt.cli.benchmark import benchmark
from nmt.cli.export import export
from nmt.cli.generate import generate
from nmt.cli.preprocess import preprocess
from nmt.cli.report import report
from nmt.cli.score import score
from nmt.cli.train import train
from nmt.cli.trees import trees
from nmt.errors import INTERRUPTED_EXIT_CODE, Interrupted, NmtError

app = typer.Typer(
    name="nmt",
    help="Train and use the Transformer of 'Attention Is All You Need' for machine translation.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (preprocess, train, average_checkpoints, generate, score, export, report, attention, architectures):
    app.command(no_args_is_help=command is not architectures)(command)
app.add_typer(benchmark)
app.add_typer(trees)


def _version(asked: bool) -> None:
    if asked:
        print(f"nmt {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Runs `nmt`. A user's mistake ends in one line and exit code 1; on a closed pipe, typer ends it quietly."""
    try:
        app()
    except NmtError as error:
        console.error(str(error))
        sys.exit(1)
    except Interrupted as interrupted:
        if str(interrupted):
            console.info(str(interrupted))
        sys.exit(INTERRUPTED_EXIT_CODE)
