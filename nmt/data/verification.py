"""Verifies the files of a data folder by comparing their hashes with those in meta.json.

Hashing reads every file. Therefore the data folder has a record of the verified files, and a file is hashed again only
if its size, modification time or inode has changed.
"""

import json
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from hashlib import file_digest
from pathlib import Path
from typing import Any, BinaryIO

from nmt import console
from nmt.data.meta import META, hash_keys
from nmt.data.names import array_names, link_names, raw_name, side_langs
from nmt.data.plain import parse_json
from nmt.data.regular import open_regular
from nmt.data.store import DataFolder
from nmt.errors import NmtError
from nmt.files import replaced_file

VERIFIED = ".verified.json"
_LARGEST_RECORD = 1 << 20  # bytes
# A message appears if verification takes longer than this.
_QUIET_SECONDS = 3.0
_POLL_SECONDS = 0.2


class Verification:
    """Verifies a data folder in a separate thread. The caller can work meanwhile, because hashing releases the GIL."""

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
        """Waits for the result and returns the error that was found, or None.

        Also returns None, without a result, as soon as `stopped()` is true.
        """
        started = time.monotonic()
        announced = False
        while not self._done.done() and not stopped():
            wait([self._done], timeout=_POLL_SECONDS)
            if not announced and time.monotonic() - started > _QUIET_SECONDS:
                console.info(f"verifying the files of {self._path} before the first update")
                announced = True
        return self._done.result() if self._done.done() else None


def verify(data: DataFolder) -> None:
    """Compares every file that has a hash in meta.json with it, and records the verified files in the data folder.

    Raises:
        NmtError: a file cannot be read or has another hash. The message names the file.
    """
    recorded = _read_record(data.path)
    verified = {}
    for name, sha256 in _expected_hashes(data).items():
        path = data.path / name
        try:
            with open_regular(path) as file:
                state = _state(file, sha256)
                is_intact = recorded.get(name) == state or file_digest(file, "sha256").hexdigest() == sha256
        except OSError as error:
            raise NmtError(
                f"{path} cannot be read ({error.strerror}); copy the data folder again or run nmt preprocess again"
            ) from error
        if not is_intact:
            raise NmtError(
                f"{path} is damaged: it does not have the SHA-256 that {META} records; copy the data folder again or "
                f"run nmt preprocess again"
            )
        verified[name] = state
    if verified != recorded:
        _write_record(data.path, verified)


def _expected_hashes(data: DataFolder) -> dict[str, str]:
    """Returns the hashes in meta.json by file name. Earlier versions of nmt recorded only the hashes of tokens."""
    found: dict[str, str] = {}
    for split, counts in data.meta["splits"].items():
        for side, lang in side_langs(data.codec.config).items():
            names = (*array_names(split, lang), raw_name(split, lang))
            found |= {name: counts[key] for key, name in zip(hash_keys(side), names, strict=True) if key in counts}
        links = link_names(split, data.codec.config)
        found |= {name: counts[key] for key, name in zip(hash_keys("links"), links, strict=False) if key in counts}
    return found


def _state(file: BinaryIO, sha256: str) -> list[Any]:
    """Returns the size, modification time and inode of a file, and the hash it is compared with."""
    found = os.fstat(file.fileno())
    return [found.st_size, found.st_mtime_ns, found.st_ino, sha256]


def _read_record(folder: Path) -> dict[str, Any]:
    """Returns the state of each verified file by its name; an empty record if none can be read."""
    try:
        with open_regular(folder / VERIFIED, os.O_NOFOLLOW) as file:
            found = parse_json(file.read(_LARGEST_RECORD))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _write_record(folder: Path, verified: dict[str, Any]) -> None:
    """Records the verified files. If the folder cannot be written, the next training verifies them again."""
    with suppress(NmtError), replaced_file(folder / VERIFIED, "") as file:
        file.write(json.dumps(verified))
