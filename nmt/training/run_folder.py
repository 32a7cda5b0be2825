"""The run folder of a training: its lock, its checkpoints, and the training state to resume from."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, count
from pathlib import Path

from nmt import console
from nmt.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from nmt.checkpoint_format import SUFFIX
from nmt.errors import DamagedError, NmtError
from nmt.files import missing_folders, remove_empty, remove_partial_files, writing
from nmt.locks import LOCK, locked
from nmt.training.options import CONFIG
from nmt.training.records import METRICS, MetricsFile

STATES_KEPT = 2
BEST = f"best{SUFFIX}"
AVERAGE = f"average{SUFFIX}"
# Patterns of the files that only a training writes. Other commands may write other files into the folder meanwhile.
_OWN = (*(f"{kind}-[0-9]*{SUFFIX}" for kind in ("state", "snapshot", "best")), BEST, METRICS, CONFIG)
# How long to wait for the lock. A training that was stopped may still be writing its state when the next one starts.
_LOCK_SECONDS = 15.0


class RunFolder:
    """The folder that one training at a time writes to; `metrics` has the records of the training."""

    def __init__(self, path: Path) -> None:
        self.path, self.metrics = path, MetricsFile(path / METRICS)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Creates the folder if it is missing, and keeps other trainings out of it until the block ends.

        Then removes it if it is new and empty.
        """
        advice = "give another --save-dir"
        with writing(self.path, advice):
            missing = missing_folders(self.path)
            self.path.mkdir(parents=True, exist_ok=True)
        busy = f"another training uses {self.path}; wait until it ends, or {advice}"
        with locked(self.path / LOCK, busy, advice, patience=_LOCK_SECONDS):
            remove_partial_files(self.path, _OWN)
            try:
                yield
            finally:
                with suppress(OSError):
                    if [path.name for path in self.path.iterdir()] == [LOCK]:
                        (self.path / LOCK).unlink()
                        remove_empty(missing)

    def newest_state(self) -> tuple[Path, Checkpoint] | None:
        """Returns the newest training state that can be resumed, with its path; None if there is no state.

        Newer states are damaged. They are renamed, so that they do not count among the states that are kept.
        """
        states, damaged = numbered(self.path, "state"), list[Path]()
        if not states:
            return None
        for path in reversed(states):
            try:
                checkpoint = load_checkpoint(path, verify=True, whole=False)
            except DamagedError as error:
                console.warn(f"{error}; trying the state before it" if path != states[0] else str(error))
                damaged.append(path)
                continue
            for newer in damaged:
                newer.rename(_unused(newer, "damaged"))
            return path, checkpoint
        raise NmtError(
            f"no training state in {self.path} is intact; remove {', '.join(p.name for p in states)} there to start "
            f"from the beginning, or give another --save-dir"
        )

    def rewind(self, update: int, *, changed: bool) -> None:
        """Removes the checkpoints and records of updates after `update`, which a resumed training repeats.

        If it has `changed`, later validations cannot be compared with the best checkpoints, which are renamed.
        """
        for kind in ("snapshot", "best"):
            for path in numbered(self.path, kind):
                if path > numbered_path(self.path, kind, update):
                    path.unlink(missing_ok=True)
        best = [path for path in (*numbered(self.path, "best"), self.path / BEST) if changed and path.exists()]
        if renamed := [path.rename(_unused(path, "earlier")) for path in best]:
            console.info(f"earlier best checkpoints are kept as {renamed[-1].name} and the like")
        self.metrics.rewind(update)

    def set_checkpoints_aside(self, beginning: str | None) -> None:
        """Renames the checkpoints of a folder without training state, which a new training would remove or replace.

        The file of --init-from, `beginning`, must not be one of them.
        """
        single = [path for name in (BEST, AVERAGE, METRICS) if (path := self.path / name).exists()]
        paths = [*numbered(self.path, "snapshot"), *numbered(self.path, "best"), *single]
        if not any(path.suffix == SUFFIX for path in paths):
            return
        if beginning and Path(beginning).resolve() in [path.resolve() for path in paths]:
            raise NmtError(
                f"--init-from {beginning} is a checkpoint of --save-dir, which a new training sets aside; give another "
                f"--save-dir"
            )
        renamed = [path.rename(_unused(path, "earlier")) for path in paths]
        if (options := self.path / CONFIG).exists():
            shutil.copy2(options, _unused(options, "earlier"))
        console.warn(
            f"{self.path} has checkpoints, but no training state; they are kept as {renamed[0].name} and the like, and "
            f"training starts from the beginning"
        )

    def save(self, checkpoint: Checkpoint, kind: str, update: int, keep: int) -> Path:
        """Writes `kind`-NUMBER.safetensors and returns its path; then removes all but the newest `keep` of its kind."""
        path = numbered_path(self.path, kind, update)
        save_checkpoint(checkpoint, path)
        for old in numbered(self.path, kind)[:-keep]:
            old.unlink(missing_ok=True)
        return path

    def keep_best(self, checkpoint: Checkpoint, update: int, kept: Sequence[int]) -> None:
        """Writes one of the best checkpoints, best-NUMBER.safetensors; removes those that no longer belong to them."""
        save_checkpoint(checkpoint, numbered_path(self.path, "best", update))
        for path in set(numbered(self.path, "best")) - {numbered_path(self.path, "best", update) for update in kept}:
            path.unlink(missing_ok=True)


def _unused(path: Path, ending: str) -> Path:
    """Returns a free name for a file that is set aside, such as `metrics.jsonl.earlier`, `metrics.jsonl.earlier-2`."""
    names = chain([ending], (f"{ending}-{number}" for number in count(2)))
    return next(free for name in names if not (free := path.with_name(f"{path.name}.{name}")).exists())


def numbered(folder: Path, kind: str) -> list[Path]:
    """Returns the paths of all files `kind`-NUMBER.safetensors in a run folder, in the order of their numbers."""
    numbers = {path: path.stem.removeprefix(f"{kind}-") for path in folder.glob(f"{kind}-*{SUFFIX}")}
    return sorted((path for path in numbers if numbers[path].isdecimal()), key=lambda path: (int(numbers[path]), path))


def numbered_path(folder: Path, kind: str, update: int) -> Path:
    """Returns the path of the checkpoint or training state after an update."""
    return folder / f"{kind}-{update:08d}{SUFFIX}"
