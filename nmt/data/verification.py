"""Whether the files of a data folder hold what was written: their hashes, compared with those in meta.json.

Hashing reads every file, so a data folder remembers what was verified. A file is hashed again when its size, its
modification time or its inode has changed.
"""

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from nmt import console
from nmt.data.meta import META, hash_keys
from nmt.data.plain import parse_json
from nmt.data.regular import open_regular
from nmt.data.store import DataFolder, array_names, raw_name, side_langs
from nmt.errors import NmtError
from nmt.files import replaced_file

VERIFIED = ".verified.json"
# Bytes.
_HASHED_AT_ONCE = 1 << 24
_LARGEST_MEMORY = 1 << 20
# Verification that takes longer than this is announced.
_QUIET_SECONDS = 3.0
_POLL_SECONDS = 0.2


class Verification:
    """Verifies a data folder in a thread of its own, because hashing leaves the caller's thread free to work."""

    def __init__(self, data: DataFolder) -> None:
        self._path = data.path
        self._done: Future[NmtError | None] = Future()
        threading.Thread(target=self._run, args=(data,), daemon=True, name="nmt-verification").start()

    def _run(self, data: DataFolder) -> None:
        try:
            verify(data)
            self._done.set_result(None)
        except NmtError as error:
            self._done.set_result(error)
        except BaseException as bug:
            self._done.set_exception(bug)

    def error(self, stopped: Callable[[], bool]) -> NmtError | None:
        """Waits for the end, or until `stopped()`; returns what is wrong with the data, None if nothing is."""
        started, told = time.monotonic(), False
        while not self._done.done() and not stopped():
            wait([self._done], timeout=_POLL_SECONDS)
            if not told and time.monotonic() - started > _QUIET_SECONDS:
                console.info(f"verifying the files of {self._path} before the first update")
                told = True
        return self._done.result() if self._done.done() else None


def verify(data: DataFolder) -> None:
    """Compares all files that meta.json has a hash of with it, and remembers the result where the folder allows it.

    Raises:
        NmtError: a file cannot be read, or has another hash; names the file.
    """
    remembered, verified = _remembered(data.path), {}
    for name, sha256 in _recorded_hashes(data).items():
        path = data.path / name
        try:
            with open_regular(path) as file:
                state = _state(file, sha256)
                is_whole = remembered.get(name) == state or _sha256(file) == sha256
        except OSError as error:
            raise NmtError(
                f"{path} cannot be read ({error.strerror}); copy the data folder again or run nmt preprocess again"
            ) from error
        if not is_whole:
            raise NmtError(
                f"{path} is damaged: it does not have the SHA-256 that {META} records; copy the data folder again or "
                f"run nmt preprocess again"
            )
        verified[name] = state
    if verified != remembered:
        _remember(data.path, verified)


def _recorded_hashes(data: DataFolder) -> dict[str, str]:
    """Returns the hash of each file; folders of earlier versions record those of the tokens only."""
    found: dict[str, str] = {}
    for split, counts in data.meta["splits"].items():
        for side, lang in side_langs(data.codec.config).items():
            names = (*array_names(split, lang), raw_name(split, lang))
            found |= {name: counts[key] for key, name in zip(hash_keys(side), names, strict=True) if key in counts}
    return found


def _state(file: BinaryIO, sha256: str) -> list[Any]:
    """Returns what does not change while a file stays as it is, and the hash it was compared with."""
    found = os.fstat(file.fileno())
    return [found.st_size, found.st_mtime_ns, found.st_ino, sha256]


def _sha256(file: BinaryIO) -> str:
    digest = hashlib.sha256()
    while block := file.read(_HASHED_AT_ONCE):
        digest.update(block)
    return digest.hexdigest()


def _remembered(folder: Path) -> dict[str, Any]:
    """Returns the state of each file when it was verified; nothing if that cannot be read."""
    try:
        with open_regular(folder / VERIFIED, os.O_NOFOLLOW) as file:
            found = parse_json(file.read(_LARGEST_MEMORY))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _remember(folder: Path, verified: dict[str, Any]) -> None:
    """Writes what was verified; a folder that cannot be written is verified again by the next training."""
    with suppress(NmtError), replaced_file(folder / VERIFIED, "") as file:
        file.write(json.dumps(verified))
