"""Helpers that run the commands as a user does, but in the test's own process."""

import gzip
import io
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import typer

import nmt
from nmt.cli.app import main

SMALL = [
    "--d-model=32", "--d-ff=64", "--heads=2", "--d-k=16", "--d-v=16", "--encoder-layers=1", "--decoder-layers=1",
    "--dropout=0.1",
]  # fmt: skip
# An update fits into --device-tokens. The check of memory computes so many tokens, and the default takes much longer.
TRAIN = [
    "--arch=transformer_tiny", "--batch-tokens=800", "--batch-groups=2", "--warmup-updates=20", "--valid-updates=20",
    "--save-updates=10", "--log-updates=10", "--precision=fp32", "--device=cpu", "--device-tokens=2000",
]  # fmt: skip
LANGS = ["--source-lang=en", "--target-lang=de"]
typer.main.get_command = cache(typer.main.get_command)  # reading all flags takes longer than refusing one of them
needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="this works on Linux only")


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
            exit_code = int(ended.code or 0)
    done = Done(exit_code, stdout.buffer.getvalue(), stderr.buffer.getvalue().decode())  # type: ignore[attr-defined]
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


def valid_losses(folder: Path) -> dict[int, float]:
    """Returns the validation loss in nats a token at each update of a run folder that was validated."""
    return {record["update"]: record["nll"] for record in records(folder, "valid")}


def weights(path: Path) -> dict[str, torch.Tensor]:
    """Returns the weights of a checkpoint."""
    return nmt.load_checkpoint(path).weights  # type: ignore[no-any-return]


def same_weights(first: Path, second: Path) -> bool:
    """Tells whether two checkpoints have the same weights to the last bit."""
    expected, tensors = weights(first), weights(second)
    return expected.keys() == tensors.keys() and all(torch.equal(expected[name], tensors[name]) for name in expected)


def assert_resumes(train_until: Callable[[Path, int], object], folder: Path, stops: list[int]) -> None:
    """Checks that a training that ends at each of `stops` and resumes gives the weights of an uninterrupted one.

    Args:
        train_until: trains into a run folder until an update.
        folder: receives the run folders `whole` and `resumed`.
    """
    train_until(folder / "whole", stops[-1])
    for stop in stops:
        train_until(folder / "resumed", stop)
    snapshot = f"snapshot-{stops[-1]:08d}.safetensors"
    assert same_weights(folder / "whole" / snapshot, folder / "resumed" / snapshot)


def numbers(text: str) -> list[tuple[int, int]]:
    """Returns the alignment in text such as `0-0 1-2`."""
    return [tuple(map(int, link.split("-"))) for link in text.split()]  # type: ignore[misc]


def write(path: Path, data: bytes) -> Path:
    """Writes a file, compressed if its name ends in .gz."""
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path
