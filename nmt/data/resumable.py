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
from nmt.files import LOCK, check_new, locked, writing

_JOURNAL = "journal.json"
_UNFINISHED = "journal.json.partial"


class Resumable:
    """Attributes:
    path: the folder to fill.
    saved: what was saved last, by this process or one before it; None if nothing was.
    advanced: whether this process saved anything.
    """

    def __init__(self, path: Path, work: Mapping[str, Any]) -> None:
        """`work` says, in plain data, what is done here.

        Raises:
            NmtError: there is a journal of other work, or one that cannot be read.
        """
        self.path, self._work, self.advanced = path, json.loads(json.dumps(work)), False
        self.saved: dict[str, Any] | None = None
        try:
            journal = json.loads((path / _JOURNAL).read_text(encoding="utf-8"))
            of, self.saved = journal["work"], journal["saved"]
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise NmtError(f"{path / _JOURNAL} cannot be read ({error}); remove {path} to start anew") from error
        for name in self._work | of:
            then, now = of.get(name), self._work.get(name)
            if then != now:
                raise NmtError(
                    f"{path} was begun with another {name} ({_plain(then)}, now {_plain(now)}); go on with that, or "
                    f"remove {path} to start anew"
                )

    def save(self, done: Mapping[str, Any]) -> None:
        """Remembers, in plain data, what is done and safely written; the next process finds it in `saved`."""
        partial = self.path / _UNFINISHED
        with writing(partial, "make room and start the same command again"), partial.open("w") as file:
            json.dump({"work": self._work, "saved": done}, file)
            file.flush()
            os.fsync(file.fileno())
            partial.replace(self.path / _JOURNAL)
        self.saved, self.advanced = dict(done), True


def _plain(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


@contextmanager
def resumable_folder(dest: str | Path, flag: str, work: Mapping[str, Any]) -> Iterator[Resumable]:
    """A folder to fill, which is called `dest` if all goes well; if not, it is kept where something was saved.

    Raises:
        NmtError: there is something called `dest`, it cannot be written, another process is at work on it, or it was
            begun with other work.
    """
    dest, way_out = Path(dest), f"choose another {flag}"
    partial = dest.with_name(f"{dest.name}.partial")
    _check_free(dest, partial, flag)
    with writing(f"{flag} {dest}", way_out):
        partial.mkdir(parents=True, exist_ok=True)
    with locked(partial, f"another process is making {dest}; wait for its end or {way_out}", way_out):
        _check_free(dest, partial, flag)  # which another process may just have finished
        folder = Resumable(partial, work)
        try:
            if folder.saved is None:
                _clear(partial)
            yield folder
            with writing(f"{flag} {dest}", f"move what is there, or {way_out}"):
                partial.rename(dest)
            for name in (_JOURNAL, _UNFINISHED, LOCK):  # after that, so that nothing is lost if renaming fails
                (dest / name).unlink(missing_ok=True)
        except BaseException:
            if folder.saved is None:
                shutil.rmtree(partial, ignore_errors=True)
            elif folder.advanced:
                console.info(f"what is done is kept in {partial}; start the same command again to go on from there")
            raise


def _check_free(dest: Path, partial: Path, flag: str) -> None:
    check_new(dest, flag)
    ours = not os.path.lexists(partial) or (
        partial.is_dir() and ((partial / LOCK).exists() or not any(partial.iterdir()))
    )
    if not ours:
        raise NmtError(f"{partial}, where {dest} is to be made, was there before; move it or choose another {flag}")


def _clear(partial: Path) -> None:
    """Removes what a process left that was killed before it saved anything."""
    for path in partial.iterdir():
        if path.name != LOCK:
            with writing(path, f"remove {partial}"):
                path.unlink()
