"""The folders that commands keep in the user's cache."""

import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nmt.errors import NmtError
from nmt.files import digest_of_json, is_partial, new_folder, writing
from nmt.locks import LOCK, locked

_ADVICE = "free some space, or set XDG_CACHE_HOME to a folder that can be written"


def cached_folder(kind: str, key: Any, write: Callable[[Path], None]) -> Path:
    """Returns a folder of the user's cache, which `write` fills the first time. Other processes wait until it is there.

    Args:
        kind: the name of the folder of all such folders.
        key: JSON that decides the content, such as digests of files and options.
    """
    try:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nmt" / kind
    except RuntimeError as error:
        raise NmtError(f"the cache has no place ({error}); {_ADVICE}") from error
    folder = root / digest_of_json(key)[:32]
    if not folder.is_dir():
        with writing(root, _ADVICE):
            root.mkdir(parents=True, exist_ok=True)
        busy = f"another process writes to {root}; waiting until it is done"
        with locked(root / LOCK, busy, _ADVICE, patience=math.inf):
            for unfinished in [each for each in root.iterdir() if is_partial(each.name)]:  # of a killed process
                shutil.rmtree(unfinished, ignore_errors=True)
            if not folder.is_dir():
                with new_folder(folder, "XDG_CACHE_HOME") as new:
                    write(new)
    return folder
