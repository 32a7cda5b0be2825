"""The command `nmt`: its subcommands and exit codes."""

import inspect
import re
import sys
from typing import Annotated

import typer
from typer import Option

from nmt import __version__, console
from nmt.cli.architectures import architectures
from nmt.cli.attention import attention
from nmt.cli.average_checkpoints import average_checkpoints
from nmt.cli.benchmark import benchmark
from nmt.cli.clean import clean
from nmt.cli.errors import error_line, usage_line
from nmt.cli.export import export
from nmt.cli.generate import generate
from nmt.cli.import_ import import_
from nmt.cli.info import info
from nmt.cli.preprocess import preprocess
from nmt.cli.report import report
from nmt.cli.rescore import rescore
from nmt.cli.score import score
from nmt.cli.serve import serve
from nmt.cli.train import EXAMPLES, train
from nmt.cli.translate_file import translate_file
from nmt.cli.trees import trees
from nmt.cli.vocabulary_map import vocabulary_map
from nmt.errors import INTERRUPTED_EXIT_CODE, StoppedError

app = typer.Typer(
    name="nmt",
    help="Train and use the Transformer of 'Attention Is All You Need' for machine translation.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_MAIN_COMMANDS = clean, preprocess, train, average_checkpoints, generate, translate_file, rescore, score, serve, export
for command in (*_MAIN_COMMANDS, vocabulary_map, report, attention, info, architectures):
    epilog = EXAMPLES if command is train else None
    app.command(no_args_is_help=command is not architectures, epilog=epilog)(command)
for group in (benchmark, import_, trees):
    app.add_typer(group)
for group in (app, benchmark, import_, trees):
    for registered in group.registered_commands:
        # Typer would keep the line breaks of the docstring in all paragraphs but the first.
        registered.help = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.getdoc(registered.callback) or "")


def _show_version(requested: bool) -> None:
    if requested:
        print(f"nmt {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool, Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Runs `nmt` and exits with 0 after success, 1 after an error, 2 if the command line is wrong, 75 if resumable."""
    console.prepare_streams()
    try:
        code = app(prog_name="nmt", standalone_mode=False) or 0
        sys.stdout.flush()
    except StoppedError as interrupted:
        code = INTERRUPTED_EXIT_CODE
        if str(interrupted):
            console.info(str(interrupted))
    except BrokenPipeError:  # the program that reads standard output has ended
        code = 1
    except typer.TyperException as error:
        code = 2
        if line := usage_line(error):
            console.error(line)
    except Exception as error:
        code, line = 1, error_line(error)
        if line is None:
            raise
        console.error(line)
    console.finish_output()
    sys.exit(code)
