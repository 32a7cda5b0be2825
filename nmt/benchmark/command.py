"""Runs `nmt` as a separate process, for measurements that need one."""

import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from nmt.config.options import flag_name
from nmt.errors import NmtError


def run_nmt(*arguments: str, options: Mapping[str, Any], text: str = "") -> None:
    """Runs a command and waits until it ends.

    Args:
        options: values by field name; None leaves an option out, and a tuple has several values.
        text: the standard input.

    Raises:
        NmtError: the command failed; the message quotes its error.
    """
    flags = [flag for name, value in options.items() for flag in _flags(name, value)]
    command = [sys.executable, "-m", "nmt", *arguments, *flags]
    done = subprocess.run(command, input=text, capture_output=True, text=True, encoding="utf-8")
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise NmtError(f"nmt {arguments[0]}, started by the benchmark, failed: {lines[-1].removeprefix('error: ')}")


def _flags(name: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [flag_name(name if value else f"no_{name}")]
    values = value if isinstance(value, tuple) else () if value is None else (value,)
    return [f"{flag_name(name)}={item}" for item in values]
