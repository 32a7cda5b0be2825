"""A folder that takes hours to fill: what is broken off goes on where it was, when the same work is begun again.

While it is filled it is called DEST.partial. There journal.json says what is done, and of which work.
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nmt import console
from nmt.errors import NmtError
from nmt.files import LOCK, locked, writing

_JOURNAL = "journal.json"


class Resumable:
    """Attributes:
    path: the folder to fill.
    saved: what was saved last, by this process or one before it; None if nothing was.
    """

    def __init__(self, path: Path, work: Mapping[str, Any]) -> None:
        """`work` says, in plain data, what is done here.

        Raises:
            NmtError: there is a journal of other work, or one that cannot be read.
        """
        self.path, self._work = path, json.loads(json.dumps(work))
        self.saved: dict[str, Any] | None = None
        try:
            journal = json.loads((path / _JOURNAL).read_text(encoding="utf-8"))
            of, self.saved = journal["work"], journal["saved"]
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise NmtError(f"{path / _JOURNAL} cannot be read ({error}); remove {path} to start anew") from error
        for name in self._work | of:
            if self._work.get(name) != of.get(name):
                raise NmtError(
                    f"{path} was begun with another {name} ({of.get(name)}, now {self._work.get(name)}); "
                    f"go on with that, or remove {path} to start anew"
                )

    def save(self, done: Mapping[str, Any]) -> None:
        """Remembers, in plain data, what is done and safely written; the next process finds it in `saved`."""
        self.saved = dict(done)
        partial = self.path / f"{_JOURNAL}.partial"
        with writing(partial, "make room and start the same command again"), partial.open("w") as file:
            json.dump({"work": self._work, "saved": self.saved}, file)
            file.flush()
            os.fsync(file.fileno())
            partial.replace(self.path / _JOURNAL)

    def clear(self) -> None:
        """Removes what a process left that was killed before it saved anything."""
        for path in self.path.iterdir():
            if path.name != LOCK:
                path.unlink()

    def forget(self) -> None:
        """Removes all that is only for resuming."""
        for name in (_JOURNAL, LOCK):
            (self.path / name).unlink(missing_ok=True)


@contextmanager
def resumable_folder(dest: str | Path, flag: str, work: Mapping[str, Any]) -> Iterator[Resumable]:
    """A folder to fill, which is called `dest` if all goes well; if not, it is kept where something was saved.

    Raises:
        NmtError: there is something called `dest`, it cannot be written, another process is at work on it, or it was
            begun with other work.
    """
    dest = Path(dest)
    if os.path.lexists(dest):
        raise NmtError(f"{flag} {dest} exists already; remove it or choose another folder")
    partial = dest.with_name(f"{dest.name}.partial")
    with writing(f"{flag} {dest}", f"choose another {flag}"):
        partial.mkdir(parents=True, exist_ok=True)
    with locked(partial, f"another process is making {dest}; wait for its end or choose another {flag}"):
        folder = Resumable(partial, work)
        if folder.saved is None:
            folder.clear()
        try:
            yield folder
            folder.forget()
            with writing(f"{flag} {dest}", f"choose another {flag}"):
                partial.rename(dest)
        except BaseException:
            if folder.saved is None:
                shutil.rmtree(partial, ignore_errors=True)
            else:
                console.info(f"what is done is kept in {partial}; start the same command again to go on from there")
            raise
