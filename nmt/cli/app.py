"""The command `nmt`: its subcommands, exit codes and error lines."""

import errno
import inspect
import re
import sys
from typing import Annotated

import typer

from nmt import __version__, console
from nmt.cli import flags
from nmt.cli.architectures import architectures
from nmt.cli.attention import attention
from nmt.cli.average_checkpoints import average_checkpoints
from nmt.cli.benchmark import benchmark
from nmt.cli.clean import clean
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
from nmt.errors import INTERRUPTED_EXIT_CODE, NmtError, StoppedError

app = typer.Typer(
    name="nmt",
    help="Train and use the Transformer of 'Attention Is All You Need' for machine translation.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    clean,
    preprocess,
    train,
    average_checkpoints,
    generate,
    translate_file,
    rescore,
    score,
    serve,
    export,
    vocabulary_map,
    report,
    attention,
    info,
    architectures,
):
    epilog = EXAMPLES if command is train else None
    app.command(no_args_is_help=command is not architectures, epilog=epilog)(command)
app.add_typer(benchmark)
app.add_typer(import_)
app.add_typer(trees)
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
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Runs `nmt` and exits with 0 after success, 1 after an error, 2 if the command line is wrong, 75 if resumable."""
    console.prepare_streams()
    code = _run()
    console.finish_output()
    sys.exit(code)


def _run() -> int:
    try:
        code = app(prog_name="nmt", standalone_mode=False)
        sys.stdout.flush()
    except StoppedError as interrupted:
        if str(interrupted):
            console.info(str(interrupted))
        return INTERRUPTED_EXIT_CODE
    except BrokenPipeError:  # the program that reads standard output has ended
        return 1
    except typer.TyperException as error:
        if message := flags.sentence(error):
            console.error(message)
        return flags.EXIT_CODE
    except Exception as error:
        sentence = _sentence(error)
        if sentence is None:
            raise
        console.error(sentence)
        return 1
    return code or 0


def _sentence(error: Exception) -> str | None:
    """Returns the error line of a failed command, or None for a bug, whose traceback is shown."""
    if isinstance(error, NmtError):
        return str(error)
    if _is_out_of_memory(error):
        details = f" ({error})" if str(error) else ""
        return f"memory ran out{details}; process less at once, or use a machine with more memory"
    if not isinstance(error, OSError) or not error.strerror:
        return None
    names = " and ".join(str(name) for name in (error.filename, error.filename2) if name is not None)
    if names:
        return f"{names} cannot be used ({error.strerror}); check the path and its permissions"
    return (
        f"the system refused an operation ({error.strerror}); "
        f"check the standard streams, the free disk space and the limits (ulimit -a)"
    )


def _is_out_of_memory(error: Exception) -> bool:
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    if "torch" not in sys.modules:
        return False
    from nmt.model.out_of_memory import is_out_of_memory

    return is_out_of_memory(error)
