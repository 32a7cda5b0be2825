"""A thread writes checkpoints from copies, and training states have a clock of their own; kills lose nothing."""

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import forks
import pytest
from commands import SMALL, TRAIN, failed, records, run, same_weights

from nmt.checkpoint import load_checkpoint
from nmt.training import loop, snapshots
from nmt.training.run_folder import RunFolder

UPDATES, FILES = 12, [f"snapshot-{update:08d}.safetensors" for update in (3, 6, 9, 12)]
UPDATE = "nmt.training.loop.train_update"


def command(trained: Path, folder: Path, *options: str) -> list[str | Path]:
    own = ["--valid-metric=nll", "--save-updates=3", "--valid-updates=6", "--log-updates=1", *options]
    return ["train", trained / "data", f"--save-dir={folder}", *TRAIN, *SMALL, f"--max-updates={UPDATES}", *own]


@pytest.fixture(scope="module")
def undisturbed(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    forks.run(*command(trained, folder))
    return folder


def assert_same(folder: Path, expected: Path) -> None:
    """Checks that both trainings left the same weights, moments and records."""
    assert all(same_weights(folder / name, expected / name) for name in (*FILES, "best.safetensors"))
    state, expected_state = (load_checkpoint(path / f"state-{UPDATES:08d}.safetensors") for path in (folder, expected))
    assert state.training["validations"] == expected_state.training["validations"]
    for name, tensor in expected_state.training_tensors.items():
        assert state.training_tensors[name].equal(tensor), name
    logs = [[(r["kind"], r["update"], r["nll"]) for r in records(run, "train", "valid")] for run in (folder, expected)]
    assert logs[0] == logs[1]


@pytest.mark.parametrize(("options", "states"), [
    ([], [3, 6, 12]),  # the first snapshot, a new best checkpoint, and the end
    (["--save-minutes=5"], [3, 6, 11, 12]),
    (["--save-minutes=2", "--valid-updates=50"], [2, 4, 6, 8, 10, 12]),
    (["--save-minutes=4", "--save-updates=50"], [4, 6, 10, 12]),
    (["--save-minutes=1e-9", "--save-updates=50"], list(range(1, 13))),
])  # fmt: skip
def test_training_states_have_their_own_clock(
    options: list[str], states: list[int], trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An update takes a minute."""
    minutes, update, save, saved = [0], loop.train_update, RunFolder.save, list[int]()

    def minute(*arguments: Any) -> Any:
        minutes[0] += 1
        return update(*arguments)

    def noted(folder: RunFolder, checkpoint: Any, kind: str, update: int, keep: int) -> Path:
        saved.extend([update] if kind == "state" else [])
        return save(folder, checkpoint, kind, update, keep)

    monkeypatch.setattr(RunFolder, "save", noted)
    monkeypatch.setattr(loop, "train_update", minute)
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: 60.0 * minutes[0]))
    run(*command(trained, tmp_path, *options))
    assert saved == states


@pytest.mark.parametrize("room", [True, False])
def test_files_hold_the_weights_of_their_update_although_training_goes_on(
    room: bool, trained: Path, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is written when two more updates are done; without room for copies, training waits for it."""
    save, update, later = RunFolder.save, loop.train_update, threading.Event()
    updates, first_save = [0], list[int]()

    def counted(*arguments: Any) -> Any:
        update_result = update(*arguments)
        updates[0] += 1
        if updates[0] == 5:
            later.set()
        return update_result

    def late(*arguments: Any, **named: Any) -> Path:
        assert not room or later.wait(60)
        first_save.append(updates[0])
        return save(*arguments, **named)

    monkeypatch.setattr(loop, "train_update", counted)
    monkeypatch.setattr(RunFolder, "save", late)
    monkeypatch.setattr(snapshots, "available_bytes", lambda: 10**9 if room else 1000)
    run(*command(trained, tmp_path))
    assert first_save[0] >= 5 if room else first_save[0] == 3
    assert all(same_weights(tmp_path / file, undisturbed / file) for file in FILES)


@pytest.mark.parametrize("options", [[], ["--save-minutes=1e-9"]], ids=["rare states", "frequent states"])
@pytest.mark.parametrize(("file", "call"), [
    ("snapshot-00000003", 1), ("state-00000003", 1), ("best.safetensors", 1), ("state-00000006", 1),
    ("snapshot-00000009", 1), ("snapshot-00000012", 1), ("best.safetensors", 2), ("state-00000012", 1),
])  # fmt: skip
def test_a_kill_while_a_file_is_written_loses_nothing(
    file: str, call: int, options: list[str], trained: Path, undisturbed: Path, tmp_path: Path
) -> None:
    killed = forks.At("os.replace", call, matching=file)
    forks.run(*command(trained, tmp_path, *options), before=killed, code=-signal.SIGKILL)
    forks.run(*command(trained, tmp_path, *options))
    assert_same(tmp_path, undisturbed)
    assert not list(tmp_path.glob(".*partial*"))


@pytest.mark.parametrize("update", [1, 4, 8, 12])
def test_a_kill_after_an_update_loses_nothing(update: int, trained: Path, undisturbed: Path, tmp_path: Path) -> None:
    killed = forks.At(UPDATE, update, after=True)
    forks.run(*command(trained, tmp_path), before=killed, code=-signal.SIGKILL)
    forks.run(*command(trained, tmp_path))
    assert_same(tmp_path, undisturbed)


@pytest.mark.parametrize(("target", "call", "matching"), [
    (UPDATE, 5, ""), (UPDATE, 12, ""), ("nmt.training.run_folder.RunFolder.save", 1, "snapshot"),
    ("nmt.training.loop.validate", 1, ""),
])  # fmt: skip
def test_a_stop_saves_the_state_of_the_last_update(
    target: str, call: int, matching: str, trained: Path, undisturbed: Path, tmp_path: Path
) -> None:
    stop = forks.At(target, call, forks.Interrupt(signal.SIGTERM), matching=matching)
    log = forks.run(*command(trained, tmp_path), before=stop, code=75).errors
    last = int(log.split("stopped after update ")[1].split()[0])
    assert (tmp_path / f"state-{last:08d}.safetensors").exists()
    assert target != UPDATE or last == call - 1
    forks.run(*command(trained, tmp_path))
    assert_same(tmp_path, undisturbed)


@pytest.mark.parametrize("kind", ["snapshot", "state"])
def test_a_file_that_cannot_be_written_ends_training_and_no_state_follows(
    kind: str, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = RunFolder.save

    def elsewhere(folder: RunFolder, checkpoint: Any, *given: Any, **named: Any) -> Path:
        is_kind = kind in (*given, *named.values())
        return save(RunFolder(tmp_path / "missing") if is_kind else folder, checkpoint, *given, **named)

    monkeypatch.setattr(RunFolder, "save", elsewhere)
    message = failed(*command(trained, tmp_path / "run"))
    assert f"missing/{kind}-00000003.safetensors cannot be written (No such file or directory)" in message
    assert not list((tmp_path / "run").glob("state-*"))
    assert records(tmp_path / "run", "end")[-1]["outcome"] == "failed"


@pytest.mark.parametrize(("days_of_a_snapshot", "days_of_a_state", "in_total"), [
    (0, 0, "10 days"), (10, 0, "40 days"), (0, 1, "1,451 days"), (10, 1, "1,481 days"),
])  # fmt: skip
def test_a_dry_run_counts_the_time_that_copies_take(
    days_of_a_snapshot: int, days_of_a_state: int, in_total: str,
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """An update takes an hour here, so there are three snapshots, and a state every ten minutes and at the end."""
    days: dict[Callable[..., Any], int] = {snapshots.snapshot_of: days_of_a_snapshot}
    monkeypatch.setattr("nmt.training.train.seconds_per_update", lambda *_: 3600.0)
    monkeypatch.setattr(
        "nmt.training.train.seconds_to_copy", lambda copy, _: 86_400.0 * days.get(copy, days_of_a_state)
    )
    options = ["--max-updates=240", "--save-updates=80", "--dry-run"]
    assert f"in total  {in_total} without validation" in run(*command(trained, tmp_path, *options)).stderr
