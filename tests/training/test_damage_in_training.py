"""Training notices damaged or missing data before it harms anything, and continues in spite of damaged logs."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest
from commands import SMALL, TRAIN, failed, run, same_weights, train

OPTIONS = [*TRAIN, *SMALL, "--max-updates=20", "--save-updates=100", "--valid-metric=nll"]


@pytest.fixture
def data(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained / "data", tmp_path / "data"))


@pytest.fixture
def finished(trained: Path, tmp_path: Path) -> Path:
    """Returns a copy of the run folder of a training of 40 updates."""
    return Path(shutil.copytree(trained / "run", tmp_path / "run"))


def test_preprocessing_records_the_hash_of_every_file(data: Path) -> None:
    meta = json.loads((data / "meta.json").read_text())
    files = [path for path in data.iterdir() if path.name != "meta.json"]
    assert len(files) == 17
    assert meta["files"] == {
        path.name: {"bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        for path in files
    }


def test_damaged_data_ends_training_before_the_first_update(data: Path, tmp_path: Path) -> None:
    content = bytearray((data / "train.de.tokens").read_bytes())
    content[-1] ^= 1
    (data / "train.de.tokens").write_bytes(content)
    for extra in ([], ["--dry-run"]):
        message = failed("train", data, "--save-dir", tmp_path / "run", *OPTIONS, *extra)
        assert "train.de.tokens is damaged: its SHA-256 is not that in meta.json; copy the data folder again" in message
    assert not (tmp_path / "run").exists()


def test_checkpoints_without_a_state_are_set_aside(trained: Path, finished: Path) -> None:
    """The first checkpoints of a new training would be the oldest ones of the folder, and be removed at once.

    Those of the first two updates are removed when there are newer ones.
    """
    for state in finished.glob("state-*.safetensors"):
        state.unlink()
    before = {path.name: path.read_bytes() for path in finished.iterdir()}
    (finished / "metrics.jsonl.earlier").touch()
    beginning = f"--init-from={finished}/best.safetensors"
    assert "is a file of --save-dir" in failed("train", trained / "data", f"--save-dir={finished}", *TRAIN, beginning)
    options = ["--max-updates=4", "--save-updates=1", "--keep-checkpoints=2", "--valid-metric=nll"]
    assert "has checkpoints, but no training state" in train(trained / "data", finished, *options)
    assert [path.name for path in sorted(finished.glob("snapshot-*.safetensors"))] == [
        "snapshot-00000003.safetensors", "snapshot-00000004.safetensors",
    ]  # fmt: skip
    for name, end in (
        ("snapshot-00000040.safetensors", ""),
        ("average.safetensors", ""),
        ("best.safetensors", ""),
        ("metrics.jsonl", "-2"),
        ("config.toml", ""),
    ):
        assert (finished / f"{name}.earlier{end}").read_bytes() == before[name]


def test_a_damaged_log_does_not_stop_training(trained: Path, finished: Path) -> None:
    (finished / "state-00000040.safetensors").unlink()
    log = finished / "metrics.jsonl"
    first, *rest = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([first, b"\xff\xfe\n", b"[" * 100_000 + b"\n", *rest, b'{"kind": "tra']))
    train(trained / "data", finished, "--max-updates=40")
    assert same_weights(finished / "snapshot-00000040.safetensors", trained / "run" / "snapshot-00000040.safetensors")
    report = run("report", finished, "--output", finished / "report.html").stderr
    assert f"warning: skipped 3 damaged lines of {log}, the first is line 2" in " ".join(report.split())
