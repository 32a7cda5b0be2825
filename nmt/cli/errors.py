"""The error lines of failed commands and of wrong command lines."""

import errno
import sys
from reprlib import repr as shortened
from textwrap import shorten
from typing import Any

import typer
from typer.core import TyperOption

from nmt.errors import NmtError

# A shell pattern that matches thousands of files must not fill the screen.
_LONGEST_LINE = 500
# Names of other toolkits' options, and what they are called here.
_OTHER_NAMES = {
    "--epochs": "--max-updates",
    "--max-epochs": "--max-updates",
    "--batch-size": "--batch-tokens",
    "--max-tokens": "--batch-tokens",
    "--beam-size": "--beam",
    "--lenpen": "--alpha",
}


def usage_line(error: Any) -> str | None:
    """Returns what is wrong with the command line, or None if typer has already shown the command's help.

    A wrong value gets a sentence in the style of the configurations' checks, such as `--beam must be a whole number
    from 1 to 8, but is 'abc'`. For everything else, it is typer's own text with a reference to the help.
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
    text = error.format_message()
    context = getattr(error, "ctx", None)  # absent where the parser found the error
    flag = getattr(error, "option_name", "")
    if context and _OTHER_NAMES.get(flag) in {name for param in context.command.params for name in param.opts}:
        text = f"{flag} is called {_OTHER_NAMES[flag]} here"
    help_page = f"{context.command_path if context else 'nmt COMMAND'} --help"
    return f"{shorten(text, _LONGEST_LINE, placeholder=' …').rstrip('.')}; see {help_page}" if text else None


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
