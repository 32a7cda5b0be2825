"""Signals that ask training to stop. The first signal is recorded; a second one ends the process at once."""

import os
import signal
import threading
import time
from types import TracebackType
from typing import Self

from nmt import console
from nmt.errors import Interrupted
from nmt.signals import STOPPING, not_ignored

# What a command prints when the first signal arrives.
SAVES_FIRST = "stopping as soon as the state is saved"
SAVES_NOTHING = "stopping; nothing is saved"
# A scheduler may signal every process of a job, and torchrun also forwards its own signal. Signals that follow within
# this time count as one.
_ONE_SIGNAL_SECONDS = 0.5


class StopSignals:
    """A context manager in which a signal does not interrupt the work; the work reads `received` instead.

    A thread listens for signals, because a Python handler would wait for the end of a long backward pass. Python
    delivers signals to the main thread only, so a context that another thread enters receives none.

    Args:
        message: what to print when the first signal arrives, SAVES_FIRST or SAVES_NOTHING.
    """

    def __init__(self, message: str) -> None:
        self._message = message
        self._received: float | None = None

    @property
    def received(self) -> bool:
        """Whether a signal was received."""
        return self._received is not None

    def check(self) -> None:
        """Raises Interrupted if a signal was received."""
        if self.received:
            raise Interrupted

    def __enter__(self) -> Self:
        self._active = threading.current_thread() is threading.main_thread()
        if self._active:
            self._reader, self._writer = os.pipe()
            os.set_blocking(self._writer, False)
            self._wakeup = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
            wanted = not_ignored(STOPPING)
            self._handlers = {number: signal.signal(number, lambda *_: None) for number in wanted}
            threading.Thread(target=self._listen, args=(self._reader,), daemon=True, name="nmt-signals").start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._active:
            signal.set_wakeup_fd(self._wakeup)
            for number, handler in self._handlers.items():
                signal.signal(number, handler)
            os.close(self._writer)  # ends the thread

    def _listen(self, reader: int) -> None:
        while number := os.read(reader, 1):
            if number[0] not in STOPPING:
                continue
            now = time.monotonic()
            if self._received is None:
                self._received = now
                console.info(f"{self._message}; a second signal stops at once")
            elif now - self._received > _ONE_SIGNAL_SECONDS:
                os._exit(128 + number[0])
        os.close(reader)
