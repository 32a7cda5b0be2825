"""Runs a command on damaged files and judges how it ended."""

import hashlib
import os
import shlex
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random

from hostile_cases.child import SECONDS, Ended, call
from hostile_cases.commands import Command, run

ONE_SENTENCE, SAME_OUTPUT, STOPPED, ELSE = VERDICTS = ("one sentence", "same output", "stopped", "else")
# The most memory that a command may hold for the small files here.
PEAK_BYTES = 1 << 30
_COMMAND = "command.txt"


@dataclass(frozen=True)
class Outcome:
    """The verdict on a case, one of VERDICTS. ELSE comes with a cause and the command."""

    verdict: str
    cause: str = ""
    command: str = ""


@dataclass(frozen=True)
class Trial:
    """A command to run in a damaged folder.

    Attributes:
        expected: what `command.result` must return if the command succeeds.
        peak_bytes: the most memory that the command may hold.
    """

    command: Command
    expected: object
    peak_bytes: int = PEAK_BYTES


def in_process(make: Callable[[Random], Trial], random: Random, folder: Path) -> Outcome:
    """Returns the outcome of a trial. `make` damages the files in `folder` and the command runs there, in one child."""
    outcome = judged(call(partial(_attempt, make, random), folder))
    return replace(outcome, command=(folder.parent / _COMMAND).read_text(errors="backslashreplace"))


def _attempt(make: Callable[[Random], Trial], random: Random) -> dict[str, object]:
    trial = make(random)
    Path("..", _COMMAND).write_text(shlex.join(("nmt", *trial.command.arguments)), errors="surrogateescape")
    before = inventory(trial.command.changes)
    code = run(trial.command.arguments)
    return {
        "code": code,
        "odd": "" if code else _odd_result(trial),
        "harmed": [path for path, found in before.items() if inventory_of(path) != found],
        "left": leftovers(),
        "peak": trial.peak_bytes,
    }


def _odd_result(trial: Trial) -> str:
    """Returns what is wrong with the output of a command that succeeded; "" if nothing is wrong."""
    try:
        return "" if trial.command.result() == trial.expected else "other output, silently"
    except Exception as error:
        return f"incomplete output: {error!r}"


def inventory(besides: str) -> dict[str, str]:
    """Returns a digest of every file below the working folder, except in the folder `besides`."""
    paths = map(str, Path().rglob("*"))
    return {path: inventory_of(path) for path in paths if not besides or Path(path).parts[0] != besides}


def inventory_of(name: str) -> str:
    path = Path(name)
    if path.is_symlink():
        return f"link to {os.readlink(path)}"
    if path.is_file():
        return hashlib.sha256(path.read_bytes()).hexdigest()
    return "folder" if path.is_dir() else "special" if path.exists() else "gone"


def leftovers() -> list[str]:
    """Returns unfinished files below the working folder, and new run folders that hold only a lock."""
    unfinished = [str(path) for path in Path().rglob("*.partial-*")]
    empty = [str(path.parent) for path in Path().glob("new*/.lock") if len(list(path.parent.iterdir())) == 1]
    return unfinished + empty


def judged(ended: Ended) -> Outcome:
    """Returns the verdict on a child of `in_process`."""
    cause = _fault(ended)
    if cause:
        return Outcome(ELSE, cause)
    if ended.value["code"] == 0:
        return Outcome(ELSE, ended.value["odd"]) if ended.value["odd"] else Outcome(SAME_OUTPUT)
    if ended.value["code"] in (1, 2) and is_one_sentence(ended.stderr):
        return Outcome(ONE_SENTENCE)
    return Outcome(ELSE, f"exit code {ended.value['code']}, and ends in: {last_line(ended.stderr)}")


def _fault(ended: Ended) -> str:
    """Returns what is wrong regardless of the command's exit code; "" if nothing is wrong."""
    if ended.code == -signal.SIGALRM:
        return f"does not end within {SECONDS} seconds"
    if ended.code < 0:
        return f"killed by {signal.Signals(-ended.code).name}"
    if "Traceback (most recent call last)" in ended.stderr:
        return f"traceback: {last_line(ended.stderr)}"
    if ended.value["harmed"]:
        return f"harmed {', '.join(ended.value['harmed'][:3])}"
    if ended.value["left"]:
        return f"left behind {', '.join(ended.value['left'][:3])}"
    if ended.peak_bytes > ended.value["peak"]:
        return f"held {ended.peak_bytes >> 20:,} MiB"
    return ""


def is_one_sentence(stderr: str) -> bool:
    """Returns whether standard error ends with an error message of one line and has no other error message."""
    lines = stderr.rstrip("\n").split("\n")
    return [line for line in lines if line.startswith("error: ")] == lines[-1:]


def last_line(stderr: str) -> str:
    return stderr.rstrip("\n").split("\n")[-1][:200]


def fresh_copy(of: Path, folder: Path) -> None:
    """Replaces `folder` by a copy of the folder `of`."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(of, folder, symlinks=True)
