"""Runs tasks in worker processes."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, TypeVar

from nmt.errors import NmtError
from nmt.processes.origins import Origin, OriginDied, Spawned

_In = TypeVar("_In")
_Out = TypeVar("_Out")
_LOOKAHEAD = 3  # chunks in flight per worker: enough to keep it busy, few enough to bound memory


class WorkerDied(NmtError):  # noqa: N818 (named after what happened)
    """A worker process ended without a result, as often as allowed."""

    def __init__(self) -> None:
        super().__init__("a worker process died, perhaps because memory ran out; try again with fewer --workers")


@contextmanager
def worker_pool(origin: Origin, workers: int, attempts: int = 1) -> Iterator[Callable[[Any], Future[Any]]]:
    """Yields a function that submits a chunk to the worker processes and returns the future result.

    At its end, the block ends the workers, whether they work or not, and waits until they have ended. (A
    ProcessPoolExecutor can wait forever if its processes are killed while it writes to them.)

    Args:
        attempts: how often a chunk is tried, with a new process each time, if the process that works on it dies.

    Raises (from the future):
        WorkerDied: no attempt gave a result.
        Exception: whatever the task raises.
    """
    idle: SimpleQueue[_Worker] = SimpleQueue()
    for number in range(workers):
        idle.put(_Worker(origin, number, attempts))

    def do(chunk: Any) -> Any:
        worker = idle.get()
        try:
            return worker.do(chunk)
        finally:
            idle.put(worker)

    threads = ThreadPoolExecutor(workers, "nmt-worker")  # each thread waits for one process
    try:
        yield lambda chunk: threads.submit(do, chunk)
    finally:
        origin.end()
        threads.shutdown(cancel_futures=True)


def in_order(
    make_task: Callable[[int], Callable[[_In], _Out]], chunks: Iterable[_In], workers: int
) -> Generator[_Out, None, None]:
    """Yields the result of the task for every chunk, in order.

    With one worker, the task runs in this process. Close the generator (contextlib.closing) to be sure that the workers
    have ended.

    Args:
        make_task: makes the task of worker n, which counts from 0. It must be picklable.

    Raises:
        WorkerDied: a worker process died.
        Exception: whatever the task raises.
    """
    if workers == 1:
        yield from map(make_task(0), chunks)
        return
    pending: deque[Future[_Out]] = deque()
    with worker_pool(Spawned(make_task), workers) as submit:
        for chunk in chunks:
            pending.append(submit(chunk))
            if len(pending) >= _LOOKAHEAD * workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


class _Worker:
    """One worker process. It starts with its first chunk, and is replaced if it dies."""

    def __init__(self, origin: Origin, number: int, attempts: int) -> None:
        self._origin, self._number, self._attempts = origin, number, attempts
        self._connection: Connection | None = None

    def do(self, chunk: Any) -> Any:
        """Returns the task's result for a chunk, or raises what the task raises, or WorkerDied."""
        for _ in range(self._attempts):
            try:
                connection = self._connected()
            except OriginDied:
                continue
            try:
                connection.send(chunk)
                succeeded, result = connection.recv()
            except (EOFError, OSError):
                self._connection = None
                continue
            if succeeded:
                return result
            raise result
        raise WorkerDied

    def _connected(self) -> Connection:
        # Between chunks, a worker says nothing. What can be read then is the end of a connection whose worker has died.
        if self._connection is None or self._connection.poll():
            self._connection = self._origin.start(self._number)
        return self._connection
