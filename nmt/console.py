"""Messages, warnings and progress: commands print them to stderr, and other programs find them in logging.

Outside of a command, messages and warnings go to the logger `nmt` of Python's `logging`.
"""

import errno
import logging
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from textwrap import TextWrapper
from typing import Self
from unicodedata import category

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from nmt.signals import cleaning_up


class _LossyConsole(Console):
    """A console that falls silent where nobody reads it, as in a closed terminal, instead of ending the work."""

    def on_broken_pipe(self) -> None:
        self._discard(is_lost=True)

    def _check_buffer(self) -> None:
        try:
            super()._check_buffer()
        except OSError as error:
            self._discard(is_lost=error.errno == errno.EIO)

    def _discard(self, *, is_lost: bool) -> None:
        """Discards what cannot be written. What Python still held would make the exit code 120."""
        del self._buffer[:]
        with suppress(OSError), open(os.devnull, "w") as nowhere:
            descriptor = self.file.fileno()
            kept = os.dup(descriptor)
            os.dup2(nowhere.fileno(), descriptor)
            self.file.flush()
            if not is_lost:
                os.dup2(kept, descriptor)
            os.close(kept)


stderr = _LossyConsole(stderr=True, highlight=False, soft_wrap=True, emoji=False)

_logger = logging.getLogger("nmt")
_rank = 0
_is_command = False


def prepare_streams() -> None:
    """Makes the standard streams accept any text, independently of the terminal and the locale.

    A closed stream is replaced by /dev/null. If it stayed closed, the next opened file would get its file
    descriptor, and what a library prints would be written into that file.
    """
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115 (never closed)
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (0, 1, 2):
        os.set_inheritable(stream, True)  # for child processes, in which the same could happen
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    sys.stderr.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def finish_output() -> None:
    """Flushes standard output and discards text that cannot be written."""
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError):
            sys.stdout.close()


def speak_as(rank: int) -> None:
    """Sets the rank of this process. Messages that concern all ranks are printed on rank 0 only."""
    global _rank
    _rank = rank


@contextmanager
def printing(is_command: bool = True) -> Iterator[None]:
    """Prints messages and progress in the block, as a command does, if `is_command`."""
    global _is_command
    previous, _is_command = _is_command, is_command
    try:
        yield
    finally:
        _is_command = previous


def prints() -> bool:
    """Returns whether messages are printed rather than logged."""
    return _is_command


def info(message: str) -> None:
    """Prints or logs a message, on rank 0 only."""
    _say(logging.INFO, visible(message, keep="\n"))


def warn(message: str) -> None:
    """Prints a warning as one coloured line, or logs it, on rank 0 only."""
    _say(logging.WARNING, visible(message), "warning: ", "yellow")


def _say(level: int, text: str, prefix: str = "", style: str | None = None) -> None:
    if _rank == 0 and _is_command:
        stderr.print(f"{prefix}{text}", style=style, markup=False, soft_wrap=not (style and stderr.is_terminal))
    elif _rank == 0:
        _logger.log(level, "%s", text)


warn_once, info_once = cache(warn), cache(info)  # print a message, unless this process has printed it before


def error(message: str) -> None:
    """Prints the error line of a failed command."""
    stderr.print(f"error: {visible(message)}", style="bold red", markup=False)


def visible(text: str, keep: str = "") -> str:
    """Returns the text with control characters and invalid UTF-8 escaped, because file names may contain both."""
    shown = "\u200c\u200d" + keep  # joiners, which Persian and Indic text needs
    return "".join(
        c if c.isprintable() or c in shown or category(c) == "Zs" else c.encode("unicode_escape").decode() for c in text
    )


def clock(seconds: float) -> str:
    """Returns a duration in hours, minutes and seconds: `3723.4` becomes `1:02:03`."""
    minutes, rest = divmod(int(max(seconds, 0)), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def filled(text: str, indent: int, first: str = "", width: int = 80) -> str:
    """Returns text in lines of a width. `first` stands before the first line, and `indent` spaces before the others."""
    return TextWrapper(width, first, " " * indent, break_long_words=False, break_on_hyphens=False).fill(text)


def duration(seconds: float) -> str:
    """Returns a duration in its largest unit: `4300` becomes `1.2 hours`."""
    units = (("days", 86_400, 2 * 86_400), ("hours", 3600, 3600), ("minutes", 60, 60))
    name, size = next(((name, size) for name, size, least in units if seconds >= least), ("seconds", 1))
    return f"{seconds / size:,.{1 if seconds < 10 * size else 0}f} {name}"


def counted(count: int, noun: str) -> str:
    """Returns a number with its noun in singular or plural: `1 pair` or `2,000 pairs`."""
    return f"{count:,} {noun if count == 1 else _plural(noun)}"


def _plural(noun: str) -> str:
    return noun + ("es" if noun.endswith("ch") else "s")


def listed(items: Sequence[object], most: int = 5) -> str:
    """Returns the first items, separated by commas, and `…` if there are more."""
    return ", ".join(map(str, items[:most])) + (", …" if len(items) > most else "")


class Progress:
    """The progress of long work: a bar where a command runs on a terminal, and otherwise a line every ten seconds.

    Use it as a context manager and call `advance`.

    Args:
        description: what the bar and the lines begin with. It may change later.
        total: the number of units of work, or None if it is unknown. It may change later.
        unit: what is counted, for example "pair".
        lines: whether to print lines; False is for callers that print their own.
        summary: whether the last line states the total.
        bar: whether to show a bar on a terminal.
    """

    def __init__(
        self, description: str, total: int | None, unit: str, lines: bool = True, summary: bool = True, bar: bool = True
    ) -> None:
        self.description, self.total, self.unit = description, total, unit
        self.completed = self._completed_before = 0
        self._lines, self._summary, self._cleaning_up = lines, lines and summary, ExitStack()
        self._start = self._last_line = time.monotonic()
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn(_plural(unit)))
        times = (TextColumn("{task.fields[rate]}"), TimeElapsedColumn(), TimeRemainingColumn())
        hidden = not (bar and stderr.is_terminal and _rank == 0 and _is_command)
        self._bar = RichProgress(*columns, *times, console=stderr, transient=True, disable=hidden)
        self._task = self._bar.add_task(description, total=total, rate="")

    def __enter__(self) -> Self:
        if not self._bar.disable:
            self._cleaning_up.enter_context(cleaning_up())  # a signal must not leave the cursor hidden
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._bar.stop()
        self._cleaning_up.close()
        done = self.completed - self._completed_before
        if self._summary and kind is None and done:
            elapsed = clock(time.monotonic() - self._start)
            info(f"{self.description}: {counted(done, self.unit)} in {elapsed} ({self._shown_rate})")

    @property
    def _rate(self) -> float:
        """Units per second since the start."""
        return (self.completed - self._completed_before) / max(time.monotonic() - self._start, 1e-9)

    @property
    def _shown_rate(self) -> str:
        return f"{self._rate:,.0f}/s" if self._rate >= 10 else f"{self._rate:.2g}/s"

    @property
    def seconds_left(self) -> float:
        """The estimated remaining time in seconds; 0 if the total is unknown."""
        return (self.total - self.completed) / max(self._rate, 1e-9) if self.total else 0.0

    def begin(self, total: int, completed: int) -> None:
        """Sets the number of units of work, and how many of them were done before the start."""
        self.total = total
        self.completed = self._completed_before = completed
        self._start = time.monotonic()
        self._bar.update(self._task, total=total, completed=completed)

    def advance(self, amount: int) -> None:
        """Counts `amount` more units as done and updates the display."""
        self.completed += amount
        description, total, completed = self.description, self.total, self.completed
        self._bar.update(self._task, description=description, total=total, completed=completed, rate=self._shown_rate)
        if self._bar.disable and self._lines and time.monotonic() - self._last_line >= 10:
            self._last_line = time.monotonic()
            if self.total:
                done = f"{self.completed:,}/{counted(self.total, self.unit)}"
                left = f", {clock(self.seconds_left)} left"
            else:
                done, left = counted(self.completed, self.unit), ""
            info(f"{self.description}: {done} ({self._shown_rate}{left})")
