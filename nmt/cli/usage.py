"""Describes an error of the command line in one sentence."""

from reprlib import repr as shortened
from textwrap import shorten
from typing import Any

import typer
from typer.core import TyperOption

# The common base of typer's errors, whose name depends on the version of typer.
UsageError: type[Exception] = typer.BadParameter.__mro__[-4]
# A shell pattern that matches thousands of files must not fill the screen.
_LONGEST = 500
EXIT_CODE = 2
# What options of other toolkits, which many try first, are called here.
_OTHER_NAMES = {
    "--epochs": "--max-updates",
    "--max-epochs": "--max-updates",
    "--batch-size": "--batch-tokens",
    "--max-tokens": "--batch-tokens",
    "--beam-size": "--beam",
    "--lenpen": "--alpha",
}


def sentence(error: Any) -> str | None:
    """Returns what is wrong with the command line, or None if typer has already shown the command's help.

    A wrong value gets a sentence in the style of the configurations' checks, such as `--beam must be a whole number,
    but is 'abc'`. For everything else, the sentence is typer's own text and a reference to the help.
    """
    if isinstance(error, typer.BadParameter) and isinstance(error.param, TyperOption) and _comes_from_pydantic(error):
        return _wrong_value(error.param, error.__cause__)
    text = shorten(error.format_message(), _LONGEST, placeholder=" …").rstrip(".?")
    if not text:
        return None
    text = text[0].lower() + text[1:].replace(". Did you", "; did you").replace("(Possible", "(possible")
    if text.startswith("no such option: ") and (flag := text.split()[3]) in _OTHER_NAMES:
        text = f"no such option: {flag}; its name here is {_OTHER_NAMES[flag]}"
    context = getattr(error, "ctx", None)  # absent where the parser found the error
    return f"{text}; see {context.command_path if context else 'nmt COMMAND'} --help"


def _comes_from_pydantic(error: Exception) -> bool:
    """Returns whether pydantic rejected the value. Newer versions of typer use it; their message omits the value."""
    return hasattr(error.__cause__, "errors")


def _wrong_value(param: TyperOption, error: Any) -> str:
    given = error.errors()[0]["input"]
    return f"{param.opts[0]} must be {_accepted(param)}, but is {shortened(given)}"


def _accepted(param: TyperOption) -> str:
    """Describes what an option accepts: `a whole number from 1 to 8`, or `one of auto, cpu, cuda`."""
    described = param.type_descriptor
    if described.choices:
        return f"one of {', '.join(map(str, described.choices))}"
    kind = "a whole number" if described.annotation in (int, list[int]) else "a number"
    return kind if param.max is None else f"{kind} from {param.min:,} to {param.max:,}"
