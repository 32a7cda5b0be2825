"""Runs a job on its input: as a stream, or shard by shard in a folder from which interrupted work resumes."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import starmap
from typing import Any, Self

from nmt import console
from nmt.config import JobConfig
from nmt.errors import NmtError
from nmt.files import STDIO, digest_of, is_replaceable, output_file, refuse_inputs
from nmt.jobs.folder import JobFolder, Preparation, job_folder
from nmt.jobs.source import CHUNK_UNITS, Files, Source, chunks_of
from nmt.jobs.stream import Chunk, Execution, Job, Outcome, ReadyChunks, in_order
from nmt.signals import end_as_usual

# On a CPU, lines of a shard times bytes of the model are at most this: less than a minute of work on two cores.
_CPU_SHARD = 10**11


@dataclass(frozen=True)
class Run:
    """A job with its input, its output, and what computes it.

    Attributes:
        output: a file, or `-` for standard output.
        is_resumable: whether the results of finished shards are kept, so that the same command resumes the job.
        settings: what the output depends on besides the input and the models, by name. A job is resumed only if they
            are the same.
    """

    job: Job
    source: Source
    output: str
    is_resumable: bool
    settings: Mapping[str, Any]
    execution: Execution
    progress: console.Progress

    @classmethod
    def of_files(
        cls,
        job: Job,
        files: Files,
        output: str,
        settings: Mapping[str, Any],
        execution: Execution,
        progress: console.Progress,
    ) -> Self:
        """Returns the run of a job on lines of files; it is resumable if all files allow that."""
        has_folder = os.path.isdir(os.path.dirname(os.path.realpath(output)))  # if not, opening the output says so
        is_resumable = has_folder and has_shards([*files.paths, *job.models], output)
        return cls(job, files, output, is_resumable, settings, execution, progress)

    @property
    def inputs(self) -> list[str]:
        """The files that the job reads."""
        return [*self.source.paths, *self.job.models]

    @contextmanager
    def records(self) -> Iterator[Iterator[Any] | None]:
        """Yields the records of all units in order; None with --shard, which does only a part of the work.

        If the job is resumable, it is finished when the block, which writes the output, has succeeded.

        Raises:
            StoppedError: a signal asked the process to end, and the same command resumes the job.
        """
        options, workers, executor = self.execution.options, self.execution.workers, self.execution.executor
        if not self.is_resumable:
            end_as_usual()
            outcomes = executor(self.job, chunks_of(self.source, self.job.unit), workers, self.progress)
            with closing(outcomes):
                yield in_order(outcomes)
            return
        refuse_inputs(self.output, self.inputs, f"--output {self.output}")
        models = {f"checkpoint {i}": f"SHA-256 {digest_of(path)[:16]}…" for i, path in enumerate(self.job.models, 1)}
        preparation = Preparation(
            source=self.source,
            shard_rows=options.shard_lines or _shard_rows(self.job),
            settings=models | dict(self.settings),
        )
        with job_folder(self.output, "--output", preparation, options) as folder:
            if not options.merge:
                finish_shards(self.job, self.source, folder, self.execution, self.progress)
            if options.shard:
                yield None
                return
            yield (record for _, result in folder.results() for record in result.values)
            folder.finish()  # from here on, it ends without an error if a signal comes

    def write(self, text: Callable[[Any], str]) -> bool:
        """Writes the text of each record to the output. Returns whether there is one: with --shard, there is none."""
        advice = None
        if self.is_resumable:
            folder = f"{os.path.realpath(self.output)}.unfinished"
            advice = f"correct that and start the same command again; what is finished stays in {folder}"
        with self.records() as records:
            if records is not None:
                with output_file(self.output, self.inputs, advice=advice) as out:
                    for record in records:
                        out.write(text(record))
                        if not self.is_resumable:
                            out.flush()  # whoever waits for the answer to a line gets it now
        return records is not None


def has_shards(inputs: Sequence[str], output: str) -> bool:
    """Returns whether work on these files is a job with shards, because all are regular files."""
    from_files = STDIO not in inputs and all(map(os.path.isfile, inputs))
    return from_files and output not in ("", STDIO) and is_replaceable(output)


def _shard_rows(job: Job) -> int:
    """Returns how many lines a shard has by default: CHUNK_UNITS, or fewer for a large model on a CPU."""
    size = sum(os.path.getsize(path) for path in job.models if os.path.isfile(path))
    return CHUNK_UNITS if job.device == "cuda" else min(CHUNK_UNITS, max(1, _CPU_SHARD // max(size, 1)))


def check_files(inputs: Sequence[str], output: str, options: JobConfig) -> None:
    """Raises NmtError if an option needs a job with shards, but these files allow none."""
    if options.needs_shards and not has_shards(inputs, output):
        missing = next((path for path in inputs if path != STDIO and not os.path.exists(path)), None)
        if missing:
            raise NmtError(f"{missing} does not exist; check the path")
        raise NmtError(f"{options.needs_shards} needs files as input and as --output; give the names of files")


def finish_shards(
    job: Job, source: Source, folder: JobFolder, execution: Execution, progress: console.Progress
) -> None:
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
        Chunk(shard.first, list(starmap(job.unit, source.read(shard))), shard.first - shard.start - 1) for shard in todo
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
