"""Helpers that run the commands as a user does, but in the test's own process."""

import io
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nmt.cli.app import main

SMALL = [
    "--d-model=32", "--d-ff=64", "--heads=2", "--d-k=16", "--d-v=16", "--encoder-layers=1", "--decoder-layers=1",
    "--dropout=0.1",
]  # fmt: skip
TRAIN = [
    "--arch=transformer_tiny", "--batch-tokens=800", "--batch-groups=2", "--warmup-updates=20", "--valid-updates=20",
    "--save-updates=10", "--log-updates=10", "--precision=fp32", "--device=cpu",
]  # fmt: skip


@dataclass(frozen=True)
class Done:
    code: int
    stdout: bytes
    stderr: str


def run(*arguments: str | Path, stdin: bytes = b"", code: int | None = 0) -> Done:
    """Runs `nmt` in this process and checks its exit code; `code=None` accepts every exit code.

    A new process for each command would import torch every time, which would take minutes in all.
    """
    stdout, stderr = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["nmt", *map(str, arguments)])
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        patch.setattr(sys, "stdout", stdout)
        patch.setattr(sys, "stderr", stderr)
        try:
            main()
        except SystemExit as ended:
            found = int(ended.code or 0)
    done = Done(found, stdout.buffer.getvalue(), stderr.buffer.getvalue().decode())  # type: ignore[attr-defined]
    assert code in (None, done.code), done.stderr
    return done


def failed(*arguments: str | Path, stdin: bytes = b"") -> str:
    """Returns the error message of a command that fails with exit code 1: the last line of standard error."""
    lines = run(*arguments, stdin=stdin, code=1).stderr.strip().split("\n")
    assert lines[-1].startswith("error: ")
    return lines[-1]


def train(data: Path, folder: Path, *extra: str) -> str:
    """Trains a small model into the run folder `folder` and returns the log."""
    return run("train", data, "--save-dir", folder, *TRAIN, *SMALL, *extra).stderr


def records(folder: Path, *kinds: str) -> list[dict[str, Any]]:
    """Returns the records of these kinds in a run folder's metrics.jsonl."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] in kinds]
