"""The protocol of a job, and the execution of its shards: in this process, in workers, or on a cluster."""

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import AbstractContextManager, closing, nullcontext
from functools import partial
from typing import Any, NamedTuple, Protocol

from nmt import console
from nmt.config import JobConfig
from nmt.errors import NmtError
from nmt.jobs.folder import JobFolder, Result
from nmt.jobs.plan import Reader, Row, Shard
from nmt.jobs.pool import WorkerDiedError, worker_pool
from nmt.resources import share_cores
from nmt.text.corpus import MaxiBatch


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
    """Records that the processor handles in one call: their numbers in the input, and their encoded form `work`."""

    numbers: Sequence[int]
    records: Sequence[Any]
    work: Any


class Finished(NamedTuple):
    """The results of a batch.

    Attributes:
        maxi_batch: the number of the first record of the maxi-batch that the batch is from.
        results: what the processor returned; None if worker processes died on the batch as often as it was tried.
    """

    maxi_batch: int
    batch: Batch
    results: Any


class Processor(Protocol):
    """What works on batches, for example a loaded model."""

    codec: Any = None

    def __call__(self, work: Any, /) -> Any:
        """Returns the results of a batch."""

    def session(self) -> AbstractContextManager[object]:
        """Returns a context for many calls, in which the processor may keep what all of them need."""
        return nullcontext()


class Job(Protocol):
    """Work on records. Pickled for worker processes and for other machines.

    A class that inherits from it needs neither a GPU nor files nor a codec, unless it says so.
    """

    @property
    def device(self) -> str:
        """`cuda` or `cpu`: whether a worker needs a GPU."""
        return "cpu"

    @property
    def models(self) -> tuple[str, ...]:
        """The files that `load` needs."""
        return ()

    def load(self, models: Sequence[str], process: int) -> Processor:
        """Loads the processor from `models` or copies of them; see `nmt.model.device.set_up` for `process`."""

    def codec(self) -> Any:
        """Returns the `codec` of the processor without loading the rest."""
        return None

    def record(self, row: Row, place: Place) -> Any:
        """Returns the record of a row. Raises NmtError, naming the place, if the row is wrong."""

    def batched(self, codec: Any, records: Sequence[Any], first_number: int) -> Iterator[Batch]:
        """Yields the batches of a maxi-batch. Its first record has the number `first_number`.

        Each record is in exactly one batch.
        """

    def result(self, finished: Sequence[Finished]) -> Result:
        """Returns the result of a shard, whose batches finished in any order."""


class LineJob(Job, Protocol):
    """Work that makes text of each line."""

    def output(self, record: Any, result: Any) -> tuple[str, dict[str, Any]]:
        """Returns the text of a line, which ends in a line break, and values for `add_up` over all lines."""


def result_of_lines(job: LineJob, finished: Sequence[Finished]) -> Result:
    """Returns the result of a shard of a job that makes text of each line."""
    outputs = {
        number: job.output(record, result)
        for _, batch, results in finished
        for number, record, result in zip(batch.numbers, batch.records, results, strict=True)
    }
    in_order = [outputs[number] for number in sorted(outputs)]
    summary: dict[str, Any] = {}
    for _, values in in_order:
        add_up(summary, values)
    return Result("".join(text for text, _ in in_order).encode(errors="replace"), summary)


def add_up(total: dict[str, Any], values: dict[str, Any]) -> None:
    """Adds numbers to the total of each name. A name whose values are texts keeps the first one."""
    for name, value in values.items():
        total[name] = total.get(name, value) if isinstance(value, str) else total.get(name, 0) + value


# Most lines that are sorted by length together if the job has no shards, and the most lines of a default shard.
MAXI_BATCH = 8192
# With two maxi-batches in flight, idle workers begin the next one while the last batch of the other is running.
_MAXI_BATCHES_IN_FLIGHT = 2
# How often a batch or a shard is tried if what works on it dies.
ATTEMPTS = 3


# Returns the next maxi-batch, or None after the last one. If no record has arrived and `wait` is false, it returns a
# maxi-batch without records.
Take = Callable[..., MaxiBatch[Any] | None]


class Outcome(NamedTuple):
    """What became of a shard."""

    shard: Shard
    result: Result | None
    failure: str | None = None


def do_maxi_batches(job: Job, take: Take, workers: int) -> Generator[Finished, None, None]:
    """Yields all batches as they finish, in any order."""
    if workers == 1:
        processor = job.load(job.models, 0)
        with processor.session():
            while maxi_batch := take(wait=True):
                yield from do_maxi_batch(job, processor, maxi_batch)
        return
    share_cores(workers)
    codec = job.codec()
    in_flight: dict[Future[Any], tuple[int, Batch]] = {}
    with worker_pool(partial(_loaded, job), workers, ATTEMPTS, preload=type(job).__module__) as submit:
        while True:
            while len({first_number for first_number, _ in in_flight.values()}) < _MAXI_BATCHES_IN_FLIGHT:
                maxi_batch = take(wait=not in_flight)
                if not maxi_batch or not maxi_batch.records:
                    break
                for batch in job.batched(codec, maxi_batch.records, maxi_batch.first_number):
                    in_flight[submit(batch.work)] = maxi_batch.first_number, batch
            if not in_flight:
                return
            for future in wait(in_flight, return_when=FIRST_COMPLETED).done:
                died = isinstance(future.exception(), WorkerDiedError)
                yield Finished(*in_flight.pop(future), None if died else future.result())


def do_maxi_batch(job: Job, processor: Processor, maxi_batch: MaxiBatch[Any]) -> Iterator[Finished]:
    """Yields the batches of a maxi-batch as this process finishes them."""
    for batch in job.batched(processor.codec, maxi_batch.records, maxi_batch.first_number):
        yield Finished(maxi_batch.first_number, batch, processor(batch.work))


def _loaded(job: Job, number: int) -> Processor:
    processor = job.load(job.models, number)
    processor.session().__enter__()  # until the process ends
    return processor


def _death_message(numbers: Sequence[int]) -> str:
    """Returns the sentence about a batch that worker processes died on, for an error or a warning."""
    return (
        f"{ATTEMPTS} worker processes died on lines {console.listed(sorted(numbers))}, perhaps because memory ran out; "
        f"try fewer --workers, a smaller --batch-tokens if the command has it, or take these lines out"
    )


def in_line_order(
    finished: Iterable[Finished], advance: Callable[[int], None] = lambda _: None
) -> Iterator[tuple[Any, Any]]:
    """Yields the record and the result of each line, in the order of the input and as early as this order allows.

    Args:
        advance: called after each batch with the number of lines it held.

    Raises:
        NmtError: worker processes died on a batch as often as it was tried.
    """
    waiting: dict[int, tuple[Any, Any]] = {}
    number = 1
    for _, batch, results in finished:
        if results is None:
            raise NmtError(_death_message(batch.numbers))
        advance(len(batch.numbers))
        waiting.update(zip(batch.numbers, zip(batch.records, results, strict=True), strict=True))
        while number in waiting:
            yield waiting.pop(number)
            number += 1


def maxi_batch_of(job: Job, shard: Shard, file: str, rows: Sequence[Row]) -> MaxiBatch[Any]:
    """Returns the records of a shard as a maxi-batch. `file` is the name of its file in messages."""
    numbered = enumerate(rows, start=shard.start + 1)
    return MaxiBatch(shard.first, [job.record(row, Place(file, line, shard.segment)) for line, row in numbered])


def do_shards(
    job: Job, segments: Sequence[Sequence[str]], todo: Sequence[Shard], workers: int, advance: Callable[[int], None]
) -> Generator[Outcome, None, None]:
    """Yields the outcome of each shard as it finishes. Each shard is one maxi-batch."""
    shards, reader = {shard.first: shard for shard in todo}, Reader(segments)
    maxi_batches = (maxi_batch_of(job, shard, segments[shard.segment][0], reader.read(shard)) for shard in todo)
    parts: dict[int, list[Finished]] = defaultdict(list)
    with closing(do_maxi_batches(job, lambda **_: next(maxi_batches, None), workers)) as batches:
        for finished in batches:
            advance(len(finished.batch.numbers))
            part, shard = parts[finished.maxi_batch], shards[finished.maxi_batch]
            part.append(finished)
            if sum(len(done.batch.numbers) for done in part) == shard.rows:
                del parts[finished.maxi_batch]
                fatal = next((done.batch for done in part if done.results is None), None)
                if fatal:
                    lines = [number - shard.first + shard.start + 1 for number in fatal.numbers]
                    yield Outcome(shard, None, _death_message(lines))
                else:
                    yield Outcome(shard, job.result(part))


def finish_shards(
    job: Job, folder: JobFolder, options: JobConfig, workers: int | None, progress: console.Progress
) -> None:
    """Does all shards of the job that are not finished, or those of the part that --shard names."""
    part, parts = options.part
    todo = folder.todo(part, parts)
    of_part = sum(shard.rows for shard in folder.plan.shards[part::parts])
    progress.begin(of_part, of_part - sum(shard.rows for shard in todo))
    if progress.completed:
        console.info(f"resuming after {progress.completed:,} of {console.counted(of_part, progress.unit)}")
    if options.shard:
        console.info(f"{options.shard}: {len(todo):,} of {console.counted(len(folder.plan.shards), 'shard')} to do")
    if not todo:
        return
    failures = []
    if options.cluster:
        from nmt.jobs.ray import do_on_cluster

        done = do_on_cluster(job, folder, todo, options, workers, progress)
    else:
        done = do_shards(job, folder.plan.paths, todo, workers or 1, progress.advance)
    with closing(done) as outcomes:
        for outcome in outcomes:
            if outcome.failure:
                failures.append(outcome)
                console.warn(f"{folder.plan.named(outcome.shard)} failed: {outcome.failure}; the rest goes on")
            elif outcome.result:
                folder.add(outcome.shard, outcome.result)
    folder.check_input()
    if failures:
        raise NmtError(_failed(folder, failures))


def _failed(folder: JobFolder, failures: list[Outcome]) -> str:
    """Returns the sentence about a job of which some shards failed."""
    named = console.listed([folder.plan.named(outcome.shard) for outcome in failures], 3)
    return (
        f"{len(failures):,} of {console.counted(len(folder.plan.shards), 'shard')} failed ({named}: "
        f"{failures[0].failure}); the others are kept in {folder.path}, and the same command does only these again"
    )
