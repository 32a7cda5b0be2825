"""What signals do to the work that they interrupt."""

import os
import signal
from functools import partial

import forks
import pytest

from nmt import signals
from nmt.signals import StopSignals, held


def signal_twice(read_at_once: bool) -> None:
    """Sends two signals to this process, which must have noticed the first one before it receives the second."""
    reader, writer = os.pipe()
    signals._ONE_SIGNAL_SECONDS = 1e9 if read_at_once else -1  # type: ignore[assignment]
    with StopSignals(lambda: os.write(writer, b"noticed")) as stop:
        signal.raise_signal(signal.SIGTERM)
        os.read(reader, 7)
        assert stop.received
        signal.raise_signal(signal.SIGHUP)
        if not read_at_once:
            signal.pause()
    os._exit(0)


@pytest.mark.parametrize(("at_once", "code"), [(True, 0), (False, 128 + signal.SIGHUP)])
def test_a_second_signal_ends_the_process_unless_it_follows_at_once(at_once: bool, code: int) -> None:
    forks.start(instead=partial(signal_twice, at_once)).wait(code)


def test_signals_that_were_held_arrive_later_and_none_stays_blocked() -> None:
    arrived: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: arrived.append(number))
    try:
        with held():
            signal.raise_signal(signal.SIGUSR1)
            assert not arrived
        assert arrived == [signal.SIGUSR1]
        assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())
    finally:
        signal.signal(signal.SIGUSR1, before)
