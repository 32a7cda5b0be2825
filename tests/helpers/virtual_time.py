"""An event loop whose clock jumps to the next timer as soon as nothing else is left to do.

What happens in it depends on no real clock, and hours take no time. Everything must run in the thread of the loop and
talk through socket pairs, which deliver at once.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any


class _Selector(selectors.DefaultSelector):
    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Returns what is ready. If that is nothing, the time of the next timer comes."""
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "all tasks wait for each other"
            self.now += timeout
        return ready


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _Selector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Makes a test of a coroutine function."""

    @wraps(test)
    def run(**fixtures: Any) -> None:
        with asyncio.Runner(loop_factory=_Loop) as runner:
            runner.run(test(**fixtures))

    return run
