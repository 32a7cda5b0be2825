"""New files and folders, which get their names when they are whole, and what goes wrong then in one sentence."""

import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from nmt.errors import NmtError


@contextmanager
def writing(path: str | Path, way_out: str) -> Iterator[None]:
    """Turns the errors of writing to `path` into an NmtError that ends with `way_out`."""
    try:
        yield
    except BrokenPipeError:  # the reader wants no more
        raise
    except OSError as error:
        raise NmtError(f"{path} cannot be written ({error.strerror or error}); {way_out}") from error


@contextmanager
def new_folder(path: str | Path, flag: str) -> Iterator[Path]:
    """A folder to fill, which is called `path` if all goes well and is removed if not.

    Raises:
        NmtError: there is something called `path`, or it cannot be written; names `flag`.
    """
    dest, way_out = Path(path), f"make room or choose another {flag}"
    if os.path.lexists(dest):
        raise NmtError(f"{flag} {path} exists already; remove it or choose another folder")
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
