"""Runs a function in a forked child process, with limits on time, memory and disk.

A fork takes a hundredth of a second, but a new process takes seconds to import torch. The parent must not run any torch
operation before it forks, because the threads that an operation starts do not exist in the child.
"""

import json
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECONDS = 120
MEMORY_BYTES = 4 << 30
FILE_BYTES = 1 << 30
_VALUE = "value.json"


@dataclass(frozen=True)
class Ended:
    """How a child ended.

    Attributes:
        code: the exit code, or minus the number of the signal that ended the process.
        value: the function's return value; None if it did not return.
        stderr: everything that the child wrote to standard error.
        peak_bytes: the most memory that the child held.
    """

    code: int
    value: Any
    stderr: str
    peak_bytes: int


def call(function: Callable[[], Any], folder: Path) -> Ended:
    """Calls `function`, which returns plain data, in a child, and returns how the child ended.

    The working folder of the child is `folder`. Its standard input is empty. Its standard output and standard error go
    to files beside `folder`.
    """
    (folder.parent / _VALUE).unlink(missing_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _child(function, folder)
    _, status, usage = os.wait4(pid, 0)
    _kill_group(pid)
    value = folder.parent / _VALUE
    return Ended(
        os.waitstatus_to_exitcode(status),
        json.loads(value.read_text()) if value.exists() else None,
        (folder.parent / "stderr").read_text(errors="replace"),
        usage.ru_maxrss << 10,
    )


def _child(function: Callable[[], Any], folder: Path) -> None:
    code = 1
    try:
        os.setsid()
        _redirect(folder.parent)
        os.chdir(folder)
        _limit()
        value = function()
        (folder.parent / _VALUE).write_text(json.dumps(value))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _redirect(folder: Path) -> None:
    for number, name, mode in ((0, os.devnull, "rb"), (1, folder / "stdout", "wb"), (2, folder / "stderr", "wb")):
        with open(name, mode) as file:
            os.dup2(file.fileno(), number)


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.alarm(SECONDS)  # SIGALRM ends the process


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
