"""Fills a folder so that interrupted work resumes when the same command is started again.

Until the folder DEST is complete, its name is DEST.partial. The file journal.json in it describes the work and records
what is done. Work resumes only in a folder with such a journal, and only removes files that it makes itself.
"""

import json
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nmt import console
from nmt.errors import NmtError
from nmt.files import LOCK, check_new, locked, replaced_file, writing
from nmt.signals import cleaning_up

_JOURNAL = "journal.json"
_FORMAT = "journal of nmt preprocess"


class Resumable:
    """A folder that is being filled, and its journal.

    Attributes:
        path: the folder.
        saved: the argument of the last `save`, in this process or an earlier one; None if there was none.
        advanced: whether this process has called `save`.
    """

    def __init__(self, path: Path, work: Mapping[str, Any], files: Set[str]) -> None:
        """Opens the folder `path`, which must be locked. See `resumable_folder` for the arguments.

        Raises:
            NmtError: the folder belongs to different work, has other files, or has a journal that cannot be read.
        """
        self.path = path
        self.advanced = False
        self._work = json.loads(json.dumps(work))  # as it would be read from a journal
        self._files = files
        journal = _read_journal(path)
        self.saved: dict[str, Any] | None = journal["saved"]
        if journal["work"] is not None:
            self._check_work(journal["work"])
        for found in path.iterdir():
            if found.name not in {*files, _JOURNAL, LOCK}:
                raise NmtError(
                    f"{found} was not made by nmt preprocess; move it elsewhere and start the same command again"
                )
        if self.saved is None:
            self._remove(files)
            self._write_journal(None)

    def _check_work(self, recorded: dict[str, Any]) -> None:
        for name in self._work | recorded:
            if recorded.get(name) != self._work.get(name):
                then = _as_text(recorded.get(name))
                now = _as_text(self._work.get(name))
                raise NmtError(
                    f"{self.path} was started with a different {name} ({then}, now {now}); change it back to resume, "
                    f"or remove {self.path} to start over"
                )

    def save(self, done: Mapping[str, Any]) -> None:
        """Records in the journal what is done and on disk, as plain data. The next process finds it in `saved`."""
        self._write_journal(done)
        self.saved = dict(done)
        self.advanced = True

    def _write_journal(self, saved: Mapping[str, Any] | None) -> None:
        with replaced_file(self.path / _JOURNAL, "free some space and start the same command again") as file:
            file.write(json.dumps({"format": _FORMAT, "work": self._work, "saved": saved}))

    def remove(self) -> None:
        """Removes the files of this work, and the folder if it is then empty."""
        self._remove({*self._files, _JOURNAL, LOCK})
        if not any(self.path.iterdir()):
            self.path.rmdir()

    def _remove(self, names: Set[str]) -> None:
        for name in names:
            with writing(self.path / name, f"remove {self.path}"):
                (self.path / name).unlink(missing_ok=True)


def _read_journal(path: Path) -> dict[str, Any]:
    """Returns the journal of a folder: `work` and `saved`, both None if there is no journal yet."""
    try:
        journal = json.loads((path / _JOURNAL).read_text(encoding="utf-8"))
        if journal["format"] != _FORMAT or not isinstance(journal["work"], dict):
            raise ValueError("it is not a journal of this command")
        return {"work": journal["work"], "saved": journal["saved"]}
    except FileNotFoundError:
        return {"work": None, "saved": None}
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise NmtError(f"{path / _JOURNAL} cannot be read ({error}); remove {path} to start over") from error


def _as_text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


@contextmanager
def resumable_folder(dest: str | Path, flag: str, work: Mapping[str, Any], files: Set[str]) -> Iterator[Resumable]:
    """Yields a folder to fill, which is renamed to `dest` if the block succeeds.

    If the block fails, the folder is kept if something was saved in it, and removed otherwise.

    Args:
        flag: the flag that names `dest`, for messages.
        work: everything that the content of the folder depends on, as plain data.
        files: the names of the files that the work may write.

    Raises:
        NmtError: `dest` exists or cannot be written, another process is filling it, or DEST.partial belongs to
            something else.
    """
    check_new(dest, flag)
    dest = Path(dest)
    advice = f"choose another {flag}"
    partial = dest.with_name(f"{dest.name}.partial")
    _make_or_reuse(partial, dest, flag)
    busy = f"another process is making {dest}; wait until it ends, or {advice}"
    with cleaning_up(), locked(partial, busy, advice):
        check_new(dest, flag)  # another process may have completed it while this one waited for the lock
        folder = Resumable(partial, work, files)
        try:
            yield folder
            with writing(f"{flag} {dest}", f"move what is there, or {advice}"):
                partial.rename(dest)
        except BaseException:
            if folder.saved is None:
                folder.remove()
            elif folder.advanced:
                console.info(f"the finished part is kept in {partial}; start the same command again to resume")
            raise
        for name in (_JOURNAL, LOCK):  # only now, so that work can resume if renaming fails
            (dest / name).unlink(missing_ok=True)


def _make_or_reuse(partial: Path, dest: Path, flag: str) -> None:
    """Makes the folder `partial`, or checks that the existing one is the unfinished work of an earlier process.

    Such a folder has a journal, or at most an empty lock if the process was killed before it wrote the journal.
    """
    with writing(f"{flag} {dest}", f"choose another {flag}"):
        partial.parent.mkdir(parents=True, exist_ok=True)
        try:
            partial.mkdir()
            return
        except FileExistsError:
            pass
    is_folder = partial.is_dir() and not partial.is_symlink()
    if is_folder and _read_journal(partial)["work"] is not None:
        return
    if is_folder and all(found.name == LOCK and found.stat().st_size == 0 for found in partial.iterdir()):
        return
    raise NmtError(
        f"{partial}, the working folder for {dest}, exists but was not made by nmt preprocess; move it elsewhere or "
        f"choose another {flag}"
    )
