"""Training notices damaged or missing data before it harms anything, and continues in spite of damaged logs."""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import forks
import numpy as np
import pytest
from commands import SMALL, TRAIN, failed, records, run, same_weights, train

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
    recorded = [value for split in meta["splits"].values() for key, value in split.items() if key.endswith("sha256")]
    files = [path for kind in ("tokens", "offsets", "txt") for path in data.glob(f"*.{kind}")]
    assert len(files) == 16
    assert sorted(recorded) == sorted(hashlib.sha256(path.read_bytes()).hexdigest() for path in files)


def test_damaged_data_ends_training_before_the_first_update(data: Path, tmp_path: Path) -> None:
    assert (data / ".verified.json").exists()
    content = bytearray((data / "train.de.tokens").read_bytes())
    content[-1] ^= 1
    (data / "train.de.tokens").write_bytes(content)
    for extra in ([], ["--dry-run"]):
        message = failed("train", data, "--save-dir", tmp_path / "run", *OPTIONS, *extra)
        assert "train.de.tokens is damaged: it does not have the SHA-256 that meta.json records" in message
    assert not (tmp_path / "run").exists()


def test_damaged_validation_offsets_end_training_before_it_starts(data: Path, tmp_path: Path) -> None:
    offsets = np.fromfile(data / "valid.de.offsets", "<i8")
    offsets[3] += 1 << 40
    offsets.tofile(data / "valid.de.offsets")
    message = failed("train", data, "--save-dir", tmp_path / "run", *OPTIONS)
    assert "valid.de.offsets is damaged: sentence 4 starts at token 1,099,511" in message
    assert not (tmp_path / "run").exists()


def before_update(update: int, function: Callable[..., object], *arguments: object) -> forks.At:
    """Makes a training call the function before it begins an update."""
    return forks.At("nmt.training.loop.train_update", update, partial(function, *arguments))


def newest_state(folder: Path) -> int:
    """Returns the update of the only training state."""
    (path,) = folder.glob("state-*.safetensors")
    return int(path.stem.removeprefix("state-"))


def test_if_the_data_folder_disappears_training_saves_its_state_and_ends(data: Path, tmp_path: Path) -> None:
    options = [*OPTIONS, "--batch-tokens=200"]  # 39 updates an epoch
    run("train", data, "--save-dir", tmp_path / "uninterrupted", *options)
    command = ["train", data, "--save-dir", tmp_path / "run", *options]
    ended = forks.run(*command, code=1, before=before_update(8, os.rename, data, tmp_path / "gone"))
    update = newest_state(tmp_path / "run")
    assert 8 <= update < 20  # the loader may have prepared a few more updates
    # The loader may be checking one file after the other while the folder disappears.
    assert re.fullmatch(
        f"error: training stopped after update {update} with its state saved in {re.escape(str(tmp_path / 'run'))}: "
        rf"{re.escape(str(data))}/train\.(en|de)\.(tokens|offsets) is missing; restore the data folder and start the "
        "same command again",
        ended.errors.splitlines()[-1],
    )
    (tmp_path / "gone").rename(data)
    assert f"after update {update}" in run(*command).stderr
    assert same_weights(*(tmp_path / name / "snapshot-00000020.safetensors" for name in ("run", "uninterrupted")))


@pytest.mark.parametrize("name", ["train.de.offsets", "valid.en.tokens", "valid.de.txt"])
def test_if_a_data_file_is_truncated_training_saves_its_state_and_ends(name: str, data: Path, tmp_path: Path) -> None:
    """Training data is checked again when an epoch begins, here after update 10, validation data when it is used."""
    options = [*OPTIONS, "--valid-updates=10", *(["--valid-metric=bleu"] if "txt" in name else [])]
    truncate = before_update(10, os.truncate, data / name, 5)
    ended = forks.run("train", data, "--save-dir", tmp_path / "run", *options, code=1, before=truncate)
    assert newest_state(tmp_path / "run") == 10
    found = "has 0 lines instead of 20" if "txt" in name else "has 5 bytes instead of"
    said = f"training stopped after update 10 with its state saved in {tmp_path}/run: {data}/{name} {found}"
    assert said in ended.errors.splitlines()[-1]


def test_a_run_folder_that_disappears_ends_training(trained: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    remove = before_update(8, shutil.rmtree, folder)
    ended = forks.run("train", trained / "data", "--save-dir", folder, *OPTIONS, code=1, before=remove)
    assert "cannot be written (No such file or directory)" in ended.errors.splitlines()[-1]


def test_checkpoints_without_a_state_are_set_aside(trained: Path, finished: Path) -> None:
    """The first checkpoints of a new training would be the oldest ones of the folder, and be removed at once."""
    for state in finished.glob("state-*.safetensors"):
        state.unlink()
    before = {path.name: path.read_bytes() for path in finished.iterdir()}
    (finished / "metrics.jsonl.earlier").touch()
    options = ["--max-updates=4", "--save-updates=2", "--keep-checkpoints=2", "--valid-metric=nll"]
    assert "has checkpoints, but no training state" in train(trained / "data", finished, *options)
    assert [path.name for path in sorted(finished.glob("snapshot-*.safetensors"))] == [
        "snapshot-00000002.safetensors", "snapshot-00000004.safetensors",
    ]  # fmt: skip
    for name, end in (
        ("snapshot-00000040.safetensors", ""),
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
    said = " ".join(train(trained / "data", finished, "--max-updates=40").split())
    assert f"warning: moved 3 damaged lines of {log} (the first is line 2) to metrics.jsonl.damaged" in said
    assert same_weights(finished / "snapshot-00000040.safetensors", trained / "run" / "snapshot-00000040.safetensors")
    assert [r["update"] for r in records(finished, "start", "train", "valid")] == [0, 10, 20, 20, 30, 30, 40, 40]
    assert (finished / "metrics.jsonl.damaged").read_bytes().startswith(b"\xff\xfe\n[[")
