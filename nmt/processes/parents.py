"""Makes processes end when the process that started them ends."""

import ctypes
import os
import signal
import threading
import time

_CHECK_SECONDS = 0.2
# Environment variable with the id of the process that started a command. The command ends when that process ends.
_STARTER = "NMT_STARTED_BY"
# <sys/prctl.h>
_SET_DEATH_SIGNAL = 1


def started_by_this() -> dict[str, str]:
    """Returns environment variables that make an `nmt` command end when this process ends."""
    return {_STARTER: str(os.getpid())}


def end_with_starter() -> None:
    """Makes this process end with its parent if it is a rank or has the variables of `started_by_this`."""
    starter = os.environ.pop(_STARTER, None)
    if starter or "RANK" in os.environ:
        end_with(int(starter) if starter else os.getppid())


def end_with(parent: int) -> None:
    """Sends SIGTERM to this process as soon as `parent` is no longer its parent."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_CHECK_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True, name="nmt-parent").start()


def die_with(parent: int) -> None:
    """Makes Linux kill this process when the thread of `parent` that started it ends. Needs no thread of its own."""
    ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the call
        os._exit(1)
