"""Runs tasks in worker processes, which end when their parent ends."""

import os
import pickle
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any, TypeVar

from nmt.errors import NmtError

_In = TypeVar("_In")
_Out = TypeVar("_Out")
_LOOKAHEAD = 3  # chunks in flight per worker: enough to keep it busy, few enough to bound memory
_PARENT_CHECK_SECONDS = 0.2
# Environment variable with the id of the process that started a command. The command ends when that process ends.
_STARTER = "NMT_STARTED_BY"

_task: Callable[[Any], Any]  # the task of this worker process


@contextmanager
def worker_pool(
    make_task: Callable[[int], Callable[[_In], _Out]], workers: int
) -> Iterator[Callable[[_In], Future[_Out]]]:
    """Yields a function that submits a chunk to the worker processes and returns the future result.

    At its end, the block waits until the workers have ended. If the block fails, they are killed.

    Args:
        make_task: worker n, counted from 0, calls `make_task(n)` once to get its task. It must be picklable.
        workers: the number of processes.

    Raises:
        NmtError: a worker process died.
    """
    # Forked processes would inherit locks that other threads (of the progress bar, of sentencepiece) may hold.
    context = get_context("spawn")
    numbers = context.SimpleQueue()
    for number in range(workers):
        numbers.put(number)
    # The task is pickled separately, so that a worker unpickles it last: that may import torch, which takes seconds.
    arguments = (os.getpid(), numbers, pickle.dumps(make_task))
    pool = ProcessPoolExecutor(workers, context, initializer=_start_worker, initargs=arguments)

    def submit(chunk: _In) -> Future[_Out]:
        with _interrupts_held():
            return pool.submit(_do_task, chunk)

    try:
        yield submit
    except BrokenProcessPool as error:
        raise NmtError(
            "a worker process died, perhaps because memory ran out; try again with fewer --workers"
        ) from error
    except BaseException:
        _kill(pool)
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def in_order(
    make_task: Callable[[int], Callable[[_In], _Out]], chunks: Iterable[_In], workers: int
) -> Generator[_Out, None, None]:
    """Yields the result of the task for every chunk, in order.

    With one worker, the task runs in this process. Close the generator, for example with `contextlib.closing`, to be
    sure that the workers have ended. See `worker_pool` for the arguments.

    Raises:
        NmtError: a worker process died.
        Exception: any exception of the task.
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


def _start_worker(parent: int, numbers: Any, make_task: bytes) -> None:
    global _task
    _end_with(parent)
    _task = pickle.loads(make_task)(numbers.get())


def _do_task(chunk: Any) -> Any:
    return _task(chunk)


def _kill(pool: ProcessPoolExecutor) -> None:
    """Kills the pool's processes. Python 3.14 has ProcessPoolExecutor.kill_workers for this."""
    for process in list((pool._processes or {}).values()):
        process.kill()


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
    """Makes this process end with its parent if it is a rank or has the variables of `started_by_this`."""
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
