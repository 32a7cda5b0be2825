"""Cuts the lines of files into numbered shards, and reads the lines of a shard.

Files that are read side by side, such as a source and a target file, form a segment. Line n of each of them makes
row n. A job has one or more segments, and a shard is part of one segment.
"""

import codecs
import os
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from hashlib import sha256
from itertools import islice
from typing import Any, NamedTuple, Self

import numpy as np

from nmt.config.jobs import MOST_SHARDS
from nmt.console import Progress
from nmt.errors import NmtError
from nmt.text.corpus import name_of, opened, read_lines, unequal

Row = tuple[str, ...]
_BLOCK = 1 << 22  # bytes
_NEWLINE = ord("\n")


class Shard(NamedTuple):
    """A range of rows.

    Attributes:
        number: counts the shards from 0.
        segment: the number of the segment, from 0.
        first: the number of its first row in the whole input, from 1.
        start: how many rows of the segment come before it.
        rows: the number of its rows.
        offsets: where it begins in each file of the segment, in bytes of the decompressed text.
    """

    number: int
    segment: int
    first: int
    start: int
    rows: int
    offsets: tuple[int, ...]


@dataclass(frozen=True)
class File:
    """A file as it was when it was read.

    Attributes:
        state: its size in bytes and its modification time in nanoseconds. If both are as before, the content is taken
            to be the same.
        digest: the SHA-256 of the decompressed text.
    """

    path: str
    lines: int
    state: tuple[int, int]
    digest: str


@dataclass(frozen=True)
class Plan:
    """The shards of a job.

    Attributes:
        segments: the files of each segment.
        shard_rows: rows of each shard. The last shard of a segment may have fewer.
        offsets: where each shard begins in each file; int64, [shards, files of a segment].
    """

    segments: tuple[tuple[File, ...], ...]
    shard_rows: int
    offsets: np.ndarray

    @property
    def rows(self) -> int:
        """The rows of all segments."""
        return sum(files[0].lines for files in self.segments)

    @property
    def changed(self) -> str | None:
        """The first file that is not as it was when the plan was made."""
        return next((file.path for files in self.segments for file in files if _state(file.path) != file.state), None)

    @property
    def paths(self) -> list[list[str]]:
        """The paths of the files of each segment."""
        return [[file.path for file in files] for files in self.segments]

    def named(self, shard: Shard) -> str:
        """Returns the rows of a shard as messages name them: `lines 257-512`, with the file if there are several."""
        lines = f"lines {shard.start + 1:,}-{shard.start + shard.rows:,}"
        return lines if len(self.segments) == 1 else f"{lines} of {self.segments[shard.segment][0].path}"

    def rows_of(self, part: int, parts: int) -> int:
        """Returns the rows of every shard whose number is `part` modulo `parts`."""
        return sum(self[number].rows for number in range(part, len(self), parts))

    def __len__(self) -> int:
        return len(self.offsets)

    def __getitem__(self, number: int) -> Shard:
        before, first = number, 1
        for segment, (file, *_) in enumerate(self.segments):
            start = before * self.shard_rows
            if start < file.lines:
                rows = min(self.shard_rows, file.lines - start)
                return Shard(number, segment, first + start, start, rows, tuple(self.offsets[number].tolist()))
            before -= _shards(file.lines, self.shard_rows)
            first += file.lines
        raise IndexError(number)

    def to_dict(self) -> dict[str, Any]:
        """Returns the plan as plain data."""
        segments = [[asdict(file) for file in files] for files in self.segments]
        return {"shard_rows": self.shard_rows, "segments": segments, "offsets": self.offsets.tolist()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Returns the plan for what `to_dict` returned.

        Raises:
            ValueError, TypeError, KeyError: the values are damaged.
        """
        segments = tuple(
            tuple(File(f["path"], f["lines"], tuple(f["state"]), f["digest"]) for f in files)
            for files in values["segments"]
        )
        plan = cls(segments, values["shard_rows"], np.array(values["offsets"], np.int64))
        if len(plan) != sum(_shards(files[0].lines, plan.shard_rows) for files in segments):
            raise ValueError("the number of offsets is wrong")
        return plan


def make_plan(
    segments: Sequence[Sequence[str]], shard_rows: int, progress: Progress | None = None, most: int = MOST_SHARDS
) -> Plan:
    """Returns the plan for files, which are read once."""
    found = [_indexed(paths, shard_rows, progress) for paths in segments]
    lines = [files[0].lines for files, _ in found]
    thinning = 1
    while sum(_shards(n, shard_rows * thinning) for n in lines) > max(most, len(lines)):
        thinning *= 2
    offsets = np.concatenate([offsets[::thinning] for _, offsets in found])
    return Plan(tuple(files for files, _ in found), shard_rows * thinning, offsets)


def _shards(rows: int, shard_rows: int) -> int:
    return -(-rows // shard_rows)


def _indexed(paths: Sequence[str], every: int, progress: Progress | None) -> tuple[tuple[File, ...], np.ndarray]:
    """Returns the files of a segment, and the offset of each `every`-th line in each; [shards, files]."""
    files, columns = [], []
    for number, path in enumerate(paths):
        state = _state(path)
        index = _LineIndex(every)
        lines_before = 0
        text = codecs.getincrementaldecoder("utf-8")()
        with opened(path) as file:
            while block := file.read(_BLOCK):
                index.add(block)
                _check(text, block, path)
                if progress and not number:
                    progress.advance(index.lines - lines_before)
                    lines_before = index.lines
        _check(text, b"", path, final=True)
        offsets = index.finish()
        files.append(File(os.path.abspath(path), index.lines, state, index.hash.hexdigest()))
        columns.append(offsets)
        if files[0].lines != index.lines:
            raise NmtError(unequal(paths[0], files[0].lines, path, index.lines))
    return tuple(files), np.stack(columns, axis=1)


class _LineIndex:
    """Finds in blocks of text the offset of every line whose number, counted from 0, is a multiple of `every`."""

    def __init__(self, every: int) -> None:
        self._every = every
        self._bytes, self._ends_line = 0, True
        self._found = [np.zeros(1, np.int64)]
        self.lines = 0
        self.hash = sha256()

    def add(self, block: bytes) -> None:
        """Adds the next block."""
        self.hash.update(block)
        # Newline n of this block, from 1, ends line `lines` + n, so as many lines come before the line after it.
        starts = np.flatnonzero(np.frombuffer(block, np.uint8) == _NEWLINE) + (self._bytes + 1)
        # A copy, because a slice would keep all starts of the block in memory.
        self._found.append(starts[-(self.lines + 1) % self._every :: self._every].copy())
        self.lines += len(starts)
        self._bytes += len(block)
        self._ends_line = block.endswith(b"\n")

    def finish(self) -> np.ndarray:
        """Counts a last line without line break. Returns the offsets."""
        self.lines += not self._ends_line
        return np.concatenate(self._found)[: _shards(self.lines, self._every)]


def _check(text: codecs.IncrementalDecoder, block: bytes, path: str, *, final: bool = False) -> None:
    """Raises NmtError, naming the line, if a file is not UTF-8."""
    try:
        text.decode(block, final)
    except UnicodeDecodeError:
        for _ in read_lines(path):  # raises the error
            pass


def _state(path: str) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError:  # reading the file explains what is wrong
        return 0, 0
    return found.st_size, found.st_mtime_ns


class Reader:
    """Reads the rows of shards. Files are opened again only if a shard does not follow the one before."""

    def __init__(self, segments: Sequence[Sequence[str]]) -> None:
        self.segments = segments
        self._rows: Iterator[Row] = iter(())
        self._next: tuple[int, int] | None = None  # the segment and the number of the row that `_rows` yields next
        self._open = ExitStack()

    def read(self, shard: Shard) -> list[Row]:
        """Returns the rows of a shard."""
        paths = self.segments[shard.segment]
        if self._next is None or self._next[0] != shard.segment or not self._skip_to(shard, self._next[1]):
            self._go_to(shard, paths)
        rows = list(islice(self._rows, shard.rows))
        self._next = shard.segment, shard.start + shard.rows
        if len(rows) < shard.rows:
            raise NmtError(
                f"{' or '.join(map(name_of, paths))} has changed while it was read; start the same command again"
            )
        return rows

    def _skip_to(self, shard: Shard, upcoming: int) -> bool:
        """Goes forward in compressed files, if needed. Returns whether the open files stand at the shard now."""
        is_compressed = any(path.endswith(".gz") for path in self.segments[shard.segment])
        if shard.start == upcoming or (is_compressed and shard.start > upcoming):
            deque(islice(self._rows, shard.start - upcoming), maxlen=0)
            return True
        return False

    def _go_to(self, shard: Shard, paths: Sequence[str]) -> None:
        self.close()
        columns = [read_lines(path, offset, shard.start + 1) for path, offset in zip(paths, shard.offsets, strict=True)]
        for column in columns:
            self._open.callback(column.close)
        self._rows = zip(*columns, strict=False)

    def close(self) -> None:
        """Closes the files."""
        self._open.close()
        self._next = None
