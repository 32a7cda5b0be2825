"""Runs tasks in worker processes, which end when their parent ends."""

import os
import pickle
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from queue import SimpleQueue
from threading import Lock
from typing import Any, TypeVar

from nmt.errors import NmtError

_In = TypeVar("_In")
_Out = TypeVar("_Out")
_LOOKAHEAD = 3  # chunks in flight per worker: enough to keep it busy, few enough to bound memory
_PARENT_CHECK_SECONDS = 0.2
# Environment variable with the id of the process that started a command. The command ends when that process ends.
_STARTER = "NMT_STARTED_BY"

# Of a worker process: makes its task, and the task once it is made.
_make_task: Callable[[], Callable[[Any], Any]]
_task: Callable[[Any], Any] | None = None


class WorkerDied(NmtError):  # noqa: N818 (named after what happened)
    """A worker process ended without a result, as often as allowed."""

    def __init__(self) -> None:
        super().__init__("a worker process died, perhaps because memory ran out; try again with fewer --workers")


@contextmanager
def worker_pool(
    make_task: Callable[[int], Callable[[_In], _Out]], workers: int, attempts: int = 1
) -> Iterator[Callable[[_In], Future[_Out]]]:
    """Yields a function that submits a chunk to the worker processes.

    Worker n, counted from 0, makes its task with `make_task(n)`; `make_task` must be picklable. Leaving the block waits
    until the workers have ended. If the block fails, they are killed.

    Args:
        attempts: how often a chunk is tried, with a new process each time, if the process that works on it dies.

    Raises (from the future):
        WorkerDied: all attempts ended so.
        Exception: whatever the task raises.
    """
    processes = [_Worker(make_task, number) for number in range(workers)]
    idle: SimpleQueue[_Worker] = SimpleQueue()
    for process in processes:
        idle.put(process)

    def do(chunk: _In) -> _Out:
        process = idle.get()
        try:
            return process.do(chunk, attempts)
        finally:
            idle.put(process)

    threads = ThreadPoolExecutor(workers, "nmt-worker")  # one thread waits for each process
    try:
        yield lambda chunk: threads.submit(do, chunk)
    except BaseException:
        for process in processes:
            process.kill()
        raise
    finally:
        threads.shutdown(cancel_futures=True)
        for process in processes:
            process.end()


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


class _Worker:
    """One worker process, which is replaced when it dies."""

    def __init__(self, make_task: Callable[[int], Callable[[Any], Any]], number: int) -> None:
        # The task is unpickled in the worker after its start, because that may import torch, which takes seconds.
        self._arguments = os.getpid(), pickle.dumps(partial(make_task, number))
        self._changing = Lock()  # held while the process changes, so that `kill` meets every process
        self._killed = False
        self._pool = self._new_pool()

    def _new_pool(self) -> ProcessPoolExecutor:
        # Forked processes would inherit locks that other threads (the progress bar's, sentencepiece's) may hold.
        return ProcessPoolExecutor(1, get_context("spawn"), initializer=_start_worker, initargs=self._arguments)

    def do(self, chunk: Any, attempts: int) -> Any:
        """Returns the task's result for a chunk."""
        for _ in range(attempts):
            try:
                return self._submit(chunk).result()
            except BrokenProcessPool:
                self.end()
                with self._changing:
                    self._pool = self._new_pool()
        raise WorkerDied

    def _submit(self, chunk: Any) -> Future[Any]:
        with self._changing, _interrupts_held():
            if self._killed:
                raise WorkerDied
            return self._pool.submit(_do_task, chunk)

    def kill(self) -> None:
        """Ends the process at once, for good. ProcessPoolExecutor.kill_workers does this from Python 3.14 on."""
        with self._changing:
            self._killed = True
            for process in list((self._pool._processes or {}).values()):
                process.kill()

    def end(self) -> None:
        """Waits until the process has ended."""
        self._pool.shutdown(cancel_futures=True)


def _start_worker(parent: int, make_task: bytes) -> None:
    global _make_task
    _end_with(parent)
    _make_task = pickle.loads(make_task)


def _do_task(chunk: Any) -> Any:
    global _task
    if _task is None:  # made here rather than at the start of the process, so that its errors reach the parent
        _task = _make_task()
    return _task(chunk)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Delays Ctrl-C until the block ends. Processes started within it do not receive Ctrl-C; their parent ends them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# Processes that end with their parent


def started_by_this() -> dict[str, str]:
    """Returns environment variables that make an `nmt` command end when this process ends."""
    return {_STARTER: str(os.getpid())}


def end_with_starter() -> None:
    """Makes this process end with the process that started it, if it is a rank or was given `started_by_this`."""
    starter = os.environ.pop(_STARTER, None)
    if starter or "RANK" in os.environ:
        _end_with(int(starter) if starter else os.getppid())


def _end_with(parent: int) -> None:
    """Sends SIGTERM to this process as soon as `parent` is no longer its parent."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_PARENT_CHECK_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True, name="nmt-parent").start()
