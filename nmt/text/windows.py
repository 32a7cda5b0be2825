"""Input in windows: as much at once as can be sorted and batched well, but never waiting for more than has arrived."""

import os
import queue
import stat
import sys
import threading
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from nmt.text.corpus import STDIN

_T = TypeVar("_T")
# What ends the queue of a reader: the end of the input, or the error in it.
_End = BaseException | None


class Window(NamedTuple, Generic[_T]):
    """Records that follow one another, and the number of the first one in the input, from 1."""

    first_number: int
    records: list[_T]


class Windows(Generic[_T]):
    """The records of a file, `size` at once."""

    def __init__(self, records: Iterator[_T], size: int) -> None:
        self._records, self._size = records, size
        self._first_number = 1

    def take(self, *, wait: bool) -> Window[_T] | None:
        """Returns the next window; one without records if there are none yet and `wait` is False; None after the last.

        Raises:
            Exception: whatever `records` raises, after the records before it.
        """
        records = self._next(wait)
        if records is None:
            return None
        window = Window(self._first_number, records)
        self._first_number += len(records)
        return window

    def _next(self, wait: bool) -> list[_T] | None:  # noqa: ARG002 (a file never makes one wait)
        return list(islice(self._records, self._size)) or None


class ArrivingWindows(Windows[_T]):
    """The records of a pipe or a terminal: those that have arrived, at most `size` at once."""

    def __init__(self, records: Iterator[_T], size: int) -> None:
        super().__init__(records, size)
        self._queue: queue.Queue[list[_T] | _End] = queue.Queue(2 * size)
        # A daemon, because nothing can interrupt its waiting for input when the command ends.
        threading.Thread(target=self._read, daemon=True, name="nmt-input").start()

    def _read(self) -> None:
        end: _End = None
        try:
            for record in self._records:
                self._queue.put([record])
        except BaseException as error:
            end = error
        self._queue.put(end)

    def _next(self, wait: bool) -> list[_T] | None:
        window: list[_T] = []
        while len(window) < self._size:
            try:
                item = self._queue.get(block=wait and not window)
            except queue.Empty:
                break
            if isinstance(item, list):
                window += item
                continue
            self._queue.put(item)  # for the next call
            if not window and item is not None:
                raise item
            return window or None
        return window


def windows_of(paths: Iterable[str | Path], records: Iterator[_T], size: int) -> Windows[_T]:
    """Returns the windows of the records that are read from `paths`; `-` is standard input."""
    return Windows(records, size) if all(map(is_regular, paths)) else ArrivingWindows(records, size)


def is_regular(path: str | Path) -> bool:
    """Returns whether input comes from a regular file. What does not exist counts as one."""
    try:
        status = os.fstat(sys.stdin.fileno()) if str(path) == STDIN else os.stat(path)
    except (OSError, ValueError):  # a stream that is no file, as in tests
        return True
    return stat.S_ISREG(status.st_mode)
