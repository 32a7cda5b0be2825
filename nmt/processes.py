"""Runs tasks in worker processes, which end when their parent ends."""

import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection, wait
from queue import SimpleQueue
from typing import Any, TypeVar

from nmt.errors import NmtError
from nmt.signals import held

_In = TypeVar("_In")
_Out = TypeVar("_Out")
_LOOKAHEAD = 3  # chunks in flight per worker: enough to keep it busy, few enough to bound memory
_PARENT_CHECK_SECONDS = 0.2
# Environment variable with the id of the process that started a command. The command ends when that process ends.
_STARTER = "NMT_STARTED_BY"


class WorkerDied(NmtError):  # noqa: N818 (named after what happened)
    """A worker process ended without a result, as often as allowed."""

    def __init__(self) -> None:
        super().__init__("a worker process died, perhaps because memory ran out; try again with fewer --workers")


@contextmanager
def worker_pool(
    make_task: Callable[[int], Callable[[_In], _Out]], workers: int, attempts: int = 1, shared: Sequence[str] = ()
) -> Iterator[Callable[[_In], Future[_Out]]]:
    """Yields a function that submits a chunk to the worker processes and returns the future result.

    At its end, the block ends the workers, whether they work or not, and waits until they have ended. (A
    ProcessPoolExecutor can wait forever if its processes are killed while it writes to them.)

    Args:
        make_task: called in worker n with n, which counts from 0. It must be picklable.
        attempts: how often a chunk is tried, with a new process each time, if the process that works on it dies.
        shared: modules that all workers need. On Linux, they are imported once, and the workers share their memory.

    Raises (from the future):
        WorkerDied: no attempt gave a result.
        Exception: whatever the task raises.
    """
    _context.set_forkserver_preload(list(shared))
    processes = [_Worker(make_task, number, attempts) for number in range(workers)]
    idle: SimpleQueue[_Worker] = SimpleQueue()
    for process in processes:
        idle.put(process)

    def do(chunk: _In) -> _Out:
        process = idle.get()
        try:
            return process.do(chunk)
        finally:
            idle.put(process)

    threads = ThreadPoolExecutor(workers, "nmt-worker")  # each thread waits for one process
    try:
        yield lambda chunk: threads.submit(do, chunk)
    finally:
        for process in processes:
            process.end()
        threads.shutdown(cancel_futures=True)


def in_order(
    make_task: Callable[[int], Callable[[_In], _Out]], chunks: Iterable[_In], workers: int
) -> Generator[_Out, None, None]:
    """Yields the result of the task for every chunk, in order.

    `worker_pool` explains `make_task`. With one worker, the task runs in this process. Close the generator
    (contextlib.closing) to be sure that the workers have ended.

    Raises:
        WorkerDied: a worker process died.
        Exception: whatever the task raises.
    """
    if workers == 1:
        yield from map(make_task(0), chunks)
        return
    pending: deque[Future[_Out]] = deque()
    with worker_pool(make_task, workers) as submit:
        for chunk in chunks:
            pending.append(submit(chunk))
            if len(pending) >= _LOOKAHEAD * workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


# Forks of this process would inherit locks that other threads (the progress bar's, sentencepiece's) may hold. Forks of
# a server, which has one thread, do not. On macOS, system libraries do not work in forked processes.
_context: Any = get_context("forkserver" if sys.platform == "linux" else "spawn")


class _Worker:
    """One worker process. It starts with its first chunk, and is replaced if it dies."""

    def __init__(self, make_task: Callable[[int], Callable[[Any], Any]], number: int, attempts: int) -> None:
        # Unpickled in the process after its start, because that may import torch, which takes seconds.
        self._make_task = pickle.dumps(partial(make_task, number))
        self._attempts = attempts
        self._changing = threading.Lock()  # held while a process starts or ends, so that `end` meets every process
        self._ended = False
        self._process: Any = None

    def do(self, chunk: Any) -> Any:
        """Returns the task's result for a chunk, or raises what the task raises, or WorkerDied."""
        for _ in range(self._attempts):
            self._ensure_started()
            try:
                self._connection.send(chunk)
                succeeded, result = self._connection.recv()
            except (EOFError, OSError):
                self._process.join()
                continue
            if succeeded:
                return result
            raise result
        raise WorkerDied

    def _ensure_started(self) -> None:
        with self._changing:
            if self._ended:
                raise WorkerDied
            if self._process is None or not self._process.is_alive():
                self._connection, theirs = _context.Pipe()
                process = _context.Process(target=_work, args=(theirs, self._make_task), daemon=True)
                resource_tracker.ensure_running()  # its first start would let signals through to the process
                with held([signal.SIGINT]):  # neither the server nor the process receives Ctrl-C; this process ends it
                    process.start()
                self._process = process  # a process that could not start has nothing to end
                theirs.close()  # so that reading fails when the process has ended

    def end(self) -> None:
        """Ends the process for good."""
        with self._changing:
            self._ended = True
            if self._process is not None:
                self._process.kill()
                self._process.join()


def _work(connection: Connection, make_task: bytes) -> None:
    """Answers every chunk with (True, result) or (False, error), in a worker process."""
    parent = parent_process()
    assert parent
    _terminate_after(partial(wait, [parent.sentinel]))
    task: Callable[[Any], Any] | None = None
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the parent has ended
        while True:
            chunk = connection.recv()
            try:
                task = task or pickle.loads(make_task)()
                answer = (True, task(chunk))
            except Exception as error:
                error.add_note("".join(traceback.format_exception(error)))
                answer = (False, error)
            try:
                connection.send(answer)
            except (BrokenPipeError, ConnectionResetError):
                raise
            except Exception as error:  # it cannot be pickled
                connection.send((False, RuntimeError(f"{answer[1]!r:.1000}: {error}")))


# Processes that end with their parent


def started_by_this() -> dict[str, str]:
    """Returns environment variables that make an `nmt` command end when this process ends."""
    return {_STARTER: str(os.getpid())}


def end_with_starter() -> None:
    """Makes this process end with its parent if it is a rank or has the variables of `started_by_this`."""
    starter = os.environ.pop(_STARTER, None)
    if starter or "RANK" in os.environ:
        _end_with(int(starter) if starter else os.getppid())


def _end_with(parent: int) -> None:
    """Sends SIGTERM to this process as soon as `parent` is no longer its parent."""

    def wait_for_parent() -> None:
        while os.getppid() == parent:
            time.sleep(_PARENT_CHECK_SECONDS)

    _terminate_after(wait_for_parent)


def _terminate_after(wait_for_parent: Callable[[], object]) -> None:
    """Sends SIGTERM to this process when the function returns, which a thread calls."""

    def watch() -> None:
        wait_for_parent()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True, name="nmt-parent").start()
