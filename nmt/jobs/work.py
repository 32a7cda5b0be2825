"""What a job must say of its work: how rows become records and batches, who works on a batch, and what comes out."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, Self

from nmt.jobs.plan import Row
from nmt.jobs.results import Result


class Place(NamedTuple):
    """Where a row is from.

    Attributes:
        file: what messages call the file.
        line: the number of the line in the file, from 1.
        segment: the number of the segment, from 0.
    """

    file: str
    line: int
    segment: int = 0

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}"


class Batch(NamedTuple):
    """Records that are worked on together: their numbers in the input, themselves, and what the processor gets."""

    numbers: Sequence[int]
    records: Sequence[Any]
    work: Any


class Finished(NamedTuple):
    """The results of a batch.

    Attributes:
        window: the number of the first record of the window that the batch is from.
        results: what the processor returned; None if worker processes died on the batch as often as it was tried.
    """

    window: int
    batch: Batch
    results: Any


class Processor(Protocol):
    """What works on batches, for example a loaded model."""

    codec: Any

    def __call__(self, work: Any, /) -> Any:
        """Returns the results of a batch."""

    def session(self) -> AbstractContextManager[object]:
        """Returns a context for many calls, within which converted weights are kept."""


class Job(Protocol):
    """Work on records. Pickled for worker processes and for other machines."""

    @property
    def device(self) -> str:
        """`cuda` or `cpu`; `auto` if nothing depends on it."""

    @property
    def models(self) -> tuple[str, ...]:
        """The files that `load` reads."""

    def with_models(self, paths: tuple[str, ...]) -> Self:
        """Returns the same job with copies of its files."""

    def load(self, process: int) -> Processor:
        """Loads the processor; on GPU number `process` if there are several."""

    def codec(self) -> Any:
        """Returns the `codec` of the processor without loading the rest."""

    def record(self, row: Row, place: Place) -> Any:
        """Returns the record of a row. Raises NmtError, naming the place, if the row is wrong."""

    def batched(self, codec: Any, records: Sequence[Any], first_number: int) -> Iterator[Batch]:
        """Yields the batches of a window, of which record 0 has this number. Each record is in one batch."""

    def result(self, finished: Sequence[Finished]) -> Result:
        """Returns the result of a shard, whose batches finished in any order."""


class LineJob(Job, Protocol):
    """Work that makes text of each line."""

    def output(self, record: Any, result: Any) -> tuple[str, dict[str, float]]:
        """Returns the text of a line, which ends in a line break, and values that are added up over all lines."""


def result_of_lines(job: LineJob, finished: Sequence[Finished]) -> Result:
    """Returns the result of a shard of a job that makes text of each line."""
    outputs = {
        number: job.output(record, result)
        for _, batch, results in finished
        for number, record, result in zip(batch.numbers, batch.records, results, strict=True)
    }
    in_order = [outputs[number] for number in sorted(outputs)]
    summary: dict[str, float] = {}
    for _, values in in_order:
        add_up(summary, values)
    return Result("".join(text for text, _ in in_order).encode(errors="replace"), summary)


def add_up(total: dict[str, float], values: dict[str, float]) -> None:
    """Adds values to the total of each name."""
    for name, value in values.items():
        total[name] = total.get(name, 0) + value
