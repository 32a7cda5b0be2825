"""New files and folders, which get their names when they are whole, and what goes wrong then in one sentence."""

import errno
import fcntl
import os
import secrets
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from nmt import console
from nmt.errors import NmtError

# The file in a folder that whoever works there has locked.
LOCK = ".lock"


@contextmanager
def writing(path: str | Path, way_out: str) -> Iterator[None]:
    """Turns the errors of writing to `path` into an NmtError that ends with `way_out`."""
    try:
        yield
    except BrokenPipeError:  # the reader wants no more
        raise
    except OSError as error:
        raise NmtError(f"{path} cannot be written ({error.strerror or error}); {way_out}") from error


def check_new(path: Path, flag: str) -> None:
    """Raises NmtError if there is something called `path`."""
    if os.path.lexists(path):
        raise NmtError(f"{flag} {path} exists already; remove it or choose another folder")


@contextmanager
def new_folder(path: str | Path, flag: str) -> Iterator[Path]:
    """A folder to fill, which is called `path` if all goes well and is removed if not.

    Raises:
        NmtError: there is something called `path`, or it cannot be written; names `flag`.
    """
    dest, way_out = Path(path), f"make room or choose another {flag}"
    check_new(dest, flag)
    partial = dest.with_name(f"{dest.name}.partial-{secrets.token_hex(4)}")
    try:
        with writing(f"{flag} {path}", way_out):
            partial.mkdir(parents=True)
        yield partial
        with writing(f"{flag} {path}", way_out):
            partial.rename(dest)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def locked(folder: Path, busy: str, way_out: str, patience: float = 0.0) -> Iterator[None]:
    """Holds the lock of a folder, which ends with the process at the latest.

    Raises:
        NmtError: another process holds it, and still does after `patience` seconds; says `busy`. Or the folder cannot
            be written to; ends with `way_out`.
    """
    with writing(folder, way_out):
        file = (folder / LOCK).open("w")
    with file:
        deadline = time.monotonic() + patience
        while not _lock(file.fileno(), folder):
            if time.monotonic() > deadline:
                raise NmtError(busy)
            time.sleep(0.1)
        yield


def _lock(file: int, folder: Path) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno == errno.EWOULDBLOCK:
            return False
        if error.errno not in (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK):
            raise
        console.warn(f"{folder} is on a file system without locks; have one process only at work there")
    return True


@contextmanager
def new_file(path: str) -> Iterator[TextIO]:
    """A text file to write, which is called `path` (--output) if all goes well and is removed if not; - is stdout.

    Raises:
        NmtError: it cannot be written.
    """
    if path == "-":
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
        with writing("standard output", "free some space"):
            yield sys.stdout
            sys.stdout.flush()
        return
    # A device or a named pipe is written to, not replaced.
    special = os.path.exists(path) and not os.path.isfile(path)
    partial = Path(path if special else f"{path}.partial-{os.getpid()}")
    try:
        with writing(f"--output {path}", "choose another file"):
            with partial.open("w", encoding="utf-8", newline="\n") as file:
                yield file
            partial.replace(path)
    finally:
        if not special:
            with suppress(OSError):
                partial.unlink()
