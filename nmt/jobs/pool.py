"""Runs tasks in worker processes of this machine.

On Linux, workers are forked from multiprocessing's fork server, which has imported the modules that they need. So they
share the memory of these modules, and start at once. They also share the memory of a checkpoint, because each of them
maps it. On other systems, where libraries do not work in forked processes, each worker is a new Python process.
"""

import os
import pickle
import signal
import sys
import tempfile
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from itertools import count
from multiprocessing import connection, get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from nmt import console
from nmt.errors import NmtError
from nmt.signals import WAIT_SECONDS, held

# Makes what worker n, counted from 0, applies to each item.
MakeTask = Callable[[int], Callable[[Any], Any]]
Submit = Callable[[Any], Future[Any]]
_In = TypeVar("_In")
_Out = TypeVar("_Out")


class WorkerDiedError(NmtError):
    """A worker process died on every attempt."""

    def __init__(self) -> None:
        super().__init__("a worker process died, perhaps because memory ran out; try again with fewer --workers")


@contextmanager
def worker_pool(make_task: MakeTask, workers: int, attempts: int = 1, *, preload: str) -> Iterator[Submit]:
    """Yields a function that submits an item to the worker processes and returns the future result.

    At its end, the block ends the workers, whether they work or not, and waits until they have ended. (A
    ProcessPoolExecutor can wait forever if its processes are killed while it writes to them.)

    Args:
        make_task: makes the task of a worker. It must be picklable.
        attempts: how often an item is tried, with a new process each time, if the process that works on it dies.
        preload: the module that the workers need; imported once for all of them.

    Raises (from the future):
        WorkerDiedError: no attempt gave a result.
        Exception: whatever the task raises.
    """
    processes, workers_begun, thread = _Processes(make_task, preload), count(), threading.local()
    # Each thread waits for one process.
    threads = ThreadPoolExecutor(workers, "nmt-worker", lambda: setattr(thread, "worker", next(workers_begun)))
    try:
        yield lambda item: threads.submit(lambda: processes.do(thread.worker, item, attempts))
    finally:
        processes.end()
        threads.shutdown(cancel_futures=True)


def map_in_order(
    make_task: Callable[[int], Callable[[_In], _Out]], items: Iterable[_In], workers: int, *, preload: str
) -> Generator[_Out, None, None]:
    """Yields the result of the task for every item, in order.

    With one worker, the task runs in this process. Close the generator (contextlib.closing) to be sure that the
    workers have ended. See `worker_pool` for the arguments.
    """
    if workers == 1:
        yield from map(make_task(0), items)
        return
    pending: deque[Future[_Out]] = deque()
    with worker_pool(make_task, workers, preload=preload) as submit:
        for item in items:
            pending.append(submit(item))
            if len(pending) >= 3 * workers:  # enough to keep workers busy, few enough to bound memory
                yield _result(pending.popleft())
        while pending:
            yield _result(pending.popleft())


def _result(future: Future[_Out]) -> _Out:
    while not future.done():
        wait([future], WAIT_SECONDS)
    return future.result()


# Held while a process starts, so that `end` sees every process, and pools change the environment one after the other.
_CHANGING = threading.Lock()


class _Processes:
    """The processes of a pool. Each starts with its first item, and is replaced if it dies."""

    def __init__(self, make_task: MakeTask, preload: str) -> None:
        self._make_task, self._preload = pickle.dumps(make_task), preload
        self._running: dict[int, tuple[Any, Connection]] = {}
        self._ended = False

    def do(self, worker: int, item: Any, attempts: int) -> Any:
        """Returns the task's result for an item from a worker; raises as `worker_pool`."""
        for _ in range(attempts):
            try:
                with _CHANGING:
                    if self._ended:
                        break
                    # Between items, a worker says nothing. What can be read is the end of a dead one's connection.
                    if worker not in self._running or self._running[worker][1].poll():
                        self._running[worker] = _started(self._make_task, worker, self._preload)
                    channel = self._running[worker][1]
                channel.send(item)
                succeeded, result = channel.recv()
            except (EOFError, OSError):  # the worker or the fork server has died, perhaps within a message
                continue
            if succeeded:
                return result
            raise result
        raise WorkerDiedError

    def end(self) -> None:
        """Ends all workers and waits for their end. None can be started any more."""
        with _CHANGING:
            self._ended = True
            for process, _ in self._running.values():
                process.kill()
                process.join()


def _started(make_task: bytes, worker: int, preload: str) -> tuple[Any, Connection]:
    """Returns a new worker and the connection to it, which breaks when the worker ends."""
    context: Any = get_context("forkserver" if sys.platform == "linux" else "spawn")
    context.set_forkserver_preload([preload])
    channel, theirs = context.Pipe()
    arguments = theirs, make_task, worker, dict(os.environ), console.prints()
    process = context.Process(target=_work, args=arguments, daemon=True)
    with _safe_start():
        resource_tracker.ensure_running()  # its first start would let signals through to the process
        with held([signal.SIGINT]):  # the process never receives Ctrl-C; its parent ends it
            process.start()
    theirs.close()  # so that reading fails when the process has ended
    return process, channel


@contextmanager
def _safe_start() -> Iterator[None]:
    """Keeps processes that start in the block from importing modules of the working folder, and socket names short."""
    variable, folder = os.environ.get("PYTHONSAFEPATH"), tempfile.tempdir
    os.environ["PYTHONSAFEPATH"] = "1"
    main = vars(sys.modules["__main__"])
    names: dict[str, Any] = {name: main.pop(name) for name in ("__spec__", "__file__") if name in main}
    main["__spec__"] = None  # so that they do not run the program again
    if len(os.fsencode(tempfile.gettempdir())) > 60:  # the name of a socket has at most 107 bytes
        tempfile.tempdir = "/tmp"
    try:
        yield
    finally:
        main.update(names)
        tempfile.tempdir = folder
        if variable is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = variable


def _work(channel: Connection, make_task: bytes, worker: int, environment: dict[str, str], prints: bool) -> None:
    """Answers every item with (True, result) or (False, error), until the connection is closed or the parent ends."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ.clear()  # that of the fork server may be from another pool
    os.environ.update(environment)
    threads = environment.get("OMP_NUM_THREADS", "")
    if "torch" in sys.modules and threads.isdecimal():
        import torch

        torch.set_num_threads(int(threads))
    task: Callable[[Any], Any] | None = None
    parent_ended = suppress(EOFError, BrokenPipeError, ConnectionResetError)
    with console.printing(prints), parent_ended:
        while True:
            item = channel.recv()
            try:
                task = task or pickle.loads(make_task)(worker)  # here, because it may import torch or load a model
                answer = True, task(item)
            except Exception as error:
                error.add_note("".join(traceback.format_exception(error)))
                answer = False, error
            try:
                channel.send(answer)
            except (pickle.PicklingError, TypeError, AttributeError) as error:
                channel.send((False, RuntimeError(f"{answer[1]!r:.1000} cannot be pickled: {error}")))


def _end_with_parent() -> None:
    """Waits for the end of the parent, and kills this process then."""
    parent = parent_process()
    assert parent
    connection.wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGKILL)
