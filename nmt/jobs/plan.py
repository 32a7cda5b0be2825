"""Cuts the lines of files into numbered shards.

Files that are read side by side, such as a source and a target file, form a segment. Line n of each of them makes
row n. A job has one or more segments, and a shard is part of one segment.
"""

import codecs
import math
import os
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any, NamedTuple, Self

import numpy as np

from nmt.config.jobs import MOST_SHARDS
from nmt.console import Progress
from nmt.errors import NmtError
from nmt.text.corpus import opened, read_lines, unequal

# Row n of files that are read side by side: line n of each of them.
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
            to be the same. None for text in memory.
        digest: the SHA-256 of the decompressed text.
    """

    path: str
    lines: int
    state: tuple[int, int] | None
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
        files = (file for files in self.segments for file in files if file.state is not None)
        return next((file.path for file in files if _state(file.path) != file.state), None)

    @property
    def paths(self) -> list[list[str]]:
        """The paths of the files of each segment."""
        return [[file.path for file in files] for files in self.segments]

    def named(self, shard: Shard) -> str:
        """Returns the rows of a shard as messages name them: `lines 257-512`, with the file if there are several."""
        first, last = shard.start + 1, shard.start + shard.rows
        lines = f"line {first:,}" if first == last else f"lines {first:,}-{last:,}"
        return lines if len(self.segments) == 1 else f"{lines} of {self.segments[shard.segment][0].path}"

    @cached_property
    def shards(self) -> list[Shard]:
        """All shards in order."""
        shards: list[Shard] = []
        first = 1
        for segment, (file, *_) in enumerate(self.segments):
            for start in range(0, file.lines, self.shard_rows):
                rows, offsets = min(self.shard_rows, file.lines - start), self.offsets[len(shards)].tolist()
                shards.append(Shard(len(shards), segment, first + start, start, rows, tuple(offsets)))
            first += file.lines
        return shards

    def to_dict(self) -> dict[str, Any]:
        """Returns the plan as plain data."""
        segments = [[asdict(file) for file in files] for files in self.segments]
        return {"shard_rows": self.shard_rows, "segments": segments, "offsets": self.offsets.tolist()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Returns the plan for what `to_dict` returned."""
        segments = tuple(
            tuple(File(f["path"], f["lines"], f["state"] and tuple(f["state"]), f["digest"]) for f in files)
            for files in values["segments"]
        )
        return cls(segments, values["shard_rows"], np.array(values["offsets"], np.int64))


def make_plan(segments: Sequence[Sequence[str]], shard_rows: int, progress: Progress | None = None) -> Plan:
    """Returns the plan for files, which are read once."""
    plan: list[tuple[File, ...]] = []
    offsets = []  # of each segment: [shards, files]
    for paths in segments:
        files, starts = list[File](), []
        for path in paths:
            file, starts_of_file = _read(path, shard_rows, None if files else progress)
            files.append(file)
            starts.append(starts_of_file)
            if file.lines != files[0].lines:
                raise NmtError(unequal(paths[0], files[0].lines, path, file.lines, translates=len(files) == 2))
        plan.append(tuple(files))
        offsets.append(np.stack(starts, axis=1))
    thinning = thinned([files[0].lines for files in plan], shard_rows)
    return Plan(tuple(plan), shard_rows * thinning, np.concatenate([starts[::thinning] for starts in offsets]))


def thinned(lines: Sequence[int], shard_rows: int) -> int:
    """Returns the factor, a power of 2, by which shards must grow so that there are not too many.

    Args:
        lines: of each segment.
    """
    factor = 1
    while sum(math.ceil(n / (shard_rows * factor)) for n in lines) > max(MOST_SHARDS, len(lines)):
        factor *= 2
    return factor


def _read(path: str, every: int, progress: Progress | None) -> tuple[File, np.ndarray]:
    """Returns a file, and the offset of every line whose number, counted from 0, is a multiple of `every`."""
    state, digest, text = _state(path), sha256(), codecs.getincrementaldecoder("utf-8")()
    lines, size, last = 0, 0, b"\n"
    starts_of_shards = [np.zeros(1, np.int64)]
    try:
        with opened(path) as file:
            while block := file.read(_BLOCK):
                last = block
                digest.update(block)
                text.decode(block)
                # The line after newline n of this block has the number `lines` + n; n counts from 1, and lines from 0.
                starts = np.flatnonzero(np.frombuffer(block, np.uint8) == _NEWLINE) + (size + 1)
                # A copy, because a slice would keep all starts of the block in memory.
                starts_of_shards.append(starts[-(lines + 1) % every :: every].copy())
                lines += len(starts)
                size += len(block)
                if progress:
                    progress.advance(len(starts))
        text.decode(b"", final=True)
    except UnicodeDecodeError:
        deque(read_lines(path), maxlen=0)  # raises the error that names the line
    lines += not last.endswith(b"\n")
    offsets = np.concatenate(starts_of_shards)[: math.ceil(lines / every)]
    return File(os.path.abspath(path), lines, state, digest.hexdigest()), offsets


def _state(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except OSError:  # reading the file explains what is wrong
        return 0, 0
    return status.st_size, status.st_mtime_ns
