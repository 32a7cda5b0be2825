"""Writes files and folders so that they appear under their names only when they are complete.

Every error of writing becomes an NmtError.
"""

import errno
import os
import secrets
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import IO

from nmt import console
from nmt.errors import NmtError
from nmt.signals import cleaning_up

# Name of the lock file of a folder.
LOCK = ".lock"
# The file name that means standard input or output.
STDIO = "-"
_PARTIAL = ".partial-"
# Error numbers of file systems without locks.
_NO_LOCKS = (errno.ENOTSUP, errno.ENOLCK)


@contextmanager
def writing(path: str | Path, advice: str) -> Iterator[None]:
    """Turns an OSError into an NmtError that names `path` and ends with `advice`, the advice to the user."""
    try:
        yield
    except BrokenPipeError:  # the reader of the pipe has gone
        raise
    except OSError as error:
        raise NmtError(f"{path} cannot be written ({error.strerror or error}); {advice}") from error


class Output:
    """A binary file whose write errors are NmtErrors that name it."""

    def __init__(self, file: IO[bytes], name: str | Path, advice: str) -> None:
        self._file, self._name, self._advice = file, name, advice

    def write(self, data: bytes | str) -> int:
        """Writes bytes, or text as UTF-8."""
        with self._writing():
            return self._file.write(data.encode(errors="replace") if isinstance(data, str) else data)

    def flush(self) -> None:
        """Hands everything written so far to the operating system."""
        with self._writing():
            self._file.flush()

    def sync(self) -> None:
        """Waits until everything written so far is on disk."""
        self.flush()
        with self._writing():
            os.fsync(self._file.fileno())

    def _writing(self) -> AbstractContextManager[None]:
        return writing(self._name, self._advice)


@contextmanager
def replaced_file(path: Path, advice: str, name: str | None = None) -> Iterator[Output]:
    """Yields a temporary file that replaces `path` when it is complete and on disk. A failure removes it.

    Raises:
        NmtError: it cannot be written. The message starts with `name`, by default the path, and ends with `advice`.
    """
    partial = _partial(path)
    name = name or str(path)
    with cleaning_up(), writing(name, advice):
        file = partial.open("xb")
    with cleaning_up():
        try:
            output = Output(file, name, advice)
            yield output
            output.sync()
            with writing(name, advice):
                partial.replace(path)
                _sync_folder(path.parent)
        finally:
            _discard(file)
            partial.unlink(missing_ok=True)


def remove_partial_files(folder: Path) -> None:
    """Removes the temporary files that `replaced_file` left in a folder when its process was killed."""
    for partial in folder.glob(f".*{_PARTIAL}*"):
        partial.unlink()


def _partial(path: Path) -> Path:
    """Returns a new path beside `path`. Its name is short enough even if the name of `path` has the maximum length."""
    return path.with_name(f".{path.name[:40]}{_PARTIAL}{secrets.token_hex(4)}")


def _discard(file: IO[bytes]) -> None:
    with suppress(OSError):  # writing the rest of the buffer may fail again, for example on a full disk
        file.close()


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # these file systems need no fsync of folders
            raise
    finally:
        os.close(handle)


# Output files of commands


@contextmanager
def output_file(path: str, inputs: Iterable[str | Path] = (), flag: str = "--output") -> Iterator[Output]:
    """Yields the file that a command writes; `-` is standard output.

    A regular file appears, or is replaced, only when it is complete; a failure changes nothing. Symbolic links are
    followed. Devices and pipes are written directly.

    Args:
        inputs: files that the command reads and that the output must not replace; `-` is standard input.

    Raises:
        NmtError: the output is an input, a folder, or cannot be written.
    """
    if not path:
        raise NmtError(f"{flag} is empty; give the name of a file")
    name = "standard output" if path == STDIO else f"{flag} {path}"
    advice = "free some space" if path == STDIO else "choose another file"
    refuse_inputs(path, inputs, name)
    if path != STDIO and is_replaceable(path):
        with replaced_file(Path(os.path.realpath(path)), advice, name) as output:
            yield output
        return
    with cleaning_up():
        with writing(name, advice):
            file = _stdout() if path == STDIO else open(path, "wb")  # noqa: SIM115 (closed below)
        try:
            output = Output(file, name, advice)
            yield output
            output.flush()
        finally:
            if path != STDIO:
                _discard(file)


def refuse_inputs(path: str, inputs: Iterable[str | Path], name: str) -> None:
    """Raises NmtError, calling the output `name`, if `path` is one of the inputs; `-` is a standard stream."""
    target = _regular_file(path, sys.stdout)
    for source in inputs:
        found = _regular_file(source, sys.stdin)
        if target and found and os.path.samestat(target, found):
            raise NmtError(f"{name} is the same file as the input {source}; choose another file")


def _regular_file(path: str | Path, stdio: IO[str] | None) -> os.stat_result | None:
    """Returns the status of a regular file; None if it is missing or is a device, a pipe or a folder."""
    with suppress(OSError, ValueError, AttributeError):
        found = os.fstat(stdio.fileno()) if str(path) == STDIO else os.stat(path)  # type: ignore[union-attr]
        return found if stat.S_ISREG(found.st_mode) else None
    return None


def is_replaceable(path: str) -> bool:
    """Returns whether `path` is free or a regular file. /dev/stdout and the like are files that are already open."""
    is_stdio = os.path.islink(path) and os.path.abspath(path).startswith(("/dev/", "/proc/"))
    return not is_stdio and (os.path.isfile(path) or not os.path.exists(path))


def _stdout() -> IO[bytes]:
    if sys.stdout is None:
        raise OSError(errno.EBADF, "it is closed")
    return sys.stdout.buffer


# Folders and locks


def check_new(path: str | Path, flag: str) -> None:
    """Raises an NmtError that names `flag` if `path` is empty or exists."""
    if not str(path):
        raise NmtError(f"{flag} is empty; give the name of a folder to make")
    if os.path.lexists(path):
        raise NmtError(f"{flag} {path} exists already; remove it or choose another folder")


@contextmanager
def new_folder(path: str | Path, flag: str) -> Iterator[Path]:
    """Yields a temporary folder, which is renamed to `path` if the block succeeds and removed if it fails.

    Raises:
        NmtError: `path` exists or cannot be written; the message names `flag`.
    """
    check_new(path, flag)
    dest = Path(path)
    advice = f"make room or choose another {flag}"
    partial = _partial(dest)
    with cleaning_up():
        try:
            with writing(f"{flag} {path}", advice):
                partial.mkdir(parents=True)
            yield partial
            with writing(f"{flag} {path}", advice):
                partial.rename(dest)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def locked(folder: Path, busy: str, advice: str, patience: float = 0.0) -> Iterator[None]:
    """Holds the lock of a folder. The lock ends when the process ends, if not before.

    Raises:
        NmtError: another process still holds the lock after `patience` seconds (the message is `busy`), or the folder
            cannot be written (the message ends with `advice`).
    """
    from filelock import FileLock, Timeout  # slow, because it imports asyncio; help texts do not need it

    lock = FileLock(folder / LOCK, timeout=patience, poll_interval=0.1)
    try:
        lock.acquire()
    except Timeout as error:
        raise NmtError(busy) from error
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise NmtError(f"{folder / LOCK} cannot be written ({error.strerror or error}); {advice}") from error
        console.warn(f"{folder} is on a file system without locks; run only one process there")
    try:
        yield
    finally:
        lock.release()
