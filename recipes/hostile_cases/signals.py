"""Signals at random moments of commands that run as processes of their own."""

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

# Commands with further arguments, their output, and the seconds in which the signal comes. Most of these seconds pass
# before the command's work begins.
_SIGNALLED: dict[str, tuple[tuple[str, ...], str, float]] = {
    "preprocess": (("--workers=2",), "new", 4.0),
    "train for longer": ((), "new", 6.0),
    "average": ((), "mean.pt", 3.0),
    "generate text": (("--workers=2",), "out", 7.0),
}
_SIGNALS = (signal.SIGTERM, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGKILL)
_ORPHAN_SECONDS = 2.0
# Processor time that Python takes to start. No program can answer a signal before.
_STARTING_SECONDS = 0.3
_MARK = "NMT_HOSTILE_CASE"


class _Stopped(NamedTuple):
    """How a process ended: exit code or minus a signal's number, seconds of processor time, standard error."""

    code: int | None  # None: it did not end
    seconds: float
    stderr: str


def signalled(random: Random, folder: Path) -> Outcome:
    """Signals a command, then checks its exit code, its processes and its files, and that it can be run again."""
    name, number = random.choice(list(_SIGNALLED)), random.choice(_SIGNALS)
    options, path, seconds = _SIGNALLED[name]
    stopped = _run_and_signal((*COMMANDS[name].arguments, *options), number, random.uniform(0, seconds), random, folder)
    fault = _orphans(folder) or _wrong_end(stopped, number, resumes=name.startswith("train"))
    if not fault:
        looked = call(partial(_look, name, path, number), folder)
        fault = last_line(looked.stderr) if looked.code else looked.value
    if fault:
        return Outcome(ELSE, fault, f"{number.name} to nmt {shlex.join((*COMMANDS[name].arguments, *options))}")
    return Outcome(STOPPED if stopped.code else SAME_OUTPUT)


def _run_and_signal(
    arguments: tuple[str, ...], number: signal.Signals, moment: float, random: Random, folder: Path
) -> _Stopped:
    """Sends the signal to the process, as a scheduler does, or to its group, as a terminal does."""
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
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # background jobs ignore it
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
    """Says how many processes outlive the command, and kills them; empty if none does."""
    deadline = time.monotonic() + _ORPHAN_SECONDS
    while found := _marked(folder):
        if time.monotonic() > deadline:
            for pid in found:
                os.kill(pid, signal.SIGKILL)
            return f"{len(found)} processes still run {_ORPHAN_SECONDS:g} seconds later"
        time.sleep(0.05)
    return ""


def _marked(folder: Path) -> list[int]:
    """The processes that a case started, and the processes that these started."""
    mark, found = f"{_MARK}={folder}\0".encode(), []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:  # the process has ended, or belongs to another user
            continue
    return found


def _wrong_end(stopped: _Stopped, number: signal.Signals, *, resumes: bool) -> str:
    """What is wrong with a command's exit code and messages; empty if nothing is."""
    if stopped.code is None:
        return f"does not end within {SECONDS} seconds"
    if number == signal.SIGKILL:
        return "" if stopped.code in (0, -number) else f"exit code {stopped.code}"
    if "Traceback (most recent call last)" in stopped.stderr:
        return f"traceback: {last_line(stopped.stderr)}"
    documented = {0, INTERRUPTED_EXIT_CODE} if resumes else {0}
    if not resumes or stopped.seconds < _STARTING_SECONDS:
        documented |= {-number, 128 + number}
    if stopped.code in documented:
        return ""
    return f"exit code {stopped.code}, and ends in: {last_line(stopped.stderr)}"


def _look(name: str, path: str, number: signal.Signals) -> str:
    """What is wrong with the files that a command left, and with running it again; empty if nothing is."""
    if number != signal.SIGKILL and leftovers():
        return f"left behind {', '.join(leftovers()[:3])}"
    command = COMMANDS[name]
    unfinished = not Path(path).exists() or "train" in name
    if unfinished and (code := run(command.arguments)):
        return f"the same command then ends with exit code {code}"
    return "" if command.result() == undamaged[name] else "incomplete or other output"
