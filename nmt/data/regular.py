"""Opening files that must be regular ones, whatever else lies in their place."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path, flags: int = 0) -> BinaryIO:
    """Returns a file opened for reading without a buffer; `flags` are further flags of `os.open`.

    Raises:
        OSError: it cannot be opened, or is a folder, a pipe or a device. Reading a pipe or a device may never end.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | flags)  # without O_NONBLOCK, a pipe waits for its writer
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is not a regular file")
    return open(handle, "rb", buffering=0)
