"""Translates a stream of raw text, in this process or in several workers."""

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain, count, islice
from operator import itemgetter
from typing import NamedTuple

from nmt.config import RuntimeConfig, SearchConfig
from nmt.decoding.translator import Hypothesis, Translator
from nmt.processes import in_order
from nmt.resources import share_cores

# Lines of a worker that are sorted by length together: enough for full batches, few enough to bound memory.
_LINES_AT_ONCE = 8192


class Translated(NamedTuple):
    source: str
    hypotheses: list[Hypothesis]


class _Share(NamedTuple):
    """Lines for a worker, and their numbers in the input."""

    lines: list[str]
    numbers: list[int]


@dataclass(frozen=True)
class TranslationJob:
    """Which model translates, how it searches and where it runs.

    Attributes:
        checkpoints: the file of a model, or the files of an ensemble.
    """

    checkpoints: tuple[str, ...]
    search: SearchConfig
    runtime: RuntimeConfig

    def stream(
        self,
        lines: Iterator[str],
        workers: int,
        advance: Callable[[int], None] = lambda _: None,
        lines_at_once: int | None = None,
    ) -> Generator[Translated, None, None]:
        """Yields the translations of all lines, in order.

        Each worker is a process with its own copy of the model, on its own GPU if there are several. One worker is this
        very process.

        Args:
            advance: called from time to time with the number of sentences translated since the last call.
            lines_at_once: lines that are sorted by length together; 8192 for each worker if not given.

        Raises:
            NmtError: a checkpoint or the input cannot be read, or a worker dies.
        """
        shares = _shares(lines, workers, lines_at_once or _LINES_AT_ONCE * workers)
        if workers == 1:
            yield from self._alone(shares, advance)
            return
        share_cores(workers)
        with closing(in_order(partial(_Worker, self), shares, workers)) as parts:
            while window := list(islice(parts, workers)):
                advance(sum(map(len, window)))
                yield from (translated for _, translated in sorted(chain.from_iterable(window), key=itemgetter(0)))

    def _alone(self, shares: Iterator[_Share], advance: Callable[[int], None]) -> Iterator[Translated]:
        translator = Translator.load(*self.checkpoints, runtime=self.runtime)
        for share in shares:
            hypotheses = translator.hypotheses(share.lines, self.search, advance, share.numbers)
            yield from map(Translated, share.lines, hypotheses)


def _shares(lines: Iterator[str], workers: int, lines_at_once: int) -> Iterator[_Share]:
    """Deals windows of the input out to the workers. Each share has lines of all lengths."""
    for first in count(1, lines_at_once):
        window = list(islice(lines, lines_at_once))
        if not window:
            return
        by_length = sorted(range(len(window)), key=lambda i: len(window[i])) if workers > 1 else range(len(window))
        for w in range(workers):
            dealt = by_length[w::workers]
            yield _Share([window[i] for i in dealt], [first + i for i in dealt])


class _Worker:
    """Translates shares in a worker process. Loading the model with the first share lets errors reach the parent."""

    def __init__(self, job: TranslationJob, number: int) -> None:
        self.job, self.number = job, number
        self.translator: Translator | None = None

    def __call__(self, share: _Share) -> list[tuple[int, Translated]]:
        if self.translator is None:
            self.translator = Translator.load(*self.job.checkpoints, runtime=self.job.runtime, process=self.number)
        hypotheses = self.translator.hypotheses(share.lines, self.job.search, line_numbers=share.numbers)
        return list(zip(share.numbers, map(Translated, share.lines, hypotheses), strict=True))
