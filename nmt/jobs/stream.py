"""One stream of work: chunks of units go in, batches of them are computed, and results come out.

What computes is passed in as an executor: `local` is this process or workers of this machine, and `nmt.jobs.ray`
has one for a cluster.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from nmt import console
from nmt.config import JobConfig
from nmt.console import Progress
from nmt.errors import NmtError
from nmt.resources import sharing_cores
from nmt.signals import WAIT_SECONDS

# Row n of files that are read side by side: line n of each of them. Of rows in memory, values of JSON.
Row = tuple[Any, ...]


class Place(NamedTuple):
    """Where a row is from.

    Attributes:
        file: what messages call the file.
        line: the number of the line in the file, from 1.
        segment: the number of the segment, from 0.
    """

    file: str
    line: int
    segment: int = 0

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}"


class Chunk(NamedTuple):
    """Units that are cut into batches together: those of a shard, or lines that have arrived.

    Attributes:
        first: the number of the first unit in the whole input, from 1.
        units_before: how many of the units before it are in earlier files, which messages do not count.
    """

    first: int
    units: Sequence[Any]
    units_before: int = 0


class Chunks:
    """The chunks of an input. `left` is how many were not taken, if they were counted."""

    def __init__(self, chunks: Iterator[Chunk], left: int = 0) -> None:
        self._chunks, self.left = chunks, left

    def take(self, *, wait: bool) -> Chunk | None:  # noqa: ARG002 (for chunks that arrive slowly)
        """Returns the next chunk: an empty one if no unit has arrived and `wait` is false; None after the last."""
        self.left -= 1
        return next(self._chunks, None)


class Batch(NamedTuple):
    """Work that is done in one call, and the numbers of the units that it is from."""

    unit_numbers: Sequence[int]
    work: Any


class Result(NamedTuple):
    """What the work on a chunk gives: JSON values, such as a record for each unit, and arrays by name."""

    values: Any
    arrays: Mapping[str, np.ndarray] = {}


class Outcome(NamedTuple):
    """What became of a chunk: its result, or why it has none."""

    chunk: Chunk
    result: Result | None
    failure: str = ""


class Processor(Protocol):
    """What a job loads in each process, such as an engine or the text processing."""

    codec: Any = None

    def session(self) -> AbstractContextManager[object]:
        """Returns a context for many batches, in which the processor may keep what all of them need."""
        return nullcontext()


class Job(Protocol):
    """Work on units. Pickled for worker processes and for other machines.

    A class that inherits from it needs neither a GPU nor files nor a codec, unless it says so.
    """

    @property
    def device(self) -> str:
        """`cuda` or `cpu`: whether a worker needs a GPU."""
        return "cpu"

    @property
    def models(self) -> tuple[str, ...]:
        """The files that `load` needs."""
        return ()

    def load(self, models: Sequence[str], process: int) -> Processor:
        """Loads the processor from `models` or copies of them; see `nmt.model.device.set_up` for `process`."""

    def codec(self) -> Any:
        """Returns the `codec` of the processor without loading the rest."""
        return None

    def batches(self, codec: Any, chunk: Chunk) -> Iterable[Batch]:
        """Returns the batches of a chunk."""

    def compute(self, processor: Any, work: Any) -> Any:
        """Returns the results of a batch."""

    def result(self, codec: Any, chunk: Chunk, done: Sequence[tuple[Batch, Any]]) -> Result:
        """Returns the result of a chunk from its batches, which were done in any order, and their results."""

    def restored(self, record: Any) -> Any:
        """Returns a record of a result that was stored as JSON."""
        return record


# Computes the chunks of a job in any order. If `workers` is None, `local` has one, and a cluster as many as fit.
Executor = Callable[[Job, Chunks, int | None, Progress], Generator[Outcome, None, None]]

# How often a batch or a shard is tried if what works on it dies.
ATTEMPTS = 3


@dataclass
class _Unfinished:
    """A chunk some of whose batches are not done.

    Attributes:
        left: the number of these batches.
        lost: the units of a batch that workers died on as often as it was tried.
    """

    chunk: Chunk
    advance: Callable[[int], None]
    left: int = 0
    lost: Sequence[int] = ()
    done: list[tuple[Batch, Any]] = field(default_factory=list)
    _counted: set[int] = field(default_factory=set)

    def add(self, batch: Batch, results: Any) -> None:
        """Keeps the results of a batch, and counts the units that it is the first of."""
        self.left -= 1
        self.done.append((batch, results))
        new = set(batch.unit_numbers) - self._counted
        self._counted |= new
        self.advance(len(new))

    def outcome(self, job: Job, codec: Any) -> Outcome:
        """Returns the outcome of the chunk when all batches are done, or one is lost."""
        if self.lost:
            lines = console.listed(sorted({number - self.chunk.units_before for number in self.lost}))
            return Outcome(
                self.chunk,
                None,
                f"{ATTEMPTS} worker processes died on lines {lines}, perhaps because memory ran out; "
                f"try fewer --workers, a smaller --batch-tokens if the command has it, or take these lines out",
            )
        self.advance(len(self.chunk.units) - len(self._counted))  # blank units are in no batch
        return Outcome(self.chunk, job.result(codec, self.chunk, self.done))


def local(job: Job, chunks: Chunks, workers: int | None, progress: Progress) -> Generator[Outcome, None, None]:
    """Computes in this process, or in several workers of this machine; an `Executor`."""
    if (workers or 1) == 1:
        processor = job.load(job.models, 0)
        with processor.session():
            while chunk := chunks.take(wait=True):
                yield compute(job, processor, chunk, progress.advance)
        return
    from nmt.jobs.pool import WorkerDiedError, worker_pool

    assert workers
    codec = job.codec()
    in_flight: list[_Unfinished] = []
    running: dict[Future[Any], tuple[_Unfinished, Batch]] = {}
    pool = worker_pool(partial(_task, job), workers, ATTEMPTS, preload=type(job).__module__)
    with sharing_cores(workers), pool as submit:
        while True:
            # Idle workers begin a chunk while the last batches of others are running.
            while len(in_flight) < 2 or len(running) < workers:
                chunk = chunks.take(wait=not in_flight)
                if not chunk or not chunk.units:
                    break
                in_flight.append(_Unfinished(chunk, progress.advance))
                for batch in job.batches(codec, chunk):
                    in_flight[-1].left += 1
                    running[submit(batch.work)] = in_flight[-1], batch
            if not in_flight:
                return
            for future in wait(running, WAIT_SECONDS, FIRST_COMPLETED).done:
                unfinished, batch = running.pop(future)
                is_lost = isinstance(future.exception(), WorkerDiedError)
                unfinished.lost = batch.unit_numbers if is_lost else unfinished.lost
                unfinished.add(batch, None if is_lost else future.result())
            for unfinished in [unfinished for unfinished in in_flight if unfinished.lost or not unfinished.left]:
                in_flight.remove(unfinished)
                yield unfinished.outcome(job, codec)


@dataclass(frozen=True)
class Execution:
    """How jobs are computed.

    Attributes:
        options: how a job is cut into shards, and which of them are done.
        workers: how many; None for as many as fit.
        executor: what computes the chunks.
    """

    options: JobConfig = field(default_factory=JobConfig)
    workers: int | None = None
    executor: Executor = local


def compute(job: Job, processor: Processor, chunk: Chunk, advance: Callable[[int], None] = lambda _: None) -> Outcome:
    """Returns the outcome of a chunk that this process computes; `advance` gets the new units of each batch."""
    unfinished = _Unfinished(chunk, advance)
    for batch in job.batches(processor.codec, chunk):
        unfinished.add(batch, job.compute(processor, batch.work))
    return unfinished.outcome(job, processor.codec)


def _task(job: Job, process: int) -> Callable[[Any], Any]:
    """Loads the processor in a worker, and returns what the worker does with a batch."""
    processor = job.load(job.models, process)
    processor.session().__enter__()  # until the process ends
    return partial(job.compute, processor)


def records_in_order(outcomes: Iterable[Outcome]) -> Iterator[Any]:
    """Yields the values of all results in the order of the input. Raises NmtError if a chunk has failed."""
    waiting: dict[int, Outcome] = {}
    first = 1
    for outcome in outcomes:
        if outcome.result is None:
            raise NmtError(outcome.failure)
        waiting[outcome.chunk.first] = outcome
        while first in waiting:
            chunk, result, _ = waiting.pop(first)
            yield from result.values if result else ()
            first += len(chunk.units)
