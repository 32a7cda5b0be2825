"""A stream of raw text through a translator, or through several in processes of their own."""

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

# Lines of a worker that are sorted by length together: many, for full batches, but few enough to bound memory.
_LINES_AT_ONCE = 8192


class Translated(NamedTuple):
    source: str
    hypotheses: list[Hypothesis]


class _Share(NamedTuple):
    """Lines for a worker, and the numbers they have in the input."""

    lines: list[str]
    numbers: list[int]


@dataclass(frozen=True)
class TranslationJob:
    """Attributes:
    checkpoints: of a model, or of an ensemble's.
    search, runtime: how, and where.
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
        """Translates line by line, in order, `lines_at_once` (8192 a worker if not given) sorted by length together.

        `advance` is told now and then how many sentences were done.

        Every worker is a process with a model of its own, on its own GPU where there are several; one worker is this
        very process.

        Raises:
            NmtError: as `Translator.load` and the input do, or if a worker dies.
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
    """Windows of the input, dealt out to as many shares as there are workers, lines of all lengths to each."""
    for first in count(1, lines_at_once):
        window = list(islice(lines, lines_at_once))
        if not window:
            return
        by_length = sorted(range(len(window)), key=lambda i: len(window[i])) if workers > 1 else range(len(window))
        for w in range(workers):
            dealt = by_length[w::workers]
            yield _Share([window[i] for i in dealt], [first + i for i in dealt])


class _Worker:
    """Translates shares in a worker process; loads the model with the first, so that an error reaches the parent."""

    def __init__(self, job: TranslationJob, number: int) -> None:
        self.job, self.number = job, number
        self.translator: Translator | None = None

    def __call__(self, share: _Share) -> list[tuple[int, Translated]]:
        if self.translator is None:
            self.translator = Translator.load(*self.job.checkpoints, runtime=self.job.runtime, process=self.number)
        hypotheses = self.translator.hypotheses(share.lines, self.job.search, line_numbers=share.numbers)
        return list(zip(share.numbers, map(Translated, share.lines, hypotheses), strict=True))
