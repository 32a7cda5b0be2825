"""Writing to disk: files and folders that get their names when they are whole, and errors in one sentence."""

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

# The file in a folder that whoever works there has locked.
LOCK = ".lock"
# Standard input or output, as the name of a file.
STDIO = "-"
_PARTIAL = ".partial-"
# File systems without locks fail with these.
_NO_LOCKS = (errno.ENOTSUP, errno.ENOLCK)


@contextmanager
def writing(path: str | Path, way_out: str) -> Iterator[None]:
    """Turns the errors of writing to `path` into an NmtError that ends with `way_out`."""
    try:
        yield
    except BrokenPipeError:  # the reader wants no more
        raise
    except OSError as error:
        raise NmtError(f"{path} cannot be written ({error.strerror or error}); {way_out}") from error


class Output:
    """A binary file to write, whose errors are NmtErrors that name it."""

    def __init__(self, file: IO[bytes], name: str | Path, way_out: str) -> None:
        self._file, self._name, self._way_out = file, name, way_out

    def write(self, data: bytes | str) -> int:
        """Writes bytes, or text as UTF-8."""
        with self._writing():
            return self._file.write(data.encode(errors="replace") if isinstance(data, str) else data)

    def flush(self) -> None:
        with self._writing():
            self._file.flush()

    def sync(self) -> None:
        """Waits until what was written is on disk."""
        self.flush()
        with self._writing():
            os.fsync(self._file.fileno())

    def _writing(self) -> AbstractContextManager[None]:
        return writing(self._name, self._way_out)


@contextmanager
def replaced_file(path: Path, way_out: str, name: str | None = None) -> Iterator[Output]:
    """Yields a file to write that takes the place of `path` once it is whole and on disk, and is removed on failure.

    Raises:
        NmtError: it cannot be written; calls it `name`, or else by its path, and ends with `way_out`.
    """
    partial, name = _partial(path), name or str(path)
    with cleaning_up(), writing(name, way_out):
        file = partial.open("xb")
    with cleaning_up():
        try:
            output = Output(file, name, way_out)
            yield output
            output.sync()
            with writing(name, way_out):
                partial.replace(path)
                _sync_folder(path.parent)
        finally:
            _discard(file)
            partial.unlink(missing_ok=True)


def remove_partial_files(folder: Path) -> None:
    """Removes what `replaced_file` left in a folder when its process was killed."""
    for partial in folder.glob(f".*{_PARTIAL}*"):
        partial.unlink()


def _partial(path: Path) -> Path:
    """Returns a new name beside `path`, which is short enough even where the name of `path` is as long as can be."""
    return path.with_name(f".{path.name[:40]}{_PARTIAL}{secrets.token_hex(4)}")


def _discard(file: IO[bytes]) -> None:
    with suppress(OSError):  # what is still buffered may meet a full disk once more
        file.close()


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system that does this by itself
            raise
    finally:
        os.close(handle)


# The --output of a command


@contextmanager
def output_file(path: str, inputs: Iterable[str | Path] = (), flag: str = "--output") -> Iterator[Output]:
    """Yields the file that a command writes; `-` is standard output.

    A regular file appears, or is replaced, when it is whole; after a failure everything is as it was. Links are
    followed. Devices and pipes are written to.

    Args:
        inputs: the files that the command reads, which the output must not replace; `-` is standard input.

    Raises:
        NmtError: the output is an input, a folder, or cannot be written.
    """
    name, way_out = f"{flag} {path}", "choose another file"
    if not path:
        raise NmtError(f"{flag} is empty; give the name of a file")
    if path == STDIO:
        name, way_out = "standard output", "free some space"
    _refuse_inputs(path, inputs, name)
    if path != STDIO and _is_replaceable(path):
        with replaced_file(Path(os.path.realpath(path)), way_out, name) as output:
            yield output
        return
    with cleaning_up():
        with writing(name, way_out):
            file = _stdout() if path == STDIO else open(path, "wb")  # noqa: SIM115 (closed below)
        try:
            output = Output(file, name, way_out)
            yield output
            output.flush()
        finally:
            if path != STDIO:
                _discard(file)


def _refuse_inputs(path: str, inputs: Iterable[str | Path], name: str) -> None:
    target = _regular_file(path, sys.stdout)
    for source in inputs:
        found = _regular_file(source, sys.stdin)
        if target and found and os.path.samestat(target, found):
            raise NmtError(f"{name} is the same file as the input {source}; choose another file")


def _regular_file(path: str | Path, stdio: IO[str] | None) -> os.stat_result | None:
    """Returns what is known of a file; None if it is not there, or a device, a pipe or a folder."""
    with suppress(OSError, ValueError, AttributeError):
        found = os.fstat(stdio.fileno()) if str(path) == STDIO else os.stat(path)  # type: ignore[union-attr]
        return found if stat.S_ISREG(found.st_mode) else None
    return None


def _is_replaceable(path: str) -> bool:
    """Returns whether `path` is free or a regular file; /dev/stdout and its like stand for something already open."""
    is_stdio = os.path.islink(path) and os.path.abspath(path).startswith(("/dev/", "/proc/"))
    return not is_stdio and (os.path.isfile(path) or not os.path.exists(path))


def _stdout() -> IO[bytes]:
    if sys.stdout is None:
        raise OSError(errno.EBADF, "it is closed")
    return sys.stdout.buffer


# Folders


def check_new(path: str | Path, flag: str) -> None:
    """Raises NmtError, naming `flag`, if `path` is empty or there is something called `path`."""
    if not str(path):
        raise NmtError(f"{flag} is empty; give the name of a folder to make")
    if os.path.lexists(path):
        raise NmtError(f"{flag} {path} exists already; remove it or choose another folder")


@contextmanager
def new_folder(path: str | Path, flag: str) -> Iterator[Path]:
    """Yields a folder to fill, which gets the name `path` if the block succeeds and is removed if it fails.

    Raises:
        NmtError: there is something called `path`, or it cannot be written; names `flag`.
    """
    check_new(path, flag)
    dest, way_out = Path(path), f"make room or choose another {flag}"
    partial = _partial(dest)
    with cleaning_up():
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
    from filelock import FileLock, Timeout  # imports asyncio, which the help of a command need not wait for

    lock = FileLock(folder / LOCK, timeout=patience, poll_interval=0.1)
    try:
        lock.acquire()
    except Timeout as error:
        raise NmtError(busy) from error
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise NmtError(f"{folder / LOCK} cannot be written ({error.strerror or error}); {way_out}") from error
        console.warn(f"{folder} is on a file system without locks; run only one process there")
    try:
        yield
    finally:
        lock.release()
