"""Keeps the finished lines of a long job on disk, so that the same command can resume it.

A job that writes OUTPUT appends the output of every finished batch to OUTPUT.unfinished. When all lines are done, the
job writes OUTPUT and removes that file. Each line of the file is a JSON value: first the settings of the job, then
pairs of line numbers and their output.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nmt.decoding.jobs import in_line_order
from nmt.errors import Interrupted, NmtError
from nmt.files import Output, writing
from nmt.signals import cleaning_up, end_as_usual

# If the machine fails, at most the work of this time is lost. If the process is killed, only unfinished batches are.
_SYNC_SECONDS = 10.0
_ADVICE = "free some space or choose another --output"


class Unfinished:
    """The finished lines of a job; make one with `unfinished`."""

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        """Opens the file, or begins it.

        Raises:
            NmtError: it cannot be written, is in use or damaged, or belongs to a job with other settings.
        """
        self.path, self._settings = path, dict(settings)
        with writing(path, _ADVICE):
            self._file = open(path, "a+b")  # noqa: SIM115 (closed by `close`)
        self._out = Output(self._file, path, _ADVICE)
        self._lock()
        # All lines before `_next` are done, and some later ones.
        self._next, self._later = 1, set[int]()
        self._resume()
        self._synced = time.monotonic()

    @property
    def done(self) -> int:
        """Lines that are finished."""
        return self._next - 1 + len(self._later)

    def is_done(self, numbers: Sequence[int]) -> bool:
        """Returns whether all of these lines are finished."""
        return all(number < self._next or number in self._later for number in numbers)

    def add(self, numbers: Sequence[int], outputs: Sequence[str]) -> None:
        """Appends the output of finished lines."""
        self._out.write(_line([list(numbers), list(outputs)]))
        self._out.flush()
        self._mark(numbers)
        if time.monotonic() - self._synced > _SYNC_SECONDS:
            self._out.sync()
            self._synced = time.monotonic()

    def outputs(self) -> Iterator[str]:
        """Returns the output of all lines in order."""
        return in_line_order(self._records())

    def sync(self) -> None:
        """Waits until all finished lines are on disk."""
        self._out.sync()

    def close(self) -> None:
        """Ends the use of the file."""
        self._file.close()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._file.close()
            raise NmtError(
                f"{self.path} is in use by another process; wait for its end or choose another --output"
            ) from error
        except OSError:  # the file system has no locks
            pass

    def _resume(self) -> None:
        """Reads what is there, and cuts off a line that was not written completely."""
        with writing(self.path, _ADVICE):
            whole = _whole_lines(self._file)
            self._file.truncate(whole)
        if not whole:
            self._out.write(_line(self._settings))
            self._out.flush()
            return
        for numbers, _ in self._records():
            self._mark(numbers)

    def _records(self) -> Iterator[tuple[list[int], list[str]]]:
        """Yields line numbers and output of every batch.

        Raises:
            NmtError: the file is damaged, or begins with other settings.
        """
        self._file.seek(0)
        try:
            self._check(json.loads(self._file.readline()))
            for raw in self._file:
                numbers, outputs = json.loads(raw)
                yield numbers, outputs
        except (ValueError, TypeError) as error:
            raise NmtError(f"{self.path} is damaged; delete it and start again") from error

    def _check(self, settings: Any) -> None:
        if not isinstance(settings, dict):
            raise ValueError("the first line holds no settings")
        for name in dict.fromkeys([*settings, *self._settings]):
            then, now = settings.get(name, "not given"), self._settings.get(name, "not given")
            if then != now:
                raise NmtError(
                    f"{self.path} belongs to an unfinished job whose {name} is {then}, but now it is {now}; "
                    f"start the same command as before, or delete the file"
                )

    def _mark(self, numbers: Sequence[int]) -> None:
        self._later.update(numbers)
        while self._next in self._later:
            self._later.remove(self._next)
            self._next += 1


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) + "\n"


def _whole_lines(file: Any) -> int:
    """Returns how many bytes of the file are whole lines."""
    end = file.seek(0, os.SEEK_END)
    while end:
        begin = max(0, end - 65536)
        file.seek(begin)
        if (newline := file.read(end - begin).rfind(b"\n")) >= 0:
            return int(begin + newline + 1)
        end = begin
    return 0


@contextmanager
def unfinished(output: str, settings: Mapping[str, Any]) -> Iterator[Unfinished]:
    """Yields the finished lines of the job that writes `output`; the file is removed if the block succeeds.

    Args:
        settings: what the output depends on, by name.

    Raises:
        Interrupted: a signal asked the process to end; the same command resumes the job.
        NmtError: as `Unfinished`.
    """
    end_as_usual()
    with cleaning_up():
        lines = Unfinished(Path(f"{os.path.realpath(output)}.unfinished"), settings)
        try:
            yield lines
        except SystemExit:
            lines.sync()
            raise Interrupted(
                f"stopped after {lines.done:,} lines, which are kept in {lines.path}; "
                f"start the same command again to resume"
            ) from None
        else:
            lines.path.unlink()
        finally:
            lines.close()
