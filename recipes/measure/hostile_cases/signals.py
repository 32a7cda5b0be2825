"""Signals at random moments to commands that run as separate processes."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from resource import RUSAGE_CHILDREN, getrusage
from typing import NamedTuple

from hostile_cases.child import SECONDS, call
from hostile_cases.commands import COMMANDS, run, undamaged
from hostile_cases.outcomes import ELSE, SAME_OUTPUT, STOPPED, Outcome, last_line, leftovers
from nmt.errors import INTERRUPTED_EXIT_CODE

# Commands with further arguments, their output, and the seconds within which the signal comes. Most of these seconds
# pass before the command's work begins.
_SIGNALLED: dict[str, tuple[tuple[str, ...], str, float]] = {
    "preprocess": (("--workers=2",), "new", 4.0),
    "train for longer": ((), "new", 6.0),
    "average": ((), "mean.safetensors", 3.0),
    "generate text": (("--workers=2",), "out", 7.0),
}
_SIGNALS = (signal.SIGTERM, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGKILL)
_ORPHAN_SECONDS = 2.0
# Processor time that Python takes to start. No program can handle a signal earlier.
_STARTING_SECONDS = 0.3
_MARK = "NMT_HOSTILE_CASE"


class _Stopped(NamedTuple):
    """How a process ended.

    Attributes:
        code: the exit code, or minus the number of a signal; None if the process did not end.
        seconds: processor time.
        stderr: everything that the process wrote to standard error.
    """

    code: int | None
    seconds: float
    stderr: str


def signalled(random: Random, folder: Path) -> Outcome:
    """Sends a signal to a command, then checks its exit code, its processes, its files and that it can run again."""
    name, number = random.choice(list(_SIGNALLED)), random.choice(_SIGNALS)
    options, path, seconds = _SIGNALLED[name]
    stopped = _run_and_signal((*COMMANDS[name].arguments, *options), number, random.uniform(0, seconds), random, folder)
    fault = _orphans(folder) or _wrong_end(stopped, number, name)
    if not fault:
        checked = call(partial(_check_files, name, path, number), folder)
        fault = f"exit code {checked.code}: {last_line(checked.stderr)}" if checked.code else checked.value
    if fault:
        return Outcome(ELSE, fault, f"{number.name} to nmt {shlex.join((*COMMANDS[name].arguments, *options))}")
    return Outcome(STOPPED if stopped.code else SAME_OUTPUT)


def _run_and_signal(
    arguments: tuple[str, ...], number: signal.Signals, moment: float, random: Random, folder: Path
) -> _Stopped:
    """Starts the command, signals it after `moment` seconds, and returns how it ended.

    The signal goes to the process, as from a scheduler, or to its process group, as from a terminal.
    """
    send: Callable[[int, int], None] = random.choice((os.kill, os.killpg))
    before = getrusage(RUSAGE_CHILDREN)
    with (folder.parent / "stderr").open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "nmt", *arguments],
            cwd=folder,
            env=os.environ | {_MARK: str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=True,
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # a background job inherits SIG_IGN
        )
    code = _wait(process, moment)
    if code is None:
        send(process.pid, number)
        code = _wait(process, SECONDS)
    after = getrusage(RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return _Stopped(code, seconds, (folder.parent / "stderr").read_text(errors="replace"))


def _wait(process: "subprocess.Popen[bytes]", seconds: float) -> int | None:
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


def _orphans(folder: Path) -> str:
    """Returns a message if processes outlive the command, and kills them; "" if there are none."""
    deadline = time.monotonic() + _ORPHAN_SECONDS
    while found := _marked(folder):
        if time.monotonic() > deadline:
            for pid in found:
                os.kill(pid, signal.SIGKILL)
            return f"{len(found)} processes still run {_ORPHAN_SECONDS:g} seconds later"
        time.sleep(0.05)
    return ""


def _marked(folder: Path) -> list[int]:
    """Returns the ids of all processes that a case started, directly or not."""
    mark = f"{_MARK}={folder}\0".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:  # the process has ended, or belongs to another user
            continue
    return found


def _wrong_end(stopped: _Stopped, number: signal.Signals, name: str) -> str:
    """Returns what is wrong with a command's exit code and messages; "" if nothing is wrong."""
    if stopped.code is None:
        return f"does not end within {SECONDS} seconds"
    if number == signal.SIGKILL:
        return "" if stopped.code in (0, -number) else f"exit code {stopped.code}"
    if "Traceback (most recent call last)" in stopped.stderr:
        return f"traceback: {last_line(stopped.stderr)}"
    documented = {0}
    if name.startswith(("train", "generate", "preprocess")):  # these can be resumed
        documented.add(INTERRUPTED_EXIT_CODE)
    if not name.startswith("train") or stopped.seconds < _STARTING_SECONDS:
        documented |= {-number, 128 + number}
    if stopped.code in documented:
        return ""
    return f"exit code {stopped.code}, and ends in: {last_line(stopped.stderr)}"


def _check_files(name: str, path: str, number: signal.Signals) -> str:
    """Returns what is wrong with the files that a command left, or with running it again; "" if nothing is wrong."""
    if number != signal.SIGKILL and leftovers():
        return f"left behind {', '.join(leftovers()[:3])}"
    command = COMMANDS[name]
    unfinished = not Path(path).exists() or "train" in name
    if unfinished and (code := run(command.arguments)):
        return f"the same command then ends with exit code {code}"
    return "" if command.result() == undamaged[name] else "incomplete or other output"
