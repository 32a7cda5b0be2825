"""Work on a stream in several processes: results in order, few chunks in flight, errors and Ctrl-C ending cleanly."""

import os
import resource
import signal
import sys
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

_task: Callable[[Any], Any]  # of this worker process


def in_order(
    make_task: Callable[[], Callable[[_In], _Out]], chunks: Iterable[_In], workers: int
) -> Generator[_Out, None, None]:
    """Yields `make_task()(chunk)` for every chunk. `make_task` runs once in each worker, and must be picklable.

    One worker is this very process. Close the iterator (contextlib.closing) to be sure that the workers are gone.

    Raises:
        NmtError: a worker process died; and whatever the task raises.
    """
    if workers == 1:
        yield from map(make_task(), chunks)
        return
    # Not fork, which copies locks that other threads (the progress bar's, sentencepiece's) may hold at that moment.
    pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=_start, initargs=(make_task,))
    pending: deque[Future[_Out]] = deque()
    try:
        for chunk in chunks:
            with _interrupts_held():
                pending.append(pool.submit(_run, chunk))
            if len(pending) >= _LOOKAHEAD * workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except BrokenProcessPool as error:
        raise NmtError("a worker process died, perhaps for want of memory; try again with fewer --workers") from error
    finally:
        pool.shutdown(cancel_futures=True)


def share_cores(processes: int) -> None:
    """Has processes that are started from now on use their share of the cores in numerical libraries."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores // processes)))


def process_peak_mib(who: int = resource.RUSAGE_SELF) -> float:
    """Most memory that this process had at any time, or the largest of its ended children (RUSAGE_CHILDREN)."""
    peak = resource.getrusage(who).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def _start(make_task: Callable[[], Callable[[Any], Any]]) -> None:
    global _task
    _task = make_task()


def _run(chunk: Any) -> Any:
    return _task(chunk)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Ctrl-C waits until the block is left. Processes started within it never see Ctrl-C: their parent ends them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
