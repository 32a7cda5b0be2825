"""Writes files and folders so that they appear under their names only when they are complete.

Every error of writing becomes an NmtError.
"""

import json
import os
import secrets
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import file_digest, sha256
from pathlib import Path
from typing import IO, Any

from nmt.errors import NmtError
from nmt.signals import cleaning_up

# The file name that means standard input or output.
STDIO = "-"
_PARTIAL = ".partial-"


@contextmanager
def writing(path: str | Path, advice: str) -> Iterator[None]:
    """Turns an OSError of the block into an NmtError that names `path` and ends with `advice` for the user."""
    try:
        yield
    except BrokenPipeError:  # not an error: the process that reads the output has ended
        raise
    except OSError as error:
        raise NmtError(f"{path} cannot be written ({error.strerror or error}); {advice}") from error


@contextmanager
def loading(path: str | Path, advice: str) -> Iterator[None]:
    """Turns an OSError of a block that reads `path` into an NmtError that ends with `advice` for the user."""
    try:
        yield
    except OSError as error:
        raise NmtError(f"{path} cannot be read ({error.strerror or error}); {advice}") from error


def read_bytes(path: Path, advice: str) -> bytes:
    """Returns the content of a file; see `loading`."""
    with loading(path, advice):
        return path.read_bytes()


class Output:
    """A binary file that raises an NmtError if it cannot be written; a temporary one can be overwritten."""

    def __init__(self, file: IO[bytes], name: str | Path, advice: str, *, is_temporary: bool = False) -> None:
        self._file, self._name, self._advice, self.is_temporary = file, name, advice, is_temporary

    def write(self, data: bytes | memoryview | str) -> int:
        """Writes bytes, or text as UTF-8. Returns the number of bytes."""
        rest = memoryview(data.encode(errors="replace") if isinstance(data, str) else data)
        size = len(rest)
        with writing(self._name, self._advice):
            while rest:  # with PYTHONUNBUFFERED, standard output may take a part of the data only
                rest = rest[self._file.write(rest) :]
        return size

    def overwrite(self, position: int, data: bytes) -> None:
        """Replaces bytes that were written at this position."""
        with writing(self._name, self._advice):
            self._file.seek(position)
            self._file.write(data)
            self._file.seek(0, os.SEEK_END)

    def flush(self) -> None:
        """Hands everything written so far to the operating system."""
        with writing(self._name, self._advice):
            self._file.flush()


@contextmanager
def replaced_file(path: Path, advice: str, name: str | None = None) -> Iterator[Output]:
    """Yields a temporary file that replaces `path` when the block succeeds and the file is on disk.

    It gets the permissions of the file that it replaces. If the block fails, it is removed, and `path` is left as
    it was.
    """
    partial = _partial(path)
    name = name or str(path)
    with cleaning_up():
        with writing(name, advice):
            file = partial.open("xb")
        try:
            with suppress(OSError):  # there is no such file, or the file system has no permissions
                shutil.copymode(path, partial)
            output = Output(file, name, advice, is_temporary=True)
            yield output
            output.flush()
            with writing(name, advice):
                os.fsync(file.fileno())
                partial.replace(path)
                _sync(path.parent)
        finally:
            with suppress(OSError):  # closing writes the rest of the buffer, which fails on a full disk
                file.close()
            partial.unlink(missing_ok=True)


def remove_partial_files(folder: Path, names: Iterable[str] = ("*",)) -> None:
    """Removes the temporary files of killed processes, which could not finish `replaced_file`."""
    for name in names:
        for partial in folder.glob(f".{name}{_PARTIAL}*"):
            if partial.is_file():
                partial.unlink(missing_ok=True)


def is_partial(name: str) -> bool:
    """Returns whether a file has the name of a temporary file of `replaced_file`."""
    return name.startswith(".") and _PARTIAL in name


def _partial(path: Path) -> Path:
    """Returns an unused path in the folder of `path`. Its name stays short if the name of `path` is long."""
    return path.with_name(f".{path.name[:40]}{_PARTIAL}{secrets.token_hex(4)}")


def _sync(path: Path) -> None:
    """Waits until a file, or the names in a folder, are on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError:
        if not path.is_dir():  # some file systems have no fsync of folders
            raise
    finally:
        os.close(handle)


# Output files of commands


@contextmanager
def output_file(
    path: str, inputs: Iterable[str | Path] = (), flag: str = "--output", suffix: str = "", advice: str | None = None
) -> Iterator[Output]:
    """Yields the output file of a command; `-` is standard output.

    A regular file appears, or is replaced, only when it is complete. A failure changes nothing. Symbolic links are
    followed. Devices and pipes are written directly.

    Args:
        inputs: the files that the command reads, which the output must not replace; `-` is standard input.
        flag: the flag that names the file, for messages.
        suffix: what the name must end in.
        advice: the end of the message if the file cannot be written.
    """
    if not path:
        raise NmtError(f"{flag} is empty; give the name of a file")
    if not path.endswith(suffix):
        raise NmtError(f"{flag} {path} is the name of another format; give a name that ends in {suffix}")
    name = "standard output" if path == STDIO else f"{flag} {path}"
    advice = advice or ("free some space" if path == STDIO else "choose another file")
    refuse_inputs(path, inputs, name)
    if path != STDIO and is_replaceable(path):
        with replaced_file(Path(os.path.realpath(path)), advice, name) as output:
            yield output
        return
    with cleaning_up():
        with writing(name, advice):
            file = sys.stdout.buffer if path == STDIO else open(path, "wb")  # noqa: SIM115 (closed below)
        try:
            output = Output(file, name, advice)
            yield output
            output.flush()
        finally:
            if path != STDIO:
                with suppress(OSError):  # as above
                    file.close()


def refuse_inputs(path: str, inputs: Iterable[str | Path], name: str) -> None:
    """Raises NmtError if the output `path` is a regular file and one of the inputs; `-` is a standard stream.

    Args:
        name: the name of the output in the message.
    """
    output = "/dev/stdout" if path == STDIO else path
    is_regular = os.path.isfile(output) or os.path.isfile(os.path.realpath(output))
    for source in inputs:
        if is_regular and identity(output) == identity("/dev/stdin" if source == STDIO else source):
            raise NmtError(f"{name} is the same file as the input {source}; choose another file")


def identity(path: str | Path) -> str | tuple[int, ...]:
    """Returns a value that two paths share if they lead to one file; for `output_file`, `missing/../file` is `file`."""
    real = os.path.realpath(path)
    file = path if os.path.exists(path) else real  # an open file, such as /dev/stdin, need not have a real path
    return os.stat(file)[1:3] if os.path.exists(file) else real


def is_replaceable(path: str) -> bool:
    """Returns whether `path` is a regular file, or free and the name of a file.

    A link to an open file, such as /dev/stdout, is neither, and a name that ends in / is that of a folder.
    """
    is_open_file = os.path.islink(path) and os.path.abspath(path).startswith(("/dev/", "/proc/"))
    return not is_open_file and (os.path.isfile(path) or not (os.path.exists(path) or path.endswith("/")))


def open_text(path: Path) -> IO[str]:
    """Opens a new text file, in UTF-8 and with Unix line ends on every system. Lone surrogates become `?`."""
    return open(path, mode="w", encoding="utf-8", errors="replace", newline="\n")


def digest_of(path: str) -> str:
    """Returns the SHA-256 of a file."""
    with loading(path, "check the path"), open(path, "rb") as file:
        return file_digest(file, "sha256").hexdigest()


def digest_of_json(value: Any) -> str:
    """Returns the SHA-256, in hexadecimal, of a JSON value. The order of the keys does not matter."""
    return sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


# Folders


def check_new(path: str | Path, flag: str) -> None:
    """Raises an error if a new folder cannot have the name `path`."""
    if not str(path):
        raise NmtError(f"{flag} is empty; give the name of a new folder")
    if os.path.lexists(path) or os.path.lexists(os.path.realpath(path)):
        raise NmtError(f"{flag} {path} already exists; remove it or choose another folder")


@contextmanager
def new_folder(path: str | Path, flag: str) -> Iterator[Path]:
    """Yields a temporary folder, which is renamed to `path` if the block succeeds and removed if it fails.

    The files are on disk before the folder has its name.

    Raises:
        NmtError: the folder exists, or cannot be written.
    """
    check_new(path, flag)
    dest, name, advice = Path(path), f"{flag} {path}", f"free some space or choose another {flag}"
    partial, missing = _partial(dest), missing_folders(dest.parent)
    with cleaning_up():
        try:
            with writing(name, advice):
                partial.mkdir(parents=True)
                yield partial
                for written in (*partial.rglob("*"), partial):
                    _sync(written)
                partial.rename(dest)
                _sync(dest.parent)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
            remove_empty(missing)


def missing_folders(path: Path) -> list[Path]:
    """Returns the missing folders among `path` and its parents, deepest first."""
    return [folder for folder in (path, *path.parents) if not os.path.exists(folder)]


def remove_empty(folders: Iterable[Path]) -> None:
    """Removes folders, deepest first, that exist and are empty."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()
