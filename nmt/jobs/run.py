"""Runs a job on its input: as a stream, or shard by shard in a folder from which interrupted work resumes."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import starmap
from typing import Any

from nmt import console
from nmt.config import JobConfig
from nmt.errors import NmtError
from nmt.files import STDIO, digest_of, is_replaceable, output_file, refuse_inputs
from nmt.jobs.folder import JobFolder, job_folder
from nmt.jobs.source import CHUNK_UNITS, Source, chunks_of
from nmt.jobs.stream import Chunk, Execution, Job, Outcome, ReadyChunks, in_order
from nmt.signals import end_as_usual

# On a CPU, lines of a shard times bytes of the model are at most this: less than a minute of work on two cores.
_CPU_SHARD = 10**11


@dataclass(frozen=True)
class Run:
    """A job with its input, its output, and what computes it.

    Attributes:
        output: a file, or `-` for standard output.
        settings: what the output depends on besides the input and the models, by name. A job is resumed only if they
            are the same.
        is_resumable: whether the results of finished shards are kept, so that the same command resumes the job.
    """

    job: Job
    source: Source
    output: str
    settings: Mapping[str, Any]
    execution: Execution
    progress: console.Progress
    is_resumable: bool = True

    @contextmanager
    def records(self) -> Iterator[Iterator[Any] | None]:
        """Yields the records of all units in order; None with --shard, which does only a part of the work.

        If the job is resumable, it is finished when the block, which writes the output, has succeeded.

        Raises:
            StoppedError: a signal asked the process to end, and the same command resumes the job.
        """
        job, options = self.job, self.execution.options
        if not self.is_resumable:
            end_as_usual()
            chunks = chunks_of(self.source, job.unit)
            with closing(self.execution.executor(job, chunks, self.execution.workers, self.progress)) as outcomes:
                yield in_order(outcomes)
            return
        refuse_inputs(self.output, [*self.source.paths, *job.models], f"--output {self.output}")
        models = {f"checkpoint {i}": f"SHA-256 {digest_of(path)[:16]}…" for i, path in enumerate(job.models, 1)}
        size = sum(os.path.getsize(path) for path in job.models)
        rows = CHUNK_UNITS if job.device == "cuda" else min(CHUNK_UNITS, max(1, _CPU_SHARD // max(size, 1)))
        settings = models | dict(self.settings)
        with job_folder(self.output, "--output", self.source, options, shard_rows=rows, settings=settings) as folder:
            if not options.merge:
                finish_shards(job, folder, self.execution, self.progress)
            if options.shard:
                yield None
                return
            yield (record for _, result in folder.results() for record in result.values)
            folder.finish()  # from here on, it ends without an error if a signal comes

    def write(self, text: Callable[[Any], str]) -> bool:
        """Writes the text of each record to the output. Returns whether there is one: with --shard, there is none."""
        inputs, advice = [*self.source.paths, *self.job.models], None
        if self.is_resumable:
            path = os.path.realpath(self.output)
            if not os.path.isdir(os.path.dirname(path)):
                with output_file(self.output):  # says that the folder is missing
                    pass
            advice = f"correct that and start the same command again; what is finished stays in {path}.unfinished"
        with self.records() as records:
            if records is not None:
                with output_file(self.output, inputs, advice=advice) as out:
                    for record in records:
                        out.write(text(record))
                        if not self.is_resumable:
                            out.flush()  # whoever waits for the answer to a line gets it now
        return records is not None


def check_files(inputs: Sequence[str], output: str, options: JobConfig) -> bool:
    """Returns whether work on these files is a job with shards, because all are regular files.

    Raises:
        NmtError: an option needs a job with shards, but these files allow none.
    """
    from_files = STDIO not in inputs and all(map(os.path.isfile, inputs))
    if from_files and output not in ("", STDIO) and is_replaceable(output):
        return True
    if options.needs_shards:
        missing = next((path for path in inputs if path != STDIO and not os.path.exists(path)), None)
        if missing:
            raise NmtError(f"{missing} does not exist; check the path")
        raise NmtError(f"{options.needs_shards} needs files as input and as --output; give the names of files")
    return False


def finish_shards(job: Job, folder: JobFolder, execution: Execution, progress: console.Progress) -> None:
    """Does all shards of the job that are not finished, or those of the part that --shard names."""
    options = execution.options
    part, parts = options.part
    todo = folder.todo(part, parts)
    rows = sum(shard.rows for shard in folder.plan.shards[part::parts])
    progress.begin(rows, rows - sum(shard.rows for shard in todo))
    if progress.completed:
        console.info(f"resuming after {progress.completed:,} of {console.counted(rows, progress.unit)}")
    if options.shard:
        console.info(f"{options.shard}: {len(todo):,} of {console.counted(len(folder.plan.shards), 'shard')} to do")
    if not todo:
        return
    shards = {shard.first: shard for shard in todo}
    failures: list[Outcome] = []
    chunks = (
        Chunk(shard.first, list(starmap(job.unit, folder.source.read(shard))), shard.first - shard.start - 1)
        for shard in todo
    )
    with closing(execution.executor(job, ReadyChunks(chunks, len(todo)), execution.workers, progress)) as outcomes:
        for outcome in outcomes:
            shard = shards[outcome.chunk.first]
            if outcome.result is not None:
                folder.add(shard, outcome.result)
            else:
                failures.append(outcome)
                console.warn(f"{folder.plan.named(shard)} failed: {outcome.failure}; the rest goes on")
    folder.check_input()
    if failures:
        named = console.listed([folder.plan.named(shards[failed.chunk.first]) for failed in failures], 3)
        raise NmtError(
            f"{len(failures):,} of {console.counted(len(folder.plan.shards), 'shard')} failed ({named}: "
            f"{failures[0].failure}); the others are kept in {folder.path}, and the same command does only these again"
        )
