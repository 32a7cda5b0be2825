"""Aligns documents as one job, in which each pair of documents is a shard: interrupted work resumes behind the last."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from nmt import console
from nmt.aligning.alignment import Embedder, align
from nmt.aligning.documents import Side, read_sides
from nmt.aligning.pairs import Alignment, beads_of_json
from nmt.aligning.path import Bead
from nmt.config import AlignConfig, JobConfig, RuntimeConfig, SearchConfig
from nmt.errors import NmtError
from nmt.files import digest_of, read_bytes, refuse_inputs
from nmt.jobs.run import Run, check_files
from nmt.jobs.source import Rows
from nmt.jobs.stream import Batch, Chunk, Execution, Job, Processor, Result
from nmt.translate.setup import settings_of

# The mean score of documents that do not translate each other is lower.
_LEAST_MEAN = 0.5


@dataclass(frozen=True)
class _AligningJob(Job):
    """Aligns the documents of each row, the paths of source and target. The record is an alignment as JSON."""

    config: AlignConfig
    runtime: RuntimeConfig
    decisions: Mapping[tuple[str, str], Sequence[Bead]]

    @property
    def models(self) -> tuple[str, ...]:
        return self.config.model

    def load(self, models: Sequence[str], _process: int) -> "_Aligner":
        return _Aligner(self, models)

    def batches(self, _: Any, chunk: Chunk) -> Iterator[Batch]:
        return (Batch([number], unit) for number, unit in enumerate(chunk.units, chunk.first))

    def compute(self, aligner: "_Aligner", row: Sequence[str]) -> list[Any]:
        try:
            return aligner(row[0], row[1]).to_json()
        except NmtError as error:
            return Alignment(Side(row[0], [], []), Side(row[1], [], []), [], str(error)).to_json()

    def result(self, _: Any, _chunk: Chunk, done: Sequence[tuple[Batch, list[Any]]]) -> Result:
        return Result([record for _, record in sorted(done, key=lambda each: each[0].units[0])])


class _Aligner(Processor):
    """Reads two documents and aligns their sentences."""

    def __init__(self, job: _AligningJob, models: Sequence[str]) -> None:
        self._config, self._decisions, self._translator = job.config, job.decisions, None
        self._embed = Embedder() if job.config.embeddings else None
        if models:
            from nmt.translate.translator import Translator  # imports torch

            self._translator = Translator.load(*models, runtime=job.runtime)

    def __call__(self, source_path: str, target_path: str) -> Alignment:
        source, target = read_sides((source_path, target_path), self._config.languages, self._config.format)
        if self._config.decisions:
            beads = self._decisions.get((source_path, target_path), [])
            for side, spans in ((source, [bead.source for bead in beads]), (target, [bead.target for bead in beads])):
                if list(chain.from_iterable(spans)) != list(range(len(side.texts))):
                    problem = f"--decisions {self._config.decisions} is not about {side.path} as it is now"
                    raise NmtError(f"{problem}; give the documents that were aligned, or align them again")
            return Alignment(source, target, beads)
        texts = source.texts
        if self._translator:
            lang, other = self._config.languages
            search = SearchConfig(beam=1)
            texts = self._translator.translate(texts, search, source_lang=lang, target_lang=other)
        beads = align(texts, target.texts, self._embed)
        scores = [bead.score for bead in beads if bead.source and bead.target]
        if sum(scores) <= _LEAST_MEAN * len(scores):
            names = f"{source.path} and {target.path}"
            raise NmtError(f"{names} do not look like translations of each other; give files that belong together")
        return Alignment(source, target, beads)


@contextmanager
def aligned(
    paths: Sequence[tuple[str, str]],
    config: AlignConfig,
    output: str = "",
    runtime: RuntimeConfig | None = None,
    workers: int | None = None,
    progress: console.Progress | None = None,
) -> Iterator[list[Alignment]]:
    """Yields the alignments of documents. If the block, which writes the output, fails, they are kept beside it.

    Raises:
        NmtError: a file cannot be read, or no two documents can be aligned.
        StoppedError: a signal asked the process to end, and the same call resumes the work.
    """
    files = list(dict.fromkeys(chain.from_iterable(paths)))
    refuse_inputs(output, files, f"--output {output}")
    digests = {path: digest_of(path) for path in files}
    rows = [(*pair, *(digests[path] for path in pair)) for pair in paths]
    decisions = _read_decisions(config.decisions) if config.decisions else {}
    runtime = runtime or RuntimeConfig()
    job = _AligningJob(config, runtime, decisions)
    execution = Execution(JobConfig(shard_lines=1), workers)
    source = Rows("the documents", rows, lambda row, _: row)
    decided = {"--decisions": digest_of(config.decisions)} if config.decisions else {}
    is_resumable = check_files([*files, *config.model], output, JobConfig())
    progress = progress or console.Progress("align", None, "pair of documents", lines=False)
    run = Run(job, source, output, settings_of(config, runtime) | decided, execution, progress, is_resumable)
    with run.records() as records:
        assert records is not None  # without --shard
        alignments = [Alignment.of_json(record) for record in records]
        failures = [alignment.failure for alignment in alignments if alignment.failure]
        if len(failures) < len(alignments):
            for failure in failures:
                console.warn(failure)
            yield alignments
    if failures:
        count = f"{len(failures):,} of {console.counted(len(alignments), 'pair')} of documents cannot be aligned"
        raise NmtError(failures[0] if len(alignments) == 1 else f"{count}: {failures[0]}")


def _read_decisions(path: str) -> dict[tuple[str, str], list[Bead]]:
    """Returns the beads that a page has saved, by the paths of the documents."""
    try:
        values = json.loads(read_bytes(Path(path), "check the path"))
        return {(source, target): beads_of_json(beads) for source, target, beads in values}
    except (ValueError, TypeError) as error:
        raise NmtError(f"--decisions {path} is not what a page of nmt align saves ({error}); save it again") from error
