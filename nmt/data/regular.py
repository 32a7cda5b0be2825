"""Opens regular files, and refuses folders, pipes and devices."""

import errno
import os
import stat
from io import FileIO
from pathlib import Path


def open_regular(path: Path, flags: int = 0) -> FileIO:
    """Returns the file, opened for unbuffered reading. `flags` are more flags for `os.open`.

    Raises:
        OSError: the file cannot be opened, or is a folder, a pipe or a device. Reading a pipe or a device may never
            end.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | flags)  # without O_NONBLOCK, opening a pipe may never end
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is not a regular file")
    return open(handle, "rb", buffering=0)
