"""Locks of folders that only one process at a time may write to."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nmt import console
from nmt.errors import NmtError

# Name of the lock file of a folder.
LOCK = ".lock"
# Error numbers of file systems without locks.
NO_LOCKS = (errno.ENOTSUP, errno.ENOLCK, errno.ENOSYS)


def is_locked(folder: Path) -> bool:
    """Returns whether a process holds the lock of a folder."""
    try:
        with open(os.open(folder / LOCK, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # there is no lock, or the file system has no locks
        return False
    return False


@contextmanager
def locked(folder: Path, busy: str, advice: str, patience: float = 0.0) -> Iterator[None]:
    """Holds the lock of a folder during the block. The operating system releases the lock if the process ends.

    On a file system without locks, a warning takes the place of the lock.

    Args:
        busy: the message of the error if another process holds the lock.
        advice: the end of the message of the error if the folder cannot be written.
        patience: how many seconds to wait for the lock.

    Raises:
        NmtError: another process still holds the lock after `patience` seconds, or the folder cannot be written.
    """
    # Imported here, because filelock imports asyncio, which would slow down `nmt --help`.
    from filelock import FileLock, Timeout

    lock = FileLock(folder / LOCK, timeout=patience, poll_interval=0.1)
    try:
        lock.acquire()
    except Timeout as error:
        raise NmtError(busy) from error
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise NmtError(f"{folder / LOCK} cannot be written ({error.strerror or error}); {advice}") from error
        console.warn(f"{folder} is on a file system without locks; run only one process there")
    try:
        yield
    finally:
        lock.release()
