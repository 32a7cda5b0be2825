"""The results of finished shards, each in a file that appears under its name only when it is complete.

The file shards/NUMBER of a job's folder is a line of JSON with the identity of the job, and the size and the SHA-256 of
what follows, then these bytes. A process that outlived its job may write a result late, which no other job must take.
"""

import json
import os
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nmt.errors import NmtError
from nmt.files import is_partial, replaced_file

SHARDS = "shards"
# The end of the message if a file of the job cannot be written.
ADVICE = "correct that and start the same command again"


class Result(NamedTuple):
    """What a shard gives: a part of the output, and values that the command adds up or collects."""

    content: bytes
    summary: dict[str, Any]


def write_result(folder: Path, identity: str, number: int, result: Result) -> None:
    """Writes the result of a shard into the folder of a job.

    It need not be on disk at once, because a result that a power failure has damaged is made anew.

    Raises:
        NmtError: it cannot be written.
    """
    digest = sha256(result.content).hexdigest()
    header = {"job": identity, "summary": result.summary, "bytes": len(result.content), "sha256": digest}
    with replaced_file(_result_path(folder, number), ADVICE, synced=False) as file:
        file.write(json.dumps(header) + "\n")
        file.write(result.content)


def find_results(folder: Path, identity: str, done_X: np.ndarray) -> None:
    """Sets `done_X[n]` for each shard n of this job whose result is there with its full size."""
    for name in os.listdir(folder / SHARDS):
        if name.isdecimal() and int(name) < len(done_X) and not done_X[int(name)]:
            done_X[int(name)] = _is_whole(_result_path(folder, int(name)), identity)


def read_result(folder: Path, number: int) -> Result:
    """Returns the result of a shard.

    Raises:
        NmtError: it cannot be read, or it was damaged and has been removed.
    """
    path = _result_path(folder, number)
    try:
        with path.open("rb") as file:
            header, content = json.loads(file.readline()), file.read()
        if sha256(content).hexdigest() != header["sha256"]:
            raise ValueError("its SHA-256 is another one")
        return Result(content, header["summary"])
    except OSError as error:
        raise NmtError(f"{path} cannot be read ({error.strerror}); check it and its permissions") from error
    except (ValueError, KeyError, TypeError) as error:
        path.unlink(missing_ok=True)
        raise NmtError(
            f"{path} is damaged ({error}) and was removed; the same command, without --merge, makes it anew"
        ) from error


def remove_results(folder: Path) -> None:
    """Removes the results of all shards."""
    with suppress(OSError):  # there is none, or somebody has put a file there
        for found in os.scandir(folder / SHARDS):
            if found.name.isdecimal() or is_partial(found.name):
                os.unlink(found.path)
        (folder / SHARDS).rmdir()


def _is_whole(path: Path, identity: str) -> bool:
    with suppress(OSError, ValueError, KeyError, TypeError), path.open("rb") as file:
        header = json.loads(file.readline())
        size = os.fstat(file.fileno()).st_size - file.tell()
        return bool(header["job"] == identity and header["bytes"] == size)
    return False


def _result_path(folder: Path, number: int) -> Path:
    return folder / SHARDS / f"{number:08}"
