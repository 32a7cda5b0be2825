"""A run folder: one training at a time, its states and snapshots, and which state to go on from."""

import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from nmt import console
from nmt.checkpoint import (
    Checkpoint,
    load_checkpoint,
    save_checkpoint,
)
from nmt.errors import NmtError
from nmt.files import LOCK, locked, remove_partial_files, writing
from nmt.training.records import METRICS, MetricsFile
from nmt.training.state import check_resumable

STATES_KEPT = 2
# A training that was stopped may still be writing its state when the next is started.
_LOCK_SECONDS = 15.0
# A network file system may show another machine's new files late.
_SHARED_FOLDER_SECONDS = 60.0


@dataclass(frozen=True)
class RunFolder:
    """Attributes:
    path: the folder.
    """

    path: Path

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Makes the folder where it is missing, and keeps other trainings out of it.

        A folder that was made here and holds nothing in the end is removed.

        Raises:
            NmtError: it cannot be made or written to, or another training is at work in it.
        """
        advice = "give another --save-dir"
        with writing(self.path, advice):
            made = not self.path.exists()
            self.path.mkdir(parents=True, exist_ok=True)
        busy = f"another training is at work in {self.path}; wait for its end or {advice}"
        with locked(self.path, busy, advice, _LOCK_SECONDS):
            remove_partial_files(self.path)
            try:
                yield
            finally:
                self._remove_if_empty(made)

    def _remove_if_empty(self, made: bool) -> None:
        """Removes the lock if there is nothing else, and the folder if it was `made` for this training."""
        with suppress(OSError):
            if [found.name for found in self.path.iterdir()] == [LOCK]:
                (self.path / LOCK).unlink()
                if made:
                    self.path.rmdir()

    @property
    def metrics(self) -> MetricsFile:
        """The records of the training."""
        return MetricsFile(self.path / METRICS)

    def newest_state(self) -> tuple[Path, Checkpoint] | None:
        """The newest training state that can be resumed; None if there is no state at all.

        Newer ones, which are damaged, get another name, so that they do not count among the two that are kept.

        Raises:
            NmtError: none of the states can be resumed.
        """
        states = numbered(self.path, "state")
        damaged: list[Path] = []
        for path in reversed(states):
            try:
                found = _state(path)
            except NmtError as error:
                console.warn(f"{error}; trying the state before it" if path != states[0] else str(error))
                damaged.append(path)
                continue
            for newer in damaged:
                newer.rename(newer.with_name(f"{newer.name}.damaged"))
            return path, found
        if states:
            raise NmtError(
                f"no training state in {self.path} can be read; remove {', '.join(p.name for p in states)} there to "
                f"start anew, or give another --save-dir"
            )
        return None

    def load_when_there(self, path: Path) -> Checkpoint:
        """A state in the folder that another machine has found.

        Raises:
            NmtError: it does not show up here, or cannot be read.
        """
        deadline = time.monotonic() + _SHARED_FOLDER_SECONDS
        while not path.exists() and time.monotonic() < deadline:
            time.sleep(0.5)
        if not path.exists():
            raise NmtError(
                f"{path}, which rank 0 resumes from, is not there; give a --save-dir that all machines share"
            )
        return _state(path)

    def forget_after(self, update: int) -> None:
        """Removes snapshots of updates that are about to be made anew."""
        for path in numbered(self.path, "snapshot"):
            if path > numbered_path(self.path, "snapshot", update):
                path.unlink()

    def save_state(self, checkpoint: Checkpoint, update: int) -> None:
        """Writes a training state; only then removes all but the newest two."""
        save_checkpoint(checkpoint, numbered_path(self.path, "state", update))
        remove_older(self.path, "state", STATES_KEPT)

    def save_snapshot(self, checkpoint: Checkpoint, update: int, keep: int) -> Path:
        """Writes a snapshot; only then removes all but the newest `keep`."""
        path = numbered_path(self.path, "snapshot", update)
        save_checkpoint(checkpoint.snapshot(), path)
        remove_older(self.path, "snapshot", keep)
        return path

    def save_best(self, checkpoint: Checkpoint) -> None:
        save_checkpoint(checkpoint.snapshot(), self.path / "best.pt")


def _state(path: Path) -> Checkpoint:
    checkpoint = load_checkpoint(path)
    check_resumable(checkpoint, path)
    return checkpoint


# Names of files


def numbered(folder: Path, kind: str) -> list[Path]:
    """Returns the files `kind`-NUMBER.pt in a run folder, oldest first."""
    pattern = re.compile(rf"{kind}-(\d+)\.pt")
    found = [(int(m[1]), p) for p in folder.glob(f"{kind}-*.pt") if (m := pattern.fullmatch(p.name))]
    return [path for _, path in sorted(found)]


def numbered_path(folder: Path, kind: str, update: int) -> Path:
    return folder / f"{kind}-{update:08d}.pt"


def remove_older(folder: Path, kind: str, keep: int) -> None:
    """Removes all but the newest `keep` files `kind`-NUMBER.pt."""
    for old in numbered(folder, kind)[:-keep]:
        old.unlink()


def newest_snapshots(places: Iterable[str], last: int) -> list[Path]:
    """Returns the named files; for a run folder, its newest `last` checkpoints.

    Raises:
        NmtError: a folder has fewer checkpoints.
    """
    paths: list[Path] = []
    for place in map(Path, places):
        if not place.is_dir():
            paths.append(place)
            continue
        found = numbered(place, "snapshot")
        if not found:
            raise NmtError(f"{place} holds no snapshots; give the --save-dir of a training that has written some")
        if len(found) < last:
            raise NmtError(
                f"{place} holds {len(found)} snapshots, --last asks for {last}; ask for fewer, or have nmt train write "
                f"them more often (--save-updates, --save-minutes)"
            )
        paths += found[-last:]
    return paths
