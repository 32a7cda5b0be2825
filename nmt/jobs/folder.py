"""The folder of an unfinished job: what it works on, and the results of its finished shards.

A job that makes DEST keeps its folder as DEST.unfinished:

    manifest.json   what the result depends on, the files of the input, and what was prepared before the first shard
    offsets.npy     where each shard begins in these files
    shards/NUMBER   the result of a shard: a line of JSON with its size and its SHA-256, then its bytes
    data/           what the command prepares for its shards, if anything
    .lock           locked by every process that works on the job
    .preparing      locked while the job is prepared

The manifest is written last and removed first. It and the results of shards appear under their names only when they are
complete. So a process may be killed at any time, and several processes can do shards of the same job.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nmt import console
from nmt.config import JobConfig
from nmt.errors import Interrupted, NmtError
from nmt.files import is_partial, missing_folders, remove_empty, remove_partial_files, replaced_file, writing
from nmt.jobs.plan import Plan, Shard, make_plan
from nmt.signals import cleaning_up, end_as_usual

_MANIFEST, _OFFSETS, _SHARDS, _DATA = "manifest.json", "offsets.npy", "shards", "data"
# One lock is held as long as a process works on the job, the other one only while the job is prepared.
_WORKING, _PREPARING = ".lock", ".preparing"
_OWN = {_MANIFEST, _OFFSETS, _SHARDS, _DATA, _WORKING, _PREPARING}
_FORMAT = "unfinished job of nmt"
_ADVICE = "free some space and start the same command again"
_NAMED_SHARDS = 5  # in a message


class Result(NamedTuple):
    """What a shard gives: a part of the output, and values that the command adds up or collects."""

    content: bytes
    summary: dict[str, Any]


class JobFolder:
    """The folder of a job; make one with `job_folder`.

    Attributes:
        plan: the shards.
        prepared: what was prepared before the first shard, as plain data.
        data: the folder for what the command prepares.
    """

    def __init__(self, path: Path, plan: Plan, prepared: Any) -> None:
        self.path, self.plan, self.prepared = path, plan, prepared
        self.is_complete = False
        self.data = path / _DATA
        self._done = np.zeros(len(plan), bool)
        self._find_results()

    def _find_results(self) -> None:
        """Marks the shards whose results are there. Other processes may have written some."""
        for name in os.listdir(self.path / _SHARDS):
            if name.isdecimal() and int(name) < len(self.plan) and not self._done[int(name)]:
                self._done[int(name)] = self._is_whole(int(name))

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
        write_result(self.path, shard.number, result)
        self.mark(shard)

    def mark(self, shard: Shard) -> None:
        """Notes that the result of a shard has been written."""
        self._done[shard.number] = True

    def results(self) -> Iterator[tuple[Shard, Result]]:
        """Yields the results of all shards in order.

        Raises:
            NmtError: a shard is missing or damaged, or the input has changed.
        """
        self.check_input()
        self._find_results()
        if missing := np.flatnonzero(~self._done).tolist():
            named = ", ".join(self.plan[i].named for i in missing[:_NAMED_SHARDS])
            more = ", …" if len(missing) > _NAMED_SHARDS else ""
            raise NmtError(
                f"{len(missing):,} of the {len(self.plan):,} shards of {self.path} are missing ({named}{more}); run "
                f"the --shard that failed again, or the command without --shard and --merge, which does the rest"
            )
        for number in range(len(self.plan)):
            yield self.plan[number], self._read(number)

    def check_input(self) -> None:
        """Raises NmtError if the input has changed since the plan was made."""
        if changed := self.plan.changed:
            raise NmtError(
                f"{changed} has changed since the job began; restore it and start the same command again, or delete "
                f"{self.path} and start anew"
            )

    def _is_whole(self, number: int) -> bool:
        with suppress(OSError, ValueError, KeyError, TypeError), _result_path(self.path, number).open("rb") as file:
            header = json.loads(file.readline())
            return bool(os.fstat(file.fileno()).st_size - file.tell() == header["bytes"])
        return False

    def _read(self, number: int) -> Result:
        path = _result_path(self.path, number)
        try:
            with path.open("rb") as file:
                header, content = json.loads(file.readline()), file.read()
            if sha256(content).hexdigest() != header["sha256"]:
                raise ValueError("its SHA-256 is another one")
            return Result(content, header["summary"])
        except OSError as error:
            raise NmtError(f"{path} cannot be read ({error.strerror}); check it and its permissions") from error
        except (ValueError, KeyError, TypeError) as error:
            path.unlink(missing_ok=True)
            raise NmtError(
                f"{path} is damaged ({error}) and was removed; the same command, without --merge, makes it anew"
            ) from error

    def remove(self) -> None:
        """Removes the folder with all that the job has written there, because its output is complete."""
        self.is_complete = True
        _remove(self.path)


def write_result(folder: Path, number: int, result: Result) -> None:
    """Writes the result of a shard into the folder of a job.

    It need not be on disk at once, because a result that a power failure has damaged is made anew.

    Raises:
        NmtError: it cannot be written.
    """
    digest = sha256(result.content).hexdigest()
    header = {"summary": result.summary, "bytes": len(result.content), "sha256": digest}
    with replaced_file(_result_path(folder, number), _ADVICE, synced=False) as file:
        file.write(json.dumps(header) + "\n")
        file.write(result.content)


def identity(folder: Path) -> str | None:
    """Returns what tells the folder of this job from any other; None if there is none, as on another machine."""
    try:
        return sha256((folder / _MANIFEST).read_bytes()).hexdigest()
    except OSError:
        return None


def _result_path(folder: Path, number: int) -> Path:
    return folder / _SHARDS / f"{number:08}"


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """How a job begins.

    Attributes:
        segments: the files of the input; see `nmt.jobs.plan`.
        columns: what the files of a segment are, for messages.
        shard_rows: how many rows a shard should have.
        settings: what the result depends on besides the text of the input, by name.
        prepare: makes what all shards need, in the folder it is given. Returns plain data for `JobFolder.prepared`.
    """

    segments: Sequence[Sequence[str]]
    columns: Sequence[str]
    shard_rows: int
    settings: Mapping[str, Any]
    prepare: Callable[[Path, Plan], Any] = lambda _, __: None

    def settings_with(self, plan: Plan) -> dict[str, Any]:
        """Returns the settings and the digests of the input as plain data."""
        found: dict[str, Any] = {"--shard-lines": self.shard_rows}
        for number, files in enumerate(plan.segments, start=1):
            for column, file in zip(self.columns, files, strict=True):
                name = column if len(plan.segments) == 1 else f"{column} {number}"
                found[name] = f"SHA-256 {file.digest[:16]}…"
        as_read: dict[str, Any] = json.loads(json.dumps(found | dict(self.settings)))  # tuples become lists
        return as_read

    def plan(self, saved: Plan | None = None) -> Plan:
        """Returns the plan. The files are not read if they are those of `saved` and have not changed."""
        paths = [[os.path.abspath(path) for path in paths] for paths in self.segments]
        if saved is not None and paths == saved.paths and not saved.changed:
            return saved
        with console.Progress("Checking", None, "line", summary=False) as progress:
            return make_plan(self.segments, self.shard_rows, progress)


@contextmanager
def job_folder(dest: str, flag: str, preparation: Preparation, options: JobConfig) -> Iterator[JobFolder]:
    """Yields the folder of the job that makes `dest`. If the block fails before a shard is finished, it is removed.

    The block calls `remove` when `dest` is complete.

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
    if options.merge and not (path / _MANIFEST).exists():
        raise NmtError(f"{path} holds no job to merge; do its parts first, with --shard 1/N to N/N")
    missing = missing_folders(path.parent)
    _make(path, flag)
    with cleaning_up(), _locked(path / _WORKING, fcntl.LOCK_SH if options.shard else fcntl.LOCK_EX, flag):
        folder = None
        try:
            with _locked(path / _PREPARING, fcntl.LOCK_EX):
                folder = _prepared(path, preparation)
            yield folder
        except SystemExit:
            if folder and folder.is_complete:
                _remove(path)
                return
            rows = folder.rows_done if folder else 0
            kept = f" after {console.counted(rows, 'line')}, which are kept in {path}" if rows else ""
            raise Interrupted(f"stopped{kept}; start the same command again" + " to resume" * bool(kept)) from None
        finally:
            has_begun = folder.rows_done > 0 if folder else (path / _MANIFEST).exists()
            if not options.shard and not has_begun:
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


@contextmanager
def _locked(path: Path, kind: int, flag: str | None = None) -> Iterator[None]:
    """Holds a lock during the block; the operating system releases it if the process ends.

    Args:
        kind: fcntl.LOCK_EX, or fcntl.LOCK_SH for a lock that several processes can hold.
        flag: the flag that names the output. If another process holds the lock, it is named in an error; without it,
            this process waits.
    """
    with writing(path, _ADVICE):
        file = path.open("ab")
    with file:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if flag:
                raise NmtError(
                    f"{path.parent} is in use by another process; wait for its end or choose another {flag}"
                ) from error
            console.info(f"waiting for another process, which prepares {path.parent}")
            fcntl.flock(file, kind)
        except OSError:
            console.warn(f"{path.parent} is on a file system without locks; run only one process there")
        yield


def _prepared(path: Path, preparation: Preparation) -> JobFolder:
    """Returns the folder of a job after preparing it, unless an earlier process did."""
    manifest = _read_manifest(path)
    if manifest is None:
        _remove_results(path)
        for name in (_SHARDS, _DATA):
            with writing(path / name, _ADVICE):
                (path / name).mkdir(exist_ok=True)
        plan = preparation.plan()
        prepared = preparation.prepare(path / _DATA, plan)
        offsets = BytesIO()
        np.save(offsets, plan.offsets)
        manifest = {"settings": preparation.settings_with(plan), "plan": plan.to_dict(), "prepared": prepared}
        manifest |= {"format": _FORMAT, "offsets_sha256": sha256(offsets.getvalue()).hexdigest()}
        with replaced_file(path / _OFFSETS, _ADVICE) as file:
            file.write(offsets.getvalue())
        with replaced_file(path / _MANIFEST, _ADVICE) as file:
            file.write(json.dumps(manifest))
        return JobFolder(path, plan, prepared)
    plan = preparation.plan(_read_plan(path, manifest))
    _check(path, manifest["settings"], preparation.settings_with(plan))
    return JobFolder(path, plan, manifest["prepared"])


def _read_manifest(path: Path) -> dict[str, Any] | None:
    try:
        manifest = json.loads((path / _MANIFEST).read_text(encoding="utf-8"))
        if manifest["format"] != _FORMAT or not isinstance(manifest["settings"], dict):
            raise ValueError("it is not a manifest")
        return {name: manifest[name] for name in ("settings", "plan", "prepared", "offsets_sha256")}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise NmtError(f"{path / _MANIFEST} is damaged ({error}); delete {path} and start again") from error


def _read_plan(path: Path, manifest: Mapping[str, Any]) -> Plan:
    try:
        offsets = (path / _OFFSETS).read_bytes()
        if sha256(offsets).hexdigest() != manifest["offsets_sha256"]:
            raise ValueError("its SHA-256 is another one")
        return Plan.from_dict(manifest["plan"], np.load(BytesIO(offsets)))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NmtError(f"{path / _OFFSETS} is damaged ({error}); delete {path} and start again") from error


def _check(path: Path, then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    for name in dict.fromkeys([*then, *now]):
        before, present = then.get(name, "not given"), now.get(name, "not given")
        if before != present:
            raise NmtError(
                f"{path} belongs to an unfinished job whose {name} is {_as_text(before)}, but now it is "
                f"{_as_text(present)}; start the same command as before, or delete that folder"
            )


def _as_text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _remove(path: Path) -> None:
    """Removes the folder of a job with all that jobs write there."""
    (path / _MANIFEST).unlink(missing_ok=True)
    _remove_results(path)
    for name in (_OFFSETS, _PREPARING, _WORKING):
        (path / name).unlink(missing_ok=True)
    with suppress(OSError):  # somebody has put a file there, or the folder is gone
        remove_partial_files(path)
        path.rmdir()


def _remove_results(path: Path) -> None:
    """Removes the results of shards and what was prepared for them."""
    shutil.rmtree(path / _DATA, ignore_errors=True)
    with suppress(OSError):  # there is none, or somebody has put a file there
        for found in os.scandir(path / _SHARDS):
            if found.name.isdecimal() or is_partial(found.name):
                os.unlink(found.path)
        (path / _SHARDS).rmdir()
