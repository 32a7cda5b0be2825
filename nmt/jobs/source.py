"""Where the rows of a job come from: files that are read side by side, or memory."""

import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import chain, islice
from typing import IO, Any, Protocol

import numpy as np

from nmt import console
from nmt.errors import NmtError
from nmt.files import digest_of_json
from nmt.jobs.plan import File, Plan, Row, Shard, make_plan, thinned
from nmt.jobs.stream import Chunk, Chunks, Place, ReadyChunks
from nmt.text.corpus import decoded_lines, is_regular, name_of, opened, read_rows, reading

# Most units in a chunk if the job has no shards, and the most lines of a default shard.
CHUNK_UNITS = 8192


class Source(Protocol):
    """The rows of a job.

    Attributes:
        paths: the files that are read; `-` is standard input.
        columns: what each column of the rows is, for messages.
    """

    paths: Sequence[str]
    columns: Sequence[str]

    def rows(self) -> Iterator[tuple[Row, Place]]:
        """Yields all rows in order, and where each is from."""

    def plan(self, shard_rows: int, saved: Plan | None) -> Plan:
        """Returns the shards. If `saved` is the plan of the same rows, they are not read again."""

    def read(self, shard: Shard) -> list[tuple[Row, Place]]:
        """Returns the rows of a shard, and where each is from."""


class Files(Source):
    """Files. Those of a segment are read side by side, and stay open until a shard of another segment is read."""

    def __init__(self, segments: Sequence[Sequence[str]], columns: Sequence[str] = ()) -> None:
        self.segments, self.paths, self.columns = segments, list(chain.from_iterable(segments)), columns
        self._segment, self._files, self._open = -1, list[IO[bytes]](), ExitStack()

    def rows(self) -> Iterator[tuple[Row, Place]]:
        for segment, files in enumerate(self.segments):
            for line, row in enumerate(read_rows(*files), start=1):
                yield row, Place(name_of(files[0]), line, segment)

    def plan(self, shard_rows: int, saved: Plan | None) -> Plan:
        paths = [[os.path.abspath(path) for path in paths] for paths in self.segments]
        if saved is not None and paths == saved.paths and not saved.changed:
            return saved
        with console.Progress("Checking", None, "line", summary=False) as progress:
            return make_plan(self.segments, shard_rows, progress)

    def read(self, shard: Shard) -> list[tuple[Row, Place]]:
        paths = list(map(os.path.abspath, self.segments[shard.segment]))
        if shard.segment != self._segment:
            self._open.close()
            self._segment, self._files = shard.segment, [self._open.enter_context(opened(path)) for path in paths]
        with reading(" or ".join(paths)):
            for file, offset in zip(self._files, shard.offsets, strict=True):
                file.seek(offset)
            sides = [decoded_lines(file, path, shard.start + 1) for file, path in zip(self._files, paths, strict=True)]
            rows = list(islice(zip(*sides, strict=False), shard.rows))
        if len(rows) < shard.rows:
            raise NmtError(f"{' or '.join(paths)} has changed while it was read; start the same command again")
        return [(row, Place(paths[0], line, shard.segment)) for line, row in enumerate(rows, shard.start + 1)]


class Memory(Source):
    """Rows in memory."""

    def __init__(self, name: str, rows: Sequence[Row]) -> None:
        self._name, self._rows = name, rows
        self.paths, self.columns = (), (name,)

    def rows(self) -> Iterator[tuple[Row, Place]]:
        return ((row, Place(self._name, line)) for line, row in enumerate(self._rows, start=1))

    def plan(self, shard_rows: int, saved: Plan | None) -> Plan:  # noqa: ARG002 (there is no file to read again)
        file = File(self._name, len(self._rows), None, digest_of_json(self._rows))
        shard_rows *= thinned([len(self._rows)], shard_rows)
        return Plan(((file,),), shard_rows, np.zeros((-(-len(self._rows) // shard_rows), 1), np.int64))

    def read(self, shard: Shard) -> list[tuple[Row, Place]]:
        rows = self._rows[shard.start : shard.start + shard.rows]
        return [(row, Place(self._name, line)) for line, row in enumerate(rows, shard.start + 1)]


def chunks_of(source: Source, unit: Callable[[Row, Place], Any]) -> Chunks:
    """Returns the units of a source in chunks. From a pipe, a chunk has only the lines that have arrived."""
    units = (unit(row, place) for row, place in source.rows())
    if all(map(is_regular, source.paths)):
        return ReadyChunks(in_chunks(units, CHUNK_UNITS))
    return ArrivingChunks(units, CHUNK_UNITS)


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
        end: BaseException | None = None
        try:
            for unit in self._units:
                self._queue.put([unit])
        except BaseException as error:
            end = error
        self._queue.put(end)

    def take(self, *, wait: bool) -> Chunk | None:
        units: list[Any] = []
        with suppress(queue.Empty):
            while len(units) < self._size:
                item = self._queue.get(block=wait and not units)
                if isinstance(item, list):
                    units += item
                    continue
                self._queue.put(item)  # for the next call
                if units:
                    break
                if item is not None:
                    raise item
                return None
        self._first += len(units)
        return Chunk(self._first - len(units), units)
