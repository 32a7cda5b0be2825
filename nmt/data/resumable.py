"""A folder that takes hours to fill: interrupted work resumes when the same command is started again.

While it is filled it is called DEST.partial. A file in it, journal.json, names the work and says what is done. Only a
folder with such a journal is ever taken over, and only files that this work makes are ever removed.
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
    """Attributes:
    path: the folder to fill.
    saved: what was saved last, by this process or one before it; None if nothing was.
    advanced: whether this process saved anything.
    """

    def __init__(self, path: Path, work: Mapping[str, Any], files: Set[str]) -> None:
        """Opens the folder `path`, which is locked, for `work` in plain data that makes `files`.

        Raises:
            NmtError: the folder holds other work, other files, or a journal that cannot be read.
        """
        self.path, self.advanced = path, False
        self._work, self._files = json.loads(json.dumps(work)), files
        journal = _read_journal(path)
        self.saved: dict[str, Any] | None = journal["saved"]
        if journal["work"] is not None:
            self._check_work(journal["work"])
        for found in path.iterdir():
            if found.name not in {*files, _JOURNAL, LOCK}:
                raise NmtError(f"{found} is not a file of the work in {path}; move it to go on")
        if self.saved is None:
            self._remove(files)
            self._write_journal(None)

    def _check_work(self, then: dict[str, Any]) -> None:
        for name in self._work | then:
            if then.get(name) != self._work.get(name):
                was, now = _plain(then.get(name)), _plain(self._work.get(name))
                raise NmtError(
                    f"{self.path} was begun with another {name} ({was}, now {now}); go on with that, or remove "
                    f"{self.path} to start anew"
                )

    def save(self, done: Mapping[str, Any]) -> None:
        """Remembers, in plain data, what is done and safely written; the next process finds it in `saved`."""
        self._write_journal(done)
        self.saved, self.advanced = dict(done), True

    def _write_journal(self, saved: Mapping[str, Any] | None) -> None:
        with replaced_file(self.path / _JOURNAL, "make room and start the same command again") as file:
            file.write(json.dumps({"format": _FORMAT, "work": self._work, "saved": saved}))

    def remove(self) -> None:
        """Removes what this work made, and the folder if that leaves it empty."""
        self._remove({*self._files, _JOURNAL, LOCK})
        if not any(self.path.iterdir()):
            self.path.rmdir()

    def _remove(self, names: Set[str]) -> None:
        for name in names:
            with writing(self.path / name, f"remove {self.path}"):
                (self.path / name).unlink(missing_ok=True)


def _read_journal(path: Path) -> dict[str, Any]:
    """Returns the journal of a folder; one without work if there is none yet."""
    try:
        journal = json.loads((path / _JOURNAL).read_text(encoding="utf-8"))
        if journal["format"] != _FORMAT or not isinstance(journal["work"], dict):
            raise ValueError("it is not a journal of this command")
        return {"work": journal["work"], "saved": journal["saved"]}
    except FileNotFoundError:
        return {"work": None, "saved": None}
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise NmtError(f"{path / _JOURNAL} cannot be read ({error}); remove {path} to start anew") from error


def _plain(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


@contextmanager
def resumable_folder(dest: str | Path, flag: str, work: Mapping[str, Any], files: Set[str]) -> Iterator[Resumable]:
    """Yields a folder to fill with `files`, which gets the name `dest` if the block succeeds.

    If it fails, the folder is kept where something was saved, and is removed otherwise.

    Raises:
        NmtError: there is something called `dest`, it cannot be written, another process is at work on it, or
            DEST.partial belongs to something else.
    """
    check_new(dest, flag)
    dest, advice = Path(dest), f"choose another {flag}"
    partial = dest.with_name(f"{dest.name}.partial")
    _make_or_take(partial, dest, flag)
    busy = f"another process is making {dest}; wait for its end or {advice}"
    with cleaning_up(), locked(partial, busy, advice):
        check_new(dest, flag)  # another process may just have finished
        folder = Resumable(partial, work, files)
        try:
            yield folder
            with writing(f"{flag} {dest}", f"move what is there, or {advice}"):
                partial.rename(dest)
        except BaseException:
            if folder.saved is None:
                folder.remove()
            elif folder.advanced:
                console.info(f"what is done is kept in {partial}; start the same command again to go on from there")
            raise
        for name in (_JOURNAL, LOCK):  # after renaming, so that nothing is lost if that fails
            (dest / name).unlink(missing_ok=True)


def _make_or_take(partial: Path, dest: Path, flag: str) -> None:
    """Makes the folder `partial`, or makes sure that the one there is left from work of this kind.

    A process that was killed before it wrote its journal leaves at most an empty lock.
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
        f"{partial}, where {dest} is to be made, is not left from nmt preprocess; move it or choose another {flag}"
    )
