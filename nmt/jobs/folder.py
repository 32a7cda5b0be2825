"""The folder of an unfinished job, in which it can be resumed.

A job that makes DEST keeps its folder as DEST.unfinished:

    manifest.json   what the result depends on, the files of the input, and what was prepared before the first shard
    offsets.npy     where each shard begins in these files
    shards/NUMBER   the result of a shard
    data/           what the command prepares for its shards, if anything
    .lock           locked by every process that works on the job
    .preparing      locked while the job is prepared

The manifest is written last and removed first. It and the results of shards appear under their names only when they are
complete. So a process may be killed at any time, and several processes can do shards of the same job.
"""

import math
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from nmt import console
from nmt.config import JobConfig
from nmt.errors import Interrupted, NmtError
from nmt.files import is_partial, missing_folders, remove_empty, remove_partial_files, writing
from nmt.jobs.manifest import MANIFEST, OFFSETS, Preparation, identity, prepared
from nmt.jobs.plan import Plan, Shard
from nmt.jobs.results import ADVICE, SHARDS, Result, find_results, read_result, remove_results, write_result
from nmt.locks import locked
from nmt.signals import cleaning_up, end_as_usual

_DATA = "data"
# One lock is held as long as a process works on the job, the other one only while the job is prepared.
_WORKING, _PREPARING = ".lock", ".preparing"
_OWN = {MANIFEST, OFFSETS, SHARDS, _DATA, _WORKING, _PREPARING}
_NAMED_SHARDS = 5  # in a message


class JobFolder:
    """The folder of a job; make one with `job_folder`.

    Attributes:
        plan: the shards.
        is_complete: whether the output is there, so that a signal need not keep the folder.
        prepared: what was prepared before the first shard, as plain data.
        data: the folder for what the command prepares.
    """

    def __init__(self, path: Path, plan: Plan, prepared: Any) -> None:
        self.path, self.plan, self.prepared = path, plan, prepared
        self._identity = identity(path)
        self.is_complete = False
        self.data = path / _DATA
        self._done = np.zeros(len(plan), bool)
        find_results(path, self._identity, self._done)

    @property
    def rows_done(self) -> int:
        """Rows of finished shards."""
        return sum(self.plan[i].rows for i in np.flatnonzero(self._done).tolist())

    def todo(self, part: int = 0, parts: int = 1) -> Iterator[Shard]:
        """Yields the shards of one of several parts of the job that are not finished."""
        for number in range(part, len(self.plan), parts):
            if not self._done[number]:
                yield self.plan[number]

    def add(self, shard: Shard, result: Result) -> None:
        """Writes the result of a shard.

        Raises:
            NmtError: it cannot be written.
        """
        write_result(self.path, self._identity, shard.number, result)
        self._done[shard.number] = True

    def results(self) -> Iterator[tuple[Shard, Result]]:
        """Yields the results of all shards in order.

        Raises:
            NmtError: a shard is missing or damaged, or the input has changed.
        """
        self.check_input()
        find_results(self.path, self._identity, self._done)  # other processes may have written some
        if missing := np.flatnonzero(~self._done).tolist():
            named = ", ".join(self.plan.named(self.plan[i]) for i in missing[:_NAMED_SHARDS])
            more = ", …" if len(missing) > _NAMED_SHARDS else ""
            raise NmtError(
                f"{len(missing):,} of the {len(self.plan):,} shards of {self.path} are missing ({named}{more}); run "
                f"the --shard that failed again, or the command without --shard and --merge, which does the rest"
            )
        for number in range(len(self.plan)):
            yield self.plan[number], read_result(self.path, number)

    def check_input(self) -> None:
        """Raises NmtError if the input has changed since the plan was made."""
        if changed := self.plan.changed:
            raise NmtError(
                f"{changed} has changed since the job began; restore it and start the same command again, or delete "
                f"{self.path} and start anew"
            )

    def finish(self) -> None:
        """Removes the folder, because the output of the job is complete."""
        self.is_complete = True
        self.discard()

    def discard(self) -> None:
        """Removes the folder with all that the job has written there."""
        _remove(self.path)


@contextmanager
def job_folder(dest: str, flag: str, preparation: Preparation, options: JobConfig) -> Iterator[JobFolder]:
    """Yields the folder of the job that makes `dest`. If the block fails before a shard is finished, it is removed.

    The block calls `finish` when `dest` is complete.

    Args:
        flag: the flag that names `dest`, for messages.
        options: with --shard, other processes work on the same job, and the folder always stays. With --merge, the job
            must have begun.

    Raises:
        Interrupted: a signal asked the process to end; the same command resumes the job.
        NmtError: the folder cannot be written or used, or belongs to a job with other settings.
    """
    end_as_usual()
    path = Path(f"{os.path.realpath(dest)}.unfinished")
    if options.merge and not (path / MANIFEST).exists():
        raise NmtError(f"{path} holds no job to merge; do its parts first, with --shard 1/N to N/N")
    missing = missing_folders(path.parent)
    _make(path, flag)
    busy = f"{path} is in use by another process; wait for its end or choose another {flag}"
    waiting = f"waiting for another process, which prepares {path}"
    with cleaning_up(), locked(path / _WORKING, busy, ADVICE, shared=bool(options.shard)):
        folder = None
        try:
            with locked(path / _PREPARING, waiting, ADVICE, patience=math.inf):
                folder = _opened(path, preparation)
            yield folder
        except SystemExit:
            if folder and folder.is_complete:
                _remove(path)
                return
            rows = folder.rows_done if folder else 0
            kept = f" after {console.counted(rows, 'line')}, which are kept in {path}" if rows else ""
            raise Interrupted(f"stopped{kept}; start the same command again" + " to resume" * bool(kept)) from None
        finally:
            has_begun = folder.rows_done > 0 if folder else (path / MANIFEST).exists()
            if not (options.shard or options.merge or has_begun):
                _remove(path)
                remove_empty(missing)


def _make(path: Path, flag: str) -> None:
    """Makes the folder, or checks that the existing one was made by an earlier process."""
    with writing(path, f"choose another {flag}"):
        if os.path.exists(path.parent) and not path.parent.is_dir():
            raise NmtError(f"{path.parent} is not a folder; choose another {flag}")
        path.parent.mkdir(parents=True, exist_ok=True)
        if not os.path.lexists(path):
            path.mkdir(exist_ok=True)
    names = set(os.listdir(path)) if path.is_dir() and not path.is_symlink() else {""}
    if foreign := sorted(name for name in names if name not in _OWN and not is_partial(name)):
        found = path / foreign[0]
        raise NmtError(f"{found} was not made by this command; move it elsewhere or choose another {flag}")
    if names - {_WORKING} and _PREPARING not in names:
        raise NmtError(f"{path} was not made by this command; move it elsewhere or choose another {flag}")


def _opened(path: Path, preparation: Preparation) -> JobFolder:
    """Returns the folder of a job, which is prepared first unless an earlier process did that."""
    if not (path / MANIFEST).exists():
        _remove_work(path)
        for name in (SHARDS, _DATA):
            with writing(path / name, ADVICE):
                (path / name).mkdir(exist_ok=True)
    return JobFolder(path, *prepared(path, preparation, path / _DATA))


def _remove(path: Path) -> None:
    """Removes the folder of a job with all that jobs write there."""
    (path / MANIFEST).unlink(missing_ok=True)
    _remove_work(path)
    (path / OFFSETS).unlink(missing_ok=True)
    with suppress(OSError):  # the folder is gone
        remove_partial_files(path)
        # If a file of somebody else is there, or a late result, the locks stay, so that a later job knows the folder.
        if set(os.listdir(path)) <= {_PREPARING, _WORKING}:
            (path / _PREPARING).unlink(missing_ok=True)
            (path / _WORKING).unlink(missing_ok=True)
            path.rmdir()


def _remove_work(path: Path) -> None:
    """Removes the results of shards and what was prepared for them."""
    shutil.rmtree(path / _DATA, ignore_errors=True)
    remove_results(path)
