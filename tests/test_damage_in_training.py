"""Training notices damaged or missing data before it harms anything, and continues in spite of damaged logs."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import SMALL, TRAIN, failed, records, run, train

import nmt
from nmt.checkpoint import Checkpoint
from nmt.training.run_folder import RunFolder


@pytest.fixture
def data(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained / "data", tmp_path / "data"))


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def same_weights(first: Path, second: Path) -> bool:
    one, two = (nmt.load_checkpoint(folder / "snapshot-00000040.pt").weights for folder in (first, second))
    return all(torch.equal(one[name], two[name]) for name in one)


def test_preprocessing_records_the_hash_of_every_file(data: Path) -> None:
    meta = json.loads((data / "meta.json").read_text())
    recorded = [value for split in meta["splits"].values() for key, value in split.items() if key.endswith("sha256")]
    files = [path for kind in ("tokens", "offsets", "txt") for path in data.glob(f"*.{kind}")]
    assert len(files) == 16
    assert sorted(recorded) == sorted(hashlib.sha256(path.read_bytes()).hexdigest() for path in files)


def test_damaged_data_ends_training_before_the_first_update(data: Path, tmp_path: Path) -> None:
    assert (data / ".verified.json").exists()
    flip(data / "train.de.tokens")
    for extra in ([], ["--dry-run"]):
        message = failed("train", data, "--save-dir", tmp_path / "run", *TRAIN, *SMALL, "--max-updates=1", *extra)
        assert "train.de.tokens is damaged: it does not have the SHA-256 that meta.json records" in message
    assert not (tmp_path / "run").exists()


def test_damaged_validation_offsets_end_training_before_it_starts(data: Path, tmp_path: Path) -> None:
    offsets = np.fromfile(data / "valid.de.offsets", "<i8")
    offsets[3] += 1 << 40
    offsets.tofile(data / "valid.de.offsets")
    message = failed("train", data, "--save-dir", tmp_path / "run", *TRAIN, *SMALL, "--max-updates=1")
    assert "valid.de.offsets is damaged: sentence 4 starts at token 1,099,511" in message
    assert not (tmp_path / "run").exists()


def after_checkpoint(monkeypatch: pytest.MonkeyPatch, number: int, do: Callable[[], object]) -> None:
    """Makes training call `do` when it has written the checkpoint of update `number`."""
    save = RunFolder.save_snapshot

    def save_and_do(self: RunFolder, checkpoint: Checkpoint, update: int, keep: int) -> Path:
        path = save(self, checkpoint, update, keep)
        if update == number:
            do()
        return path

    monkeypatch.setattr(RunFolder, "save_snapshot", save_and_do)


def newest_state(folder: Path) -> int:
    """Returns the update of the newest training state."""
    return max(int(path.stem.removeprefix("state-")) for path in folder.glob("state-*.pt"))


def test_if_the_data_folder_disappears_training_saves_its_state_and_ends(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--batch-tokens=200", "--valid-metric=nll", "--max-updates=40"]  # 39 updates an epoch
    train(data, tmp_path / "uninterrupted", *options)
    command = ["train", data, "--save-dir", tmp_path / "run", *TRAIN, *SMALL, *options]
    with monkeypatch.context() as patch:
        after_checkpoint(patch, 10, lambda: data.rename(tmp_path / "gone"))
        message = failed(*command)
    update = newest_state(tmp_path / "run")
    assert 10 < update < 20  # the loader had prepared a few more updates
    assert message == (
        f"error: training stopped after update {update} with its state saved in {tmp_path}/run: "
        f"{data}/train.en.tokens is missing; restore the data folder and start the same command again"
    )
    (tmp_path / "gone").rename(data)
    assert f"after update {update}" in run(*command).stderr
    assert same_weights(tmp_path / "run", tmp_path / "uninterrupted")


@pytest.mark.parametrize("name", ["train.de.offsets", "valid.en.tokens", "valid.de.txt"])
def test_if_a_data_file_is_truncated_training_saves_its_state_and_ends(
    name: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training data is checked again when an epoch begins, here after 10 updates, validation data when it is used."""
    options = ["--valid-updates=10", "--max-updates=20", *(["--valid-metric=nll"] if "txt" not in name else [])]
    after_checkpoint(monkeypatch, 10, lambda: os.truncate(data / name, 5))
    message = failed("train", data, "--save-dir", tmp_path / "run", *TRAIN, *SMALL, *options)
    update = 10 if name.startswith("train") else 20
    assert newest_state(tmp_path / "run") == update
    found = "has 0 lines instead of 20" if "txt" in name else "has 5 bytes instead of"
    assert (
        f"training stopped after update {update} with its state saved in {tmp_path}/run: {data}/{name} {found}"
        in message
    )


def test_checkpoints_without_a_state_are_set_aside(trained: Path, tmp_path: Path) -> None:
    """The first checkpoints of a new training would be the oldest ones of the folder, and be removed at once."""
    folder = tmp_path / "run"
    train(trained / "data", folder, "--max-updates=20", "--save-updates=10")
    for state in folder.glob("state-*.pt"):
        state.unlink()
    before = (folder / "snapshot-00000020.pt").read_bytes()
    log, chosen = ((folder / name).read_bytes() for name in ("metrics.jsonl", "config.toml"))
    (folder / "metrics.jsonl.earlier").touch()
    options = ["--max-updates=10", "--save-updates=5", "--keep-checkpoints=2"]
    assert "has checkpoints, but no training state" in train(trained / "data", folder, *options)
    assert [path.name for path in sorted(folder.glob("snapshot-*.pt"))] == [
        "snapshot-00000005.pt", "snapshot-00000010.pt",
    ]  # fmt: skip
    assert (folder / "snapshot-00000020.pt.earlier").read_bytes() == before
    assert (folder / "metrics.jsonl.earlier-2").read_bytes() == log
    assert (folder / "config.toml.earlier").read_bytes() == chosen


def test_a_damaged_log_does_not_stop_training(trained: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    train(trained / "data", folder, "--max-updates=20")
    log = folder / "metrics.jsonl"
    first, *rest = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([first, b"\xff\xfe\n", b"[" * 100_000 + b"\n", *rest, b'{"kind": "tra']))
    said = " ".join(train(trained / "data", folder, "--max-updates=40").split())
    assert f"warning: moved 3 damaged lines of {log} (the first is line 2) to metrics.jsonl.damaged" in said
    assert same_weights(folder, trained / "run")
    assert [r["update"] for r in records(folder, "start", "train", "valid")] == [0, 10, 20, 20, 20, 30, 40, 40]
    assert (folder / "metrics.jsonl.damaged").read_bytes().startswith(b"\xff\xfe\n[[")
