"""Where the rows of a job come from, files or memory, and the shards that the rows are cut into.

Files that are read side by side, such as a source and a target file, form a segment. Line n of each of them makes
row n. A job has one or more segments, and a shard is part of one segment.
"""

import codecs
import math
import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from hashlib import sha256
from itertools import chain, islice
from typing import IO, Any, NamedTuple, Self

import numpy as np

from nmt import console
from nmt.config.jobs import MOST_SHARDS
from nmt.errors import NmtError
from nmt.files import digest_of_json
from nmt.jobs.stream import Chunk, Chunks, Place, Row
from nmt.signals import WAIT_SECONDS
from nmt.text.corpus import decoded_lines, name_of, opened, read_lines, read_rows, reading, unequal

# Most units in a chunk if the job has no shards, and the most lines of a default shard.
CHUNK_UNITS = 8192
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
        previous: the shard before it in the segment: where it begins in each file, and its rows.
    """

    number: int
    segment: int
    first: int
    start: int
    rows: int
    offsets: tuple[int, ...]
    previous: tuple[tuple[int, ...], int] | None = None


@dataclass(frozen=True)
class File:
    """A file as it was when it was read.

    Attributes:
        state: its size in bytes and its modification time in nanoseconds. If both are as before, the content is
            taken to be the same. None for text in memory.
        digest: the SHA-256 of the decompressed text.
    """

    path: str
    lines: int
    state: list[int] | None
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

    def changed_file(self, segment: int | None = None) -> str | None:
        """Returns the first file, of all segments or one, that is not as it was when the plan was made."""
        segments = self.segments if segment is None else [self.segments[segment]]
        files = (file for files in segments for file in files if file.state is not None)
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
                previous = (shards[-1].offsets, shards[-1].rows) if start else None
                shards.append(Shard(len(shards), segment, first + start, start, rows, tuple(offsets), previous))
            first += file.lines
        return shards

    def to_dict(self) -> dict[str, Any]:
        """Returns the plan as plain data."""
        return asdict(self) | {"offsets": self.offsets.tolist()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Returns the plan for what `to_dict` returned."""
        segments = tuple(tuple(File(**file) for file in files) for files in values["segments"])
        return cls(segments, values["shard_rows"], np.array(values["offsets"], np.int64))


def make_plan(segments: Sequence[Sequence[str]], shard_rows: int, progress: console.Progress | None = None) -> Plan:
    """Returns the plan for files, which are read once."""
    plan: list[tuple[File, ...]] = []
    offsets = []  # of each segment: [shards, files]
    contents = dict[str, tuple[File, np.ndarray]]()  # several directions may have a file
    for paths in segments:
        for i, path in enumerate(paths):
            if path not in contents:
                contents[path] = _read(path, shard_rows, None if i else progress)
        files, starts = zip(*(contents[path] for path in paths), strict=True)
        for i, file in enumerate(files):
            if file.lines != files[0].lines:
                raise NmtError(unequal(paths[0], files[0].lines, paths[i], file.lines, translates=i == 1))
        plan.append(files)
        offsets.append(np.stack(starts, axis=1))
    thinning = shard_growth([files[0].lines for files in plan], shard_rows)
    return Plan(tuple(plan), shard_rows * thinning, np.concatenate([starts[::thinning] for starts in offsets]))


def shard_growth(lines: Sequence[int], shard_rows: int) -> int:
    """Returns the power of 2 by which shards of segments of so many lines must grow, so that they are not too many."""
    factor = 1
    while sum(math.ceil(n / (shard_rows * factor)) for n in lines) > max(MOST_SHARDS, len(lines)):
        factor *= 2
    return factor


def _read(path: str, every: int, progress: console.Progress | None) -> tuple[File, np.ndarray]:
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


def _state(path: str) -> list[int]:
    try:
        status = os.stat(path)
    except OSError:  # reading the file explains what is wrong
        return [0, 0]
    return [status.st_size, status.st_mtime_ns]


# Returns the unit of a row, or raises NmtError, which names the place, if the row is wrong.
UnitOfRow = Callable[[Row, Place], Any]


class Files:
    """Files. Those of a segment are read side by side, and stay open until a shard of another segment is read.

    Attributes:
        paths: the files that are read; `-` is standard input.
        columns: what each column of the rows is, for messages.
        unit: makes the units; by default, these are the rows.
        context: `unit` remembers so many rows, which therefore are read again before a shard.
    """

    def __init__(
        self,
        segments: Sequence[Sequence[str]],
        columns: Sequence[str] = (),
        unit: UnitOfRow = lambda row, _: row,
        context: int = 0,
    ) -> None:
        self.segments, self.paths, self.columns = segments, list(chain.from_iterable(segments)), columns
        self.unit, self.context = unit, context
        self._segment, self._files, self._open = -1, list[IO[bytes]](), ExitStack()
        self._read_to = -1, 0  # the segment that was read last, and how many of its rows

    def units(self) -> Iterator[Any]:
        """Yields all units in order."""
        for segment, files in enumerate(self.segments):
            name = name_of(files[0])
            for line, row in enumerate(read_rows(*files), start=1):
                yield self.unit(row, Place(name, line, segment))

    @property
    def estimated_rows(self) -> int:
        """About how many rows there are; a line has about 100 bytes."""
        return sum(os.path.getsize(paths[0]) for paths in self.segments) // 100

    def plan(self, shard_rows: int, saved: Plan | None) -> Plan:
        """Returns the shards. If `saved` is the plan of the same rows, they are not read again."""
        paths = [[os.path.abspath(path) for path in paths] for paths in self.segments]
        if saved is not None and paths == saved.paths and not saved.changed_file():
            return saved
        with console.Progress("Checking", None, "line", summary=False) as progress:
            return make_plan(self.segments, shard_rows, progress)

    def read(self, shard: Shard) -> list[Any]:
        """Returns the units of a shard."""
        paths = list(map(os.path.abspath, self.segments[shard.segment]))
        if shard.segment != self._segment:
            self._open.close()
            self._segment, self._files = shard.segment, [self._open.enter_context(opened(path)) for path in paths]
        follows = (shard.segment, shard.start) == self._read_to  # then, `unit` has the rows before
        offsets, rows_before = shard.previous if shard.previous and self.context and not follows else (shard.offsets, 0)
        remembered = min(rows_before, self.context)
        with reading(" or ".join(paths)):
            for file, offset in zip(self._files, offsets, strict=True):
                file.seek(offset)
            first = shard.start - rows_before + 1
            sides = [decoded_lines(file, path, first) for file, path in zip(self._files, paths, strict=True)]
            rows = list(islice(zip(*sides, strict=False), rows_before + shard.rows))
        if len(rows) < rows_before + shard.rows:
            raise NmtError(f"{' or '.join(paths)} has changed while it was read; start the same command again")
        numbered = enumerate(rows[rows_before - remembered :], shard.start - remembered + 1)
        units = [self.unit(row, Place(paths[0], line, shard.segment)) for line, row in numbered]
        self._read_to = shard.segment, shard.start + shard.rows
        return units[remembered:]


class Rows:
    """Rows that were read already; see `Files` for the methods."""

    paths: Sequence[str] = ()

    def __init__(self, name: str, rows: Sequence[Row], unit: UnitOfRow) -> None:
        self._name, self._rows, self.columns, self.estimated_rows = name, rows, [name], len(rows)
        self.unit = unit

    def units(self) -> Iterator[Any]:
        return (self.unit(row, Place(self._name, line)) for line, row in enumerate(self._rows, start=1))

    def plan(self, shard_rows: int, saved: Plan | None) -> Plan:  # noqa: ARG002 (there is no file to read again)
        file = File(self._name, len(self._rows), None, digest_of_json(self._rows))
        shard_rows *= shard_growth([len(self._rows)], shard_rows)
        return Plan(((file,),), shard_rows, np.zeros((-(-len(self._rows) // shard_rows), 1), np.int64))

    def read(self, shard: Shard) -> list[Any]:
        rows = self._rows[shard.start : shard.start + shard.rows]
        return [self.unit(row, Place(self._name, line)) for line, row in enumerate(rows, shard.start + 1)]


Source = Files | Rows


def in_chunks(units: Iterator[Any], size: int) -> Iterator[Chunk]:
    """Yields units, `size` at once."""
    first = 1
    while chunk := list(islice(units, size)):
        yield Chunk(first, chunk)
        first += len(chunk)


class ArrivingChunks(Chunks):
    """The units of a pipe or a terminal: those that have arrived, at most `size` at once."""

    def __init__(self, units: Iterator[Any], size: int) -> None:
        self._units, self._size, self._first = units, size, 1
        # Holds units in lists of one, and at the end None or the error that ended the input.
        self._queue: queue.Queue[list[Any] | BaseException | None] = queue.Queue(2 * size)
        # A daemon, because nothing can interrupt its waiting for input when the command ends.
        threading.Thread(target=self._read, daemon=True, name="nmt-input").start()

    def _read(self) -> None:
        try:
            for unit in self._units:
                self._queue.put([unit])
            self._queue.put(None)
        except BaseException as error:
            self._queue.put(error)

    def take(self, *, wait: bool) -> Chunk | None:
        units: list[Any] = []
        with suppress(queue.Empty):
            while len(units) < self._size:
                item = self._next(wait=wait and not units)
                if not isinstance(item, list):
                    self._queue.put(item)  # for the next call
                    if units:
                        break
                    if item is not None:
                        raise item
                    return None
                units += item
        self._first += len(units)
        return Chunk(self._first - len(units), units)

    def _next(self, *, wait: bool) -> list[Any] | BaseException | None:
        while wait:
            with suppress(queue.Empty):
                return self._queue.get(timeout=WAIT_SECONDS)
        return self._queue.get_nowait()
