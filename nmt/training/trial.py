"""Measures how long training updates take."""

import time
from collections.abc import Callable, Iterator
from itertools import islice

from nmt.data.loader import Update
from nmt.training.metrics import Interval
from nmt.training.setup import Setup
from nmt.training.state import TrainState
from nmt.training.update import train_update


def timed_updates(
    setup: Setup,
    state: TrainState,
    stream: Iterator[Update],
    count: int,
    advance: Callable[[int], None] = lambda _: None,
) -> tuple[Interval, float]:
    """Performs the next `count` updates; returns their sums and their time in seconds.

    Args:
        advance: called with 1 after each micro-batch.
    """
    interval, started = Interval(), time.perf_counter()
    for update in islice(stream, count):
        if result := train_update(setup, state, update, advance):
            interval.add(update.batches, *result)
    setup.runtime.wait()
    return interval, time.perf_counter() - started
