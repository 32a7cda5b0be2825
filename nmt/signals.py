"""Defines how commands end when they receive a signal, or when the process that started them ends.

command                              first signal                                     second signal
train                                saves its state; exit code 75                    ends at once; 128 + n
train --gpus N                       passes it on to the ranks, ends as they do       the same
preprocess, clean, job to --output   keeps the finished shards; exit code 75          ends at once; 128 + n
serve (SIGINT, SIGTERM)              answers the requests in flight; exit code 0      ends at once
any other command                    ends at once, or cleans up first; 128 + n        ends at once; 128 + n

On Linux, a rank gets SIGTERM when its launcher ends. A worker ends when its parent ends. Ctrl-C does not reach
workers; their parent ends them.
"""

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn, Self

from nmt.errors import INTERRUPTED_EXIT_CODE, StoppedError

# SIGINT is sent by Ctrl-C, SIGTERM by a scheduler or `kill`, SIGHUP by a terminal that is closed, and SIGUSR1 by a
# scheduler that announces the end of a job.
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
# A scheduler may signal every process of a job, and a launcher passes its own signal on. Signals that follow
# within this time count as one.
_ONE_SIGNAL_SECONDS = 0.5
# The longest wait of a main thread. A signal that arrives just before a wait does not interrupt it, and Python runs
# the handler after the wait.
WAIT_SECONDS = 1.0
_replaced: list[dict[signal.Signals, Any]] = []  # the handlers in whose place blocks of `cleaning_up` have their own


def end_without_traceback() -> None:
    """Makes Ctrl-C end this process at once, as other signals do, instead of raising KeyboardInterrupt."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def end_resumably() -> None:
    """Makes signals end this process with INTERRUPTED_EXIT_CODE.

    `__main__` calls this before it imports a command that can be resumed. When the work begins, training installs
    its own handlers, and other commands call `end_as_usual`.
    """
    for signum in not_ignored(STOPPING):
        signal.signal(signum, _end_resumably)


def end_as_usual() -> None:
    """Makes signals end this process in the usual way again, after `end_resumably`."""
    for signum in STOPPING:
        if signal.getsignal(signum) is _end_resumably:
            signal.signal(signum, signal.SIG_DFL)
    for handlers in _replaced:  # those that blocks of `cleaning_up` around this call restore
        handlers.update({s: signal.SIG_DFL for s, handler in handlers.items() if handler is _end_resumably})


def not_ignored(signums: tuple[signal.Signals, ...]) -> list[signal.Signals]:
    """Returns the given signals that this process does not ignore. For example, nohup makes it ignore SIGHUP."""
    return [signum for signum in signums if signal.getsignal(signum) is not signal.SIG_IGN]


@contextmanager
def cleaning_up() -> Iterator[None]:
    """Makes a signal that would end the process raise SystemExit in the block, so that `finally` clauses run."""
    caught = STOPPING if threading.current_thread() is threading.main_thread() else ()
    previous = {signum: signal.getsignal(signum) for signum in caught}
    handlers = {signum: handler for signum, handler in previous.items() if handler in (signal.SIG_DFL, _end_resumably)}
    _replaced.append(handlers)

    def restore() -> None:
        for signum, handler in handlers.items():
            signal.signal(signum, handler)

    def end(signum: int, _: FrameType | None) -> NoReturn:
        is_resumable = handlers[signal.Signals(signum)] is _end_resumably
        restore()
        if is_resumable:
            _announce()
        raise SystemExit(INTERRUPTED_EXIT_CODE if is_resumable else 128 + signum)

    for signum in handlers:
        signal.signal(signum, end)
    try:
        yield
    finally:
        restore()
        _replaced.remove(handlers)


@contextmanager
def held(signums: Iterable[signal.Signals] = STOPPING) -> Iterator[None]:
    """Delays signals until the block ends. Processes that this thread starts within it never receive them."""
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, signums)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


class StopSignals:
    """A context manager in which a signal does not interrupt the work; the work reads `received` instead.

    A thread listens for signals, because a Python handler would wait for the end of a long backward pass. Python
    delivers signals to the main thread only, so a context that another thread enters receives none.
    """

    def __init__(self, announce: Callable[[], None]) -> None:
        self.received, self._announce = False, announce

    def check(self) -> None:
        """Raises StoppedError if a signal was received."""
        if self.received:
            raise StoppedError

    def __enter__(self) -> Self:
        self._active = threading.current_thread() is threading.main_thread()
        if self._active:
            reader, self._writer = os.pipe()
            os.set_blocking(self._writer, False)
            self._wakeup = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
            self._handlers = {signum: signal.signal(signum, lambda *_: None) for signum in not_ignored(STOPPING)}
            self._listener = threading.Thread(target=self._listen, args=(reader,), daemon=True, name="nmt-signals")
            self._listener.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._active:
            signal.set_wakeup_fd(self._wakeup)
            for signum, handler in self._handlers.items():
                signal.signal(signum, handler)
            os.close(self._writer)
            self._listener.join()  # it ends when it has seen all signals

    def _listen(self, reader: int) -> None:
        first = 0.0
        while signum := os.read(reader, 1):
            if signum[0] not in STOPPING:
                continue
            if not self.received:
                self.received, first = True, time.monotonic()
                self._announce()
            elif time.monotonic() - first > _ONE_SIGNAL_SECONDS:
                if os.isatty(2):
                    _tell(b"\x1b[?25h\n")  # a bar hides the cursor
                os._exit(128 + signum[0])
        os.close(reader)


def end_with_parent(signum: signal.Signals) -> None:
    """Makes Linux send this process a signal when the thread that started it ends.

    Other systems cannot do this. There, ranks end when they find that a connection between them is broken.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signum)  # PR_SET_PDEATHSIG of <sys/prctl.h>


def _end_resumably(_: int, __: FrameType | None) -> NoReturn:
    _announce()
    os._exit(INTERRUPTED_EXIT_CODE)


def _announce() -> None:
    if os.environ.get("RANK", "0") == "0":  # only one of several ranks prints the message
        _tell(b"stopped; start the same command again\n")


def _tell(message: bytes) -> None:
    with suppress(OSError):  # the terminal may be closed
        os.write(2, message)
