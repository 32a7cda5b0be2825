"""Damaged or missing data and lines of metrics.jsonl are noticed, and cost no other records."""

import json
import shutil
from pathlib import Path
from typing import Any

import forks
import pytest
from commands import SMALL, TRAIN, failed, run, same_weights, train

from nmt.errors import NmtError
from nmt.training.records import MetricsFile

INTERVAL: dict[str, Any] = {
    "train_seconds": 1.5, "flops": 1e12, "loss": 2.0, "ppl": 9.0, "lr": 0.1, "gradient_norm": None,
    "target_tokens_per_second": 100.0,
}  # fmt: skip
VALID: dict[str, Any] = {"train_seconds": 2.0, "ppl": 3.0, "bleu": None, "samples": []}


def record(kind: str, update: Any, values: dict[str, Any]) -> bytes:
    return json.dumps({"kind": kind, "update": update, **values}).encode()


GOOD = [
    record("start", 0, {}),
    record("train", 10, INTERVAL),
    record("valid", 10, VALID),
    record("train", 20, INTERVAL),
]
BAD = {
    "not UTF-8": b'{"kind": "start", "update": 0, "device": "\xff"}',
    "half a line": b'{"kind": "train", "upda',
    "lists without end": b"[" * 100_000,
    "not an object": b"[1, 2]",
    "zeros": bytes(100),
    "without a kind": b'{"update": 0}',
    "without an update": b'{"kind": "start"}',
    "update that is text": record("start", "1", {}),
    "train without a figure": record("train", 10, {k: v for k, v in INTERVAL.items() if k != "flops"}),
    "infinite when read": GOOD[0].replace(b"0", b'0, "flops": 1e999'),
    "train with text": record("train", 10, INTERVAL | {"loss": "2"}),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


@pytest.mark.parametrize("name", BAD)
@pytest.mark.usefixtures("printing")
def test_a_damaged_line_is_skipped_with_a_warning(path: Path, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    path.write_bytes(b"\n".join([*GOOD[:1], BAD[name], *GOOD[1:], BAD[name]]))
    assert MetricsFile(path).records() == [json.loads(line) for line in GOOD]
    said = " ".join(capfd.readouterr().err.split())
    assert f"warning: skipped 2 damaged lines of {path}, the first is line 2" in said
    MetricsFile(path).rewind(10)
    assert path.read_bytes().splitlines() == [*GOOD[:1], BAD[name], *GOOD[1:3], BAD[name]]
    MetricsFile(path).append("other", {"update": 11})
    assert MetricsFile(path).records()[-1]["update"] == 11


def test_a_training_that_starts_anew_removes_even_a_validation_before_the_first_update(path: Path) -> None:
    path.write_bytes(GOOD[0] + b"\n" + record("valid", 0, VALID) + b"\n")
    MetricsFile(path).rewind(None)
    assert path.read_bytes() == GOOD[0] + b"\n"


def test_appended_records_are_read(path: Path) -> None:
    metrics = MetricsFile(path)
    metrics.rewind(0)
    assert not path.exists()
    metrics.append("train", {"update": 1, **INTERVAL, "loss": float("nan")})
    metrics.append("valid", {"update": 1, **VALID})
    metrics.append("other", {"update": 2})
    assert [(r["kind"], r["update"], r.get("loss")) for r in metrics.records()] == [
        ("train", 1, None), ("valid", 1, None), ("other", 2, None),
    ]  # fmt: skip


def test_a_log_that_cannot_be_read_is_named(path: Path) -> None:
    path.mkdir()
    with pytest.raises(NmtError, match=r"metrics\.jsonl cannot be read .*; give the --save-dir of a training"):
        MetricsFile(path).records()
    with pytest.raises(NmtError, match=r"metrics\.jsonl cannot be read .*; move it away"):
        MetricsFile(path).rewind(0)


# Trainings


OPTIONS = [*TRAIN, *SMALL, "--max-updates=20", "--save-updates=100", "--valid-metric=nll"]


@pytest.fixture
def data(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained / "data", tmp_path / "data"))


@pytest.fixture
def finished(trained: Path, tmp_path: Path) -> Path:
    """Returns a copy of the run folder of a training of 40 updates."""
    return Path(shutil.copytree(trained / "run", tmp_path / "run"))


def test_damaged_data_ends_training_before_the_first_update(data: Path, tmp_path: Path) -> None:
    content = bytearray((data / "train.de.tokens").read_bytes())
    content[-1] ^= 1
    (data / "train.de.tokens").write_bytes(content)
    for extra in ([], ["--dry-run"]):
        message = failed("train", data, "--save-dir", tmp_path / "run", *OPTIONS, *extra)
        assert "train.de.tokens is damaged: meta.json has another SHA-256; copy the data folder again" in message
    assert not (tmp_path / "run").exists()


def test_checkpoints_without_a_state_are_set_aside(trained: Path, finished: Path) -> None:
    """The first checkpoints of a new training would be the oldest ones of the folder, and be removed at once.

    Those of the first two updates are removed when there are newer ones.
    """
    for state in finished.glob("state-*.safetensors"):
        state.unlink()
    contents = {path.name: path.read_bytes() for path in finished.iterdir()}
    (finished / "metrics.jsonl.earlier").touch()
    command = "train", trained / "data", f"--save-dir={finished}", *TRAIN, f"--init-from={finished}/best.safetensors"
    assert "is a checkpoint of --save-dir" in failed(*command)
    options = ["--max-updates=4", "--save-updates=1", "--keep-checkpoints=2", "--valid-metric=nll"]
    assert "has checkpoints, but no training state" in train(trained / "data", finished, *options)
    assert [path.name for path in sorted(finished.glob("snapshot-*.safetensors"))] == [
        "snapshot-00000003.safetensors", "snapshot-00000004.safetensors",
    ]  # fmt: skip
    for name in (
        "snapshot-00000040.safetensors",
        "average.safetensors",
        "best.safetensors",
        "metrics.jsonl",
        "config.toml",
    ):
        end = "-2" if name == "metrics.jsonl" else ""
        assert (finished / f"{name}.earlier{end}").read_bytes() == contents[name]


def test_a_damaged_log_does_not_stop_training(trained: Path, finished: Path) -> None:
    (finished / "state-00000040.safetensors").unlink()
    log = finished / "metrics.jsonl"
    first, *rest = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([first, b"\xff\xfe\n", b"[" * 100_000 + b"\n", *rest, b'{"kind": "tra']))
    # Forked as the training of `trained` was, so that both use one thread.
    forks.run("train", trained / "data", f"--save-dir={finished}", *TRAIN, *SMALL, "--max-updates=40")
    assert same_weights(finished / "snapshot-00000040.safetensors", trained / "run" / "snapshot-00000040.safetensors")
    report = run("report", finished, "--output", finished / "report.html").stderr
    assert f"warning: skipped 3 damaged lines of {log}, the first is line 2" in " ".join(report.split())
