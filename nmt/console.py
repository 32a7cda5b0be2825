"""What the user sees while work is going on, all of it on stderr: lines, warnings, progress."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

_PLAIN_LINE_SECONDS = 10.0

stderr = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)


_rank = 0


def speak_as(rank: int) -> None:
    """Of several processes that do one work, only rank 0 tells of it, unless it is about another rank alone."""
    global _rank
    _rank = rank


def info(message: str) -> None:
    """One plain line."""
    if _rank == 0:
        stderr.print(message, markup=False)


def warn(message: str, *, from_any_rank: bool = False) -> None:
    """One line that stands out."""
    if _rank == 0 or from_any_rank:
        speaker = f"rank {_rank}: " if _rank else ""
        stderr.print(f"{speaker}warning: {message}", style="yellow", markup=False)


def error(message: str) -> None:
    """The line a failed command ends with."""
    stderr.print(f"error: {message}", style="bold red", markup=False)


def clock(seconds: float) -> str:
    """`3723.4` -> `1:02:03`."""
    minutes, rest = divmod(int(max(seconds, 0)), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


class Progress:
    """Progress of long work: a bar with rate and time left on a terminal, a line now and then elsewhere.

    Use as a context manager and call `advance`. `total=None` is for work of unknown size; `lines=False` leaves the
    lines out, for work that prints its own, and `bar=False` the bar.
    """

    def __init__(
        self,
        description: str,
        total: int | None,
        unit: str,
        *,
        completed: int = 0,
        lines: bool = True,
        bar: bool = True,
    ) -> None:
        self.description, self.total, self.unit, self.completed = description, total, unit, completed
        self._lines = lines
        self._first, self._start, self._last_line = completed, time.monotonic(), time.monotonic()
        self._bar: RichProgress | None = None
        if bar and stderr.is_terminal and _rank == 0:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[unit]}"),
            )
            times = (TextColumn("{task.fields[rate]}"), TimeElapsedColumn(), TimeRemainingColumn())
            self._bar = RichProgress(*columns, *times, console=stderr, transient=True)
            self._task = self._bar.add_task(description, total=total, completed=completed, unit=unit, rate="")

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()
        if self._lines and kind is None and self.completed > self._first:
            elapsed = time.monotonic() - self._start
            done = self.completed - self._first
            info(f"{self.description}: {done:,} {self.unit} in {clock(elapsed)} ({self.rate:,.0f}/s)")

    @property
    def rate(self) -> float:
        """Units a second since the start."""
        return (self.completed - self._first) / max(time.monotonic() - self._start, 1e-9)

    @property
    def seconds_left(self) -> float:
        return (self.total - self.completed) / max(self.rate, 1e-9) if self.total else 0.0

    def advance(self, amount: int) -> None:
        self.completed += amount
        if self._bar:
            self._bar.update(self._task, completed=self.completed, rate=f"{self.rate:,.0f}/s")
        elif self._lines and time.monotonic() - self._last_line >= _PLAIN_LINE_SECONDS:
            self._last_line = time.monotonic()
            of, left = (f"/{self.total:,}", f", {clock(self.seconds_left)} left") if self.total else ("", "")
            info(f"{self.description}: {self.completed:,}{of} {self.unit} ({self.rate:,.0f}/s{left})")
