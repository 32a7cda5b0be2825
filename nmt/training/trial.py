"""Updates that are only made to be timed."""

import time
from collections.abc import Iterator
from itertools import islice

from nmt.data.loader import Update
from nmt.training.metrics import Interval
from nmt.training.trainer import Trainer


def timed(trainer: Trainer, stream: Iterator[Update], updates: int) -> tuple[Interval, float]:
    """The next so many updates: their sums, and the seconds they took."""
    interval, started = Interval(), time.perf_counter()
    for update in islice(stream, updates):
        trainer.update(update, interval)
    trainer.runtime.wait()
    return interval, time.perf_counter() - started
