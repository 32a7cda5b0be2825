"""Defines how a command reacts to signals.

By default, a signal ends a command at once, without a traceback. Work that must clean up (a partial file, worker
processes, a hidden cursor) runs within `cleaning_up`. Training saves its state before it ends; see
`nmt.training.interrupts`.
"""

import os
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from nmt.errors import INTERRUPTED_EXIT_CODE

# SIGINT is sent by Ctrl-C, SIGTERM by a scheduler or `kill`, SIGHUP by a terminal that is closed, and SIGUSR1 by a
# scheduler that announces the end of a job.
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


def end_without_traceback() -> None:
    """Makes Ctrl-C end this process at once, as other signals do, instead of raising KeyboardInterrupt."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def end_resumably() -> None:
    """Makes signals end this process with INTERRUPTED_EXIT_CODE.

    A command that can be resumed calls this first. When its work begins, training installs its own handlers, and other
    commands call `end_as_usual`.
    """
    for number in not_ignored(STOPPING):
        signal.signal(number, _end_resumably)


def end_as_usual() -> None:
    """Undoes `end_resumably`."""
    _restore([number for number in STOPPING if signal.getsignal(number) is _end_resumably])


def not_ignored(numbers: tuple[signal.Signals, ...]) -> list[signal.Signals]:
    """Returns the given signals that this process does not ignore. For example, nohup makes it ignore SIGHUP."""
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


@contextmanager
def cleaning_up() -> Iterator[None]:
    """Makes a signal that would end the process raise SystemExit in the block, so that `finally` clauses run.

    A second signal ends the process at once. Outside the main thread, signals have their usual effect.
    """
    caught = STOPPING if threading.current_thread() is threading.main_thread() else ()
    handled = [number for number in caught if signal.getsignal(number) is signal.SIG_DFL]
    for number in handled:
        signal.signal(number, _exit)
    try:
        yield
    finally:
        _restore(handled)


@contextmanager
def held(numbers: Iterable[signal.Signals] = STOPPING) -> Iterator[None]:
    """Delays signals until the block ends. Processes that this thread starts within it never receive them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _exit(number: int, _: FrameType | None) -> NoReturn:
    _restore([ending for ending in STOPPING if signal.getsignal(ending) is _exit])
    raise SystemExit(128 + number)


def _restore(numbers: list[signal.Signals]) -> None:
    for number in numbers:
        signal.signal(number, signal.SIG_DFL)


def _end_resumably(_: int, __: FrameType | None) -> NoReturn:
    if os.environ.get("RANK", "0") == "0":  # only one of several ranks prints the message
        os.write(2, b"stopped; start the same command again\n")
    os._exit(INTERRUPTED_EXIT_CODE)
