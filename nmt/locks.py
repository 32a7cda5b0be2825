"""Locks of files and folders, which the operating system releases if the process that holds them ends."""

import fcntl
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from nmt import console
from nmt.errors import BusyError
from nmt.files import writing

# Name of the lock file of a folder.
LOCK = ".lock"


def is_locked(folder: Path) -> bool:
    """Returns whether a process holds the lock of a folder."""
    try:
        with (folder / LOCK).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:  # also if there is no lock, or the file system has no locks
        return isinstance(error, BlockingIOError)
    return False


@contextmanager
def locked(path: Path, busy: str, advice: str, *, patience: float = 0.0, shared: bool = False) -> Iterator[None]:
    """Holds the lock of a file during the block. On a file system without locks, there is a warning instead.

    Args:
        path: the file, which is created if it is missing.
        busy: the message of the error if another process holds the lock, or of the log if this process waits for ever.
        advice: the end of the message of the error if the file cannot be written.
        patience: how many seconds to wait for the lock; infinite to wait for ever.
        shared: whether several processes can hold the lock at once.
    """
    with writing(path, advice):
        file = path.open("ab")
    with file:
        try:
            _acquire(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, busy, patience)
            if not os.fstat(file.fileno()).st_nlink:  # its last holder has removed the file
                raise BusyError(busy)
        except OSError as error:  # the file system has no locks
            console.warn_once(f"{path.parent} cannot be locked ({error.strerror}); run only one process there")
        yield


def _acquire(file: IO[bytes], kind: int, busy: str, patience: float) -> None:
    deadline = time.monotonic() + patience
    while True:
        try:
            return fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if patience == math.inf:
                console.info(busy)
                return fcntl.flock(file, kind)
            if time.monotonic() >= deadline:
                raise BusyError(busy) from error
        time.sleep(0.1)
