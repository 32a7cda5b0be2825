"""Where worker processes come from: each is started anew, or all are forked from one process that has loaded a model.

A started worker imports and loads everything itself. Forked workers share the memory of what was loaded before, and
start at once. Workers must not be forked from the main process: they would inherit locks that other threads (the
progress bar's, sentencepiece's) may hold.
"""

import gc
import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any, NoReturn, Protocol, TypeVar

from nmt.resources import one_thread
from nmt.signals import end_with_parent, held

# Applied to chunks in a worker.
Task = Callable[[Any], Any]
# Makes the task of worker n, which counts from 0.
MakeTask = Callable[[int], Task]
_Loaded = TypeVar("_Loaded")

# Forking is safe on Linux only. On macOS, system libraries do not work in forked processes.
CAN_FORK = sys.platform == "linux"
_spawning = get_context("spawn")
# How long a fork server may take to end its workers before it is killed, which ends them too.
_ENDING_SECONDS = 5.0


class OriginDied(Exception):  # noqa: N818 (named after what happened)
    """No worker was started: the fork server has died, perhaps because memory ran out, or the origin has ended."""


class Origin(Protocol):
    """Starts worker processes."""

    def start(self, number: int) -> Connection:
        """Starts worker `number` and returns the connection to it, which breaks when the worker ends.

        The worker receives chunks. It answers each with (True, result) or (False, error).

        Raises:
            OriginDied: another attempt may succeed, unless `end` was called.
            Exception: the system refuses to start a process, or the workers' common memory cannot be loaded.
        """

    def end(self) -> None:
        """Ends all workers, whether they work or not, and waits for their end. None can be started any more."""


class Spawned:
    """Each worker is a new Python process. An `Origin`."""

    def __init__(self, make_task: MakeTask) -> None:
        self._make_task = pickle.dumps(make_task)
        self._changing = threading.Lock()  # held while a process starts, so that `end` meets every process
        self._processes: list[Any] | None = []  # None after the end

    def start(self, number: int) -> Connection:
        """Starts worker `number`; see `Origin`."""
        with self._changing:
            if self._processes is None:
                raise OriginDied
            self._processes = [process for process in self._processes if process.is_alive()]
            process, connection = _spawned(_work_anew, self._make_task, number)
            self._processes.append(process)
            return connection

    def end(self) -> None:
        """Ends all workers; see `Origin`."""
        with self._changing:
            for process in self._processes or []:
                process.kill()
                process.join()
            self._processes = None


class Forked:
    """All workers are forked from one process that has called `load`, the fork server. An `Origin`.

    No other thread of the server runs Python or torch, so that no lock is held when it forks. The server dies with the
    thread whose call of `start` started it.
    """

    def __init__(self, load: Callable[[], MakeTask]) -> None:
        self._load = pickle.dumps(load)
        self._changing = threading.Lock()  # held while the server starts and while it forks
        self._server: Any = None
        self._control: Any = None
        self._has_loaded = self._ended = False

    def start(self, number: int) -> Connection:
        """Starts worker `number`; see `Origin`."""
        connection, theirs = _spawning.Pipe()
        with self._changing, theirs:
            self._ensure_server()
            try:
                self._control.send(number)
                send_handle(self._control, theirs.fileno(), self._server.pid)
                forked, error = self._control.recv()  # comes when the server has loaded and forked
            except (EOFError, OSError) as broken:
                self._end_server()
                raise OriginDied from broken
            if not forked:
                self._end_server()
                raise error
            self._has_loaded = True
            return connection

    def _ensure_server(self) -> None:
        if self._server is not None and not self._server.is_alive():
            self._end_server()
        if self._server is None and not self._ended:
            self._server, self._control = _spawned(_serve, self._load)
        if self._ended:  # `end` may have been called meanwhile, without a server to kill
            raise OriginDied

    def end(self) -> None:
        """Ends all workers; see `Origin`."""
        self._ended = True
        server = self._server
        if server is not None and not self._has_loaded:
            server.kill()  # a thread may wait in `start` until it has loaded
        with self._changing:
            if self._server is not None:
                self._end_server()

    def _end_server(self) -> None:
        self._control.close()  # a server that has loaded then ends its workers and itself
        if self._has_loaded:
            self._server.join(_ENDING_SECONDS)
        self._server.kill()
        self._server.join()
        self._server, self._has_loaded = None, False


def loading(load: Callable[[int], _Loaded], begin: Callable[[_Loaded], Task], *, forks: bool) -> Origin:
    """Returns the origin of workers that load something large, such as a model, and use it.

    Args:
        load: called in worker n with n, which counts from 0. It must be picklable, and so must `begin`.
        begin: makes the task of a worker from what was loaded.
        forks: whether to call `load(0)` once instead, in a process that is forked into the workers.
    """
    return Forked(partial(_load_once, load, begin)) if forks else Spawned(partial(_load_in_worker, load, begin))


def _load_once(load: Callable[[int], _Loaded], begin: Callable[[_Loaded], Task]) -> MakeTask:
    with one_thread():
        loaded = load(0)
    return lambda _: begin(loaded)


def _load_in_worker(load: Callable[[int], _Loaded], begin: Callable[[_Loaded], Task], number: int) -> Task:
    return begin(load(number))


def _spawned(target: Callable[..., None], *arguments: Any) -> tuple[Any, Connection]:
    """Starts a process that calls `target(connection, this process's id, *arguments)`."""
    connection, theirs = _spawning.Pipe()
    process = _spawning.Process(target=target, args=(theirs, os.getpid(), *arguments), daemon=True)
    resource_tracker.ensure_running()  # its first start would let signals through to the process
    with held([signal.SIGINT]):  # the process never receives Ctrl-C; its parent ends it
        process.start()
    theirs.close()  # so that reading fails when the process has ended
    return process, connection


def _work_anew(connection: Connection, parent: int, make_task: bytes, number: int) -> None:
    end_with_parent(signal.SIGKILL, parent)
    # Unpickled here, because that may import torch, which takes seconds.
    _work(connection, lambda: pickle.loads(make_task)(number))


def _serve(control: Connection, parent: int, load: bytes) -> None:
    """Loads once, then forks a worker for each number and connection that arrive, until `control` is closed."""
    end_with_parent(signal.SIGKILL, parent)
    try:
        make_task = pickle.loads(load)()
    except Exception as error:
        control.recv()
        recv_handle(control)
        _answer(control, error)
        return
    gc.freeze()  # collecting garbage would write to the memory that the workers share
    server = os.getpid()
    workers: list[int] = []
    with suppress(EOFError, OSError):
        while True:
            number, handle = control.recv(), recv_handle(control)
            workers = [worker for worker in workers if not os.waitpid(worker, os.WNOHANG)[0]]  # those that live
            worker = os.fork()
            if not worker:
                _work_as_fork(server, Connection(handle), partial(make_task, number))
            os.close(handle)
            workers.append(worker)
            _answer(control, None)
    for worker in workers:  # nobody has waited for them, so no id is that of another process by now
        os.kill(worker, signal.SIGKILL)
        os.waitpid(worker, 0)


def _work_as_fork(server: int, connection: Connection, make_task: Callable[[], Task]) -> NoReturn:
    """Works until the connection is closed, and ends this process without the server's finalisers."""
    try:
        end_with_parent(signal.SIGKILL, server)
        _work(connection, make_task)
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _work(connection: Connection, make_task: Callable[[], Task]) -> None:
    """Answers every chunk, until the connection is closed."""
    task: Task | None = None
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the parent has ended
        while True:
            chunk = connection.recv()
            try:
                task = task or make_task()
                result = task(chunk)
            except Exception as error:
                result = error
            _answer(connection, result)


def _answer(connection: Connection, result: Any) -> None:
    """Sends (True, result), or (False, error) with the traceback in a note."""
    if isinstance(result, Exception):
        result.add_note("".join(traceback.format_exception(result)))
    try:
        connection.send((not isinstance(result, Exception), result))
    except (BrokenPipeError, ConnectionResetError):
        raise
    except Exception as error:  # it cannot be pickled
        connection.send((False, RuntimeError(f"{result!r:.1000}: {error}")))
