"""Runs work on lines of input in batches, in this process or in several workers."""

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

from nmt.errors import NmtError
from nmt.processes import WorkerDied, worker_pool
from nmt.resources import share_cores
from nmt.text.codec import TextCodec
from nmt.text.windows import Windows

_T = TypeVar("_T")
# Lines that are sorted by length together: enough for full batches, few enough to bound memory.
WINDOW = 8192
# Windows in flight, so that workers do not wait for the last batch of a window.
_WINDOWS_IN_FLIGHT = 2
# How often a batch is tried if the worker process that works on it dies.
_ATTEMPTS = 3
_NAMED_LINES = 5  # in a message


class Engine(Protocol):
    """A loaded model that works on batches."""

    codec: TextCodec

    def __call__(self, batch: Sequence[Any]) -> Sequence[Any]:
        """Returns one result for each line of a batch."""

    def session(self) -> AbstractContextManager[object]:
        """Returns a context for many calls, within which converted weights are kept."""


class Job(Protocol):
    """Work on lines. Pickled for worker processes.

    `batched` runs in the main process: it encodes the records of a window and cuts them into batches.
    """

    def load(self, process: int) -> Engine:
        """Loads the model; on GPU number `process` if there are several."""

    def codec(self) -> TextCodec:
        """Returns how the model's text is processed."""

    def batched(self, codec: TextCodec, records: Sequence[Any], first_number: int) -> Iterator["Batch"]:
        """Yields the batches of a window, of which record 0 has this number."""


class Batch(NamedTuple):
    """Lines that are worked on together: their numbers in the input, their records, and what the engine gets."""

    numbers: list[int]
    records: list[Any]
    lines: list[Any]


class Finished(NamedTuple):
    """The results of a batch, with line numbers and records."""

    numbers: list[int]
    records: list[Any]
    results: Sequence[Any]


# Which of these lines were finished earlier: all or none of a batch.
IsDone = Callable[[Sequence[int]], bool]


def run(
    job: Job, windows: Windows[Any], workers: int, is_done: IsDone = lambda _: False
) -> Generator[Finished, None, None]:
    """Yields the results of all batches as they finish, in any order.

    Batches do not depend on the number of workers. One worker is this very process.

    Raises:
        NmtError: the input or a model cannot be read, or the same lines made three worker processes die.
    """
    if workers == 1:
        yield from _alone(job, windows, is_done)
        return
    share_cores(workers)
    codec = job.codec()
    in_flight: list[dict[Future[Sequence[Any]], Batch]] = []
    with worker_pool(partial(_load, job), workers, _ATTEMPTS) as submit:
        while True:
            while len(in_flight) < _WINDOWS_IN_FLIGHT:
                first, records = windows.first_number, windows.take(wait=not in_flight)
                if not records:
                    break
                batches = _unfinished(job, codec, records, first, is_done)
                in_flight.append({submit(batch.lines): batch for batch in batches})
            if not in_flight:
                return
            for future in wait([f for window in in_flight for f in window], return_when=FIRST_COMPLETED).done:
                batch = next(window.pop(future) for window in in_flight if future in window)
                yield Finished(batch.numbers, batch.records, _result(future, batch.numbers))
            in_flight = [window for window in in_flight if window]


def _alone(job: Job, windows: Windows[Any], is_done: IsDone) -> Iterator[Finished]:
    engine = job.load(0)
    with engine.session():
        while True:
            first, records = windows.first_number, windows.take(wait=True)
            if not records:
                return
            for batch in _unfinished(job, engine.codec, records, first, is_done):
                yield Finished(batch.numbers, batch.records, engine(batch.lines))


def _unfinished(
    job: Job, codec: TextCodec, records: Sequence[Any], first_number: int, is_done: IsDone
) -> Iterator[Batch]:
    if is_done(range(first_number, first_number + len(records))):  # spares encoding them
        return
    for batch in job.batched(codec, records, first_number):
        if not is_done(batch.numbers):
            yield batch


def _result(future: Future[Sequence[Any]], numbers: list[int]) -> Sequence[Any]:
    try:
        return future.result()
    except WorkerDied as error:
        named = ", ".join(map(str, sorted(numbers)[:_NAMED_LINES])) + (", …" if len(numbers) > _NAMED_LINES else "")
        raise NmtError(
            f"{_ATTEMPTS} worker processes died on lines {named}, perhaps because memory ran out; try fewer --workers "
            f"or a smaller --batch-tokens, or take these lines out"
        ) from error


def _load(job: Job, process: int) -> Callable[[Sequence[Any]], Sequence[Any]]:
    engine = job.load(process)
    engine.session().__enter__()  # until the process ends
    return engine


def in_line_order(finished: Iterator[tuple[Sequence[int], Sequence[_T]]]) -> Iterator[_T]:
    """Yields the results of all lines in the order of the input, each as soon as those before it are there.

    Args:
        finished: numbers and results of the lines of each batch.
    """
    waiting: dict[int, _T] = {}
    number = 1
    for numbers, results in finished:
        waiting.update(zip(numbers, results, strict=True))
        while number in waiting:
            yield waiting.pop(number)
            number += 1
