"""Wrong command lines, in one sentence each."""

from reprlib import repr as shortened
from textwrap import shorten

import typer
from typer.core import TyperOption

# A shell pattern that matches thousands of files must not fill the screen.
_LONGEST = 500


def sentence(error: typer.TyperException) -> str:
    """What is wrong with the command line; empty if typer has shown the command's help instead.

    A wrong value reads as in the checks of the configurations: `--beam must be a whole number, but is 'abc'`.
    Everything else is typer's own text, followed by a reference to the help.
    """
    if isinstance(error, typer.BadParameter) and isinstance(error.param, TyperOption) and error.__cause__:
        return _wrong_value(error.param, error.__cause__)
    said = shorten(error.format_message(), _LONGEST, placeholder=" …").rstrip(".?")
    if not said:
        return ""
    said = said[0].lower() + said[1:].replace(". Did you", "; did you").replace("(Possible", "(possible")
    context = getattr(error, "ctx", None)  # absent where the parser found the error
    return f"{said}; see {context.command_path if context else 'nmt COMMAND'} --help"


def _wrong_value(param: TyperOption, error: BaseException) -> str:
    # typer has pydantic check values, and leaves the value out of its own message.
    given = error.errors()[0]["input"]  # type: ignore[attr-defined]
    return f"{param.opts[0]} must be {_accepted(param)}, but is {shortened(given)}"


def _accepted(param: TyperOption) -> str:
    """`a whole number from 1 to 8`, or `one of auto, cpu, cuda`."""
    described = param.type_descriptor
    if described.choices:
        return f"one of {', '.join(map(str, described.choices))}"
    kind = "a whole number" if described.annotation in (int, list[int]) else "a number"
    return kind if param.max is None else f"{kind} from {param.min:,} to {param.max:,}"
