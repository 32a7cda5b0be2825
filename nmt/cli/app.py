"""The command `nmt`: its subcommands, exit codes and error lines."""

import errno
import inspect
import re
import sys
from itertools import takewhile
from reprlib import repr as shortened
from textwrap import shorten
from typing import Annotated, Any

import typer
from typer import Option
from typer.core import TyperCommand, TyperOption

from nmt import __version__, console
from nmt.cli.align import align
from nmt.cli.architectures import architectures
from nmt.cli.attention import attention
from nmt.cli.average_checkpoints import average_checkpoints
from nmt.cli.calibrate import calibrate
from nmt.cli.clean import clean
from nmt.cli.export import export
from nmt.cli.extend import extend
from nmt.cli.generate import generate
from nmt.cli.import_ import import_
from nmt.cli.info import info
from nmt.cli.preprocess import EXAMPLES as PREPROCESS_EXAMPLES
from nmt.cli.preprocess import preprocess
from nmt.cli.report import report
from nmt.cli.rescore import rescore
from nmt.cli.score import score
from nmt.cli.serve import serve
from nmt.cli.split import split
from nmt.cli.train import EXAMPLES as TRAIN_EXAMPLES
from nmt.cli.train import WAYS, train
from nmt.cli.translate_file import translate_file
from nmt.cli.trees import trees
from nmt.cli.vocabulary_map import vocabulary_map
from nmt.errors import INTERRUPTED_EXIT_CODE, NmtError, StoppedError


class _Command(TyperCommand):
    """A command that finds forgotten values and repeated texts, and whose help page has all names in full.

    Typer would take the next flag as a value, use the last one of several, and break long names in 80 columns.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given, _, order = self.make_parser(ctx).parse_args(args=list(args))
        flags = {flag for param in self.params for flag in param.opts if flag.startswith("--")}
        for param in {param.name: param for param in order}.values():
            value, count = given[param.name], sum(each.name == param.name for each in order)
            values = value if isinstance(value, list | tuple) else [value]
            next_flag = next((each for each in values if each in flags and f"{param.opts[0]}={each}" not in args), None)
            if next_flag and isinstance(param, TyperOption):
                raise typer.BadParameter(f"{param.opts[0]} has no value, but is followed by {next_flag}; give one", ctx)
            is_text = isinstance(param, TyperOption) and param.type_descriptor.annotation is str
            if count > 1 and is_text and isinstance(value, str):
                console.warn(f"{param.opts[0]} is given {count} times; only the last one, {value}, counts")
        return super().parse_args(ctx, args)

    def format_help(self, *arguments: Any) -> None:
        from rich.table import Table
        from rich.text import Text
        from typer import rich_utils

        class Options(Table):
            """Has the names of an option below each other, and a line for each of many choices."""

            def add_row(self, *cells: Any, **style: Any) -> None:
                if len(cells) > 5:  # of an option, and not of a command
                    *required, name, short, off, _, kind, text = cells
                    names = Text(" ").join(filter(None, (name, short))) + (Text("\n") + off if off else "")
                    cells = *required, names, Text("|\n").join(kind.split("|")) if len(kind) > 16 else kind, text
                super().add_row(*cells, **style)
                for column in self.columns[:-1]:
                    column.no_wrap = True

        rich_utils.Table = Options  # type: ignore[misc]
        super().format_help(*arguments)


app = typer.Typer(
    name="nmt",
    help="Train and use the Transformer of 'Attention Is All You Need' for machine translation.\n\nThe usual order is "
    "nmt split, preprocess, train, generate, score and serve. README.md and the tutorials in docs/ show it.",
    epilog="Example: echo 'Good morning.' | nmt generate Helsinki-NLP/opus-mt-en-de",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_PANELS = {
    "Corpus": (align, clean, split, preprocess),
    "Training": (train, report, average_checkpoints, architectures),
    "Translating": (generate, translate_file, serve),
    "Models": (info, extend, calibrate, vocabulary_map),
    "Measuring": (score, rescore, attention),
}
for panel, commands in _PANELS.items():
    for command in commands:
        epilog = {train: TRAIN_EXAMPLES, preprocess: PREPROCESS_EXAMPLES}.get(command)
        app.command(no_args_is_help=command is not architectures, epilog=epilog, rich_help_panel=panel)(command)
_GROUPS = {export: "Models", import_: "Models", trees: "Corpus"}
for group, panel in _GROUPS.items():
    app.add_typer(group, rich_help_panel=panel)
for group in (app, *_GROUPS):
    for registered in group.registered_commands:
        registered.cls = _Command
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


@console.printing()
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


# Options of other toolkits, and what takes their places here.
_OTHER_NAMES = {"--beam-size": ("--beam", ""), "--lenpen": ("--alpha", ""), "--max-tokens": ("--batch-tokens", "")}
_OTHER_NAMES |= dict.fromkeys(("--epochs", "--max-epochs"), ("--max-updates", ", a number of updates"))
_OTHER_NAMES["--batch-size"] = ("--batch-tokens", ", a number of tokens")


def usage_line(error: Any) -> str | None:
    """Returns what is wrong with the command line, or None if typer has already shown the command's help.

    A wrong value gets a sentence in the style of the configurations' checks, such as `--beam must be a whole
    number from 1 to 8, but is 'abc'`. For everything else, it is typer's own text with a reference to the help.
    """
    cause: Any = error.__cause__
    if isinstance(error, typer.BadParameter) and isinstance(error.param, TyperOption) and hasattr(cause, "errors"):
        value = cause.errors()[0]["input"]  # pydantic has rejected the value, and typer's message omits it
        param, described = error.param, error.param.type_descriptor
        if described.choices:
            accepted = f"one of {', '.join(map(str, described.choices))}"
        else:
            accepted = "a whole number" if described.annotation in (int, list[int]) else "a number"
            accepted += "" if param.max is None else f" from {param.min:,} to {param.max:,}"
        return f"{param.opts[0]} must be {accepted}, but is {shortened(value)}"
    text = error.format_message().removeprefix("Invalid value: ")
    context = getattr(error, "ctx", None)  # absent where the parser found the error
    if context and text.startswith("Missing option"):
        text = f"Missing {_missing_options(context.command, sys.argv[1:])}"
    flag = getattr(error, "option_name", "")
    name, unit = _OTHER_NAMES.get(flag, ("", ""))
    if context and name in {name for param in context.command.params for name in param.opts}:
        text = f"there is no {flag}; give {name}{unit}"
    help_page = f"{context.command_path if context else _command_in(sys.argv[1:])} --help"
    # A shell pattern that matches thousands of files must not fill the screen.
    return f"{shorten(text, 500, placeholder=' …').rstrip('.')}; see {help_page}" if text else None


def _missing_options(command: Any, words: list[str]) -> str:
    """Returns all options that a command needs and a command line lacks: `option '--dest'`."""
    given = {word.partition("=")[0] for word in words}
    names = [param.opts[0] for param in command.params if param.required and given.isdisjoint(param.opts)]
    missing = [f"'{name}'" for name in names if name.startswith("--")]
    if command.name == "train" and given.isdisjoint({*WAYS, "--config"}):
        missing.append(f"one of {', '.join(WAYS)}")
    return f"option{'s' * (len(missing) > 1)} {', '.join(missing)}"


def _command_in(words: list[str]) -> str:
    """Returns the command of a command line, such as `nmt train` or `nmt import fairseq`."""
    names = list(takewhile(lambda word: not word.startswith("-"), words))
    return " ".join(["nmt", *names[: 2 if names[:1] in [[group.info.name] for group in _GROUPS] else 1]])


def error_line(error: Exception) -> str | None:
    """Returns the error line of a failed command, or None for a bug, whose traceback is shown."""
    if isinstance(error, NmtError):
        return str(error)
    is_out_of_memory = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
    if not is_out_of_memory and "torch" in sys.modules:
        from nmt.model.device import is_out_of_memory as is_memory_error

        is_out_of_memory = is_memory_error(error)
    if is_out_of_memory:
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
