"""Aligns documents as one job, in which each pair of documents is a shard: interrupted work resumes behind the last."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from nmt import console
from nmt.aligning.alignment import EMBEDDED, Embedder, align
from nmt.aligning.documents import Side, read_sides
from nmt.aligning.path import Bead
from nmt.config import AlignConfig, JobConfig, RuntimeConfig, SearchConfig
from nmt.errors import NmtError
from nmt.files import digest_of, read_bytes
from nmt.jobs.run import Run, can_resume, settings_of
from nmt.jobs.source import Rows
from nmt.jobs.stream import Batch, Chunk, Execution, Job, Processor, Result
from nmt.memories.files import open_memory
from nmt.memories.memory import Memory, matches_of
from nmt.text.languages import base_language, has_spaces
from nmt.text.protected import PROTECTED

# The mean score of documents that do not translate each other is lower.
_LEAST_MEAN = 0.5


class AlignedPair(NamedTuple):
    """A sentence pair.

    Attributes:
        source, target: one to four sentences each.
        score: how likely they are translations of each other, between 0 and 1.
        source_place, target_place: lines of plain text, or `12.3` for sentence 3 of passage 12, and `12.3-12.4`.
    """

    source: str
    target: str
    score: float
    source_place: str
    target_place: str


_Decisions = tuple[Sequence[str], Sequence[str], Sequence[Bead]]  # the sentences of both documents, and their beads


class Alignment(NamedTuple):
    """Two documents whose sentences are aligned.

    Attributes:
        beads: in order, also those of sentences without a partner.
        failure: why the documents cannot be aligned, if so.
        crossings: the numbers of sentences that translate each other but stand in another order.
        seconds: how long the translation took.
    """

    source: Side
    target: Side
    beads: Sequence[Bead] = ()
    failure: str = ""
    crossings: Sequence[tuple[int, int]] = ()
    seconds: float = 0.0

    def pairs(self, languages: tuple[str, str]) -> Iterator[AlignedPair]:
        """Yields the sentence pairs."""
        gaps = [" " * has_spaces(lang) for lang in languages]
        for bead in self.beads:
            if bead.is_pair:
                sides = list(zip(self[:2], (bead[:2], bead[2:4]), gaps, strict=True))
                texts = [gap.join(side.texts[start:stop]) for side, (start, stop), gap in sides]
                places = ["-".join({side.places[i]: 0 for i in (start, stop - 1)}) for side, (start, stop), _ in sides]
                yield AlignedPair(texts[0], texts[1], bead.score, places[0], places[1])


@dataclass(frozen=True)
class _AligningJob(Job):
    """Aligns the documents of each row, the paths of source and target."""

    config: AlignConfig
    runtime: RuntimeConfig
    decisions: Mapping[tuple[str, str], _Decisions]
    memories: Sequence[Memory]

    @property
    def models(self) -> tuple[str, ...]:
        return self.config.model

    def load(self, models: Sequence[str], _process: int) -> "_Aligner":
        return _Aligner(self, models)

    def batches(self, _: Any, chunk: Chunk) -> Iterator[Batch]:
        return (Batch([number], unit) for number, unit in enumerate(chunk.units, chunk.first))

    def compute(self, aligner: "_Aligner", row: Sequence[str]) -> Alignment:
        try:
            return aligner.alignment(row[0], row[1])
        except NmtError as error:
            return Alignment(Side(row[0]), Side(row[1]), failure=str(error))

    def result(self, _: Any, _chunk: Chunk, done: Sequence[tuple[Batch, Alignment]]) -> Result:
        return Result([record for _, record in sorted(done, key=lambda each: each[0].unit_numbers[0])])

    def restored(self, record: list[Any]) -> Alignment:
        source, target, beads, *others = record
        return Alignment(Side(*source), Side(*target), [Bead(*bead) for bead in beads], *others)


class _Aligner(Processor):
    """Reads two documents and aligns their sentences."""

    def __init__(self, job: _AligningJob, models: Sequence[str]) -> None:
        self._job, self._translator = job, None
        self._embed = Embedder() if job.config.embeddings else None
        if models:
            from nmt.translate.translator import Translator  # imports torch

            self._translator = Translator.load(*models, runtime=job.runtime)

    def alignment(self, source_path: str, target_path: str) -> Alignment:
        config = self._job.config
        source, target = read_sides((source_path, target_path), config.languages, config.format)
        if config.decisions:
            return Alignment(source, target, self._decided(source, target))
        start = time.monotonic()
        translations = self._translations(source.texts)
        seconds = time.monotonic() - start
        beads, crossings = align(source.texts, target.texts, self._embed, translations)
        scores = [bead.score for bead in beads if bead.is_pair]
        if sum(scores) <= _LEAST_MEAN * len(scores):
            names = f"{source.path} and {target.path}"
            advice = "give files that belong together, or --model, --memory or --embeddings if the texts are short"
            raise NmtError(f"{names} do not look like translations of each other; {advice}")
        return Alignment(source, target, beads, "", crossings, seconds)

    def _decided(self, source: Side, target: Side) -> Sequence[Bead]:
        """Returns the beads that a person has decided on. Raises NmtError if they are about other sentences."""
        flag, paths = f"--decisions {self._job.config.decisions}", (source.path, target.path)
        if paths not in self._job.decisions:
            raise NmtError(f"{flag} has no decisions about {' and '.join(paths)}; align them first")
        sources, targets, beads = self._job.decisions[paths]
        spans = [bead[:2] for bead in beads], [bead[2:4] for bead in beads]
        for side, texts, own in zip((source, target), (sources, targets), spans, strict=True):
            is_whole = [i for span in own for i in range(*span)] == [*range(len(texts))]
            if [*side.texts] != [*texts] or not is_whole:
                problem = f"{flag} is not about {side.path} as it is now"
                raise NmtError(f"{problem}; give the documents that were aligned, or align them again")
        return beads

    def _translations(self, texts: Sequence[str]) -> dict[str, str]:
        """Returns the translations of texts that the memories have, and those of the others by the model, if any."""
        languages, memories = self._job.config.languages, self._job.memories
        translations = dict[str, str]()
        distinct = list(dict.fromkeys(texts))
        for text in distinct if memories else ():
            for match in matches_of(text, PROTECTED.spans(text), memories, languages)[:1]:
                translations[text] = match.target
        if self._translator:
            left = [text for text in distinct if text not in translations]
            source_lang, target_lang = languages
            search = SearchConfig(beam=1)
            by_model = self._translator.translate(left, search, source_lang=source_lang, target_lang=target_lang)
            translations |= zip(left, by_model, strict=True)
        return translations


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

    Warns of documents that cannot be aligned.

    Raises:
        NmtError: a file cannot be read, or no two documents can be aligned.
        StoppedError: a signal asked the process to end, and the same call resumes the work.
    """
    unknown = [lang for lang in config.languages if base_language(lang) not in EMBEDDED]
    if config.embeddings and unknown:
        raise NmtError(f"--embeddings knows {', '.join(EMBEDDED)}, but not {unknown[0]}; leave it out")
    files = list(dict.fromkeys(chain.from_iterable(paths)))
    source = Rows("the documents", [(*pair, *map(digest_of, pair)) for pair in paths], lambda row, _: row)
    memories = [open_memory(path, config.languages, (), PROTECTED) for path in config.memory]
    runtime = runtime or RuntimeConfig()
    settings = settings_of(config, runtime) | {"--memory": [memory.digest for memory in memories]}
    if config.decisions:
        settings["--decisions"] = digest_of(config.decisions)
    job = _AligningJob(config, runtime, _read_decisions(config.decisions) if config.decisions else {}, memories)
    execution = Execution(JobConfig(shard_lines=1), workers)
    progress = progress or console.Progress("align", None, "document pair", lines=False)
    is_resumable = can_resume([*files, *config.model], output, JobConfig())
    with Run(job, source, output, settings, execution, progress, is_resumable).records() as records:
        assert records is not None  # without --shard
        alignments = list[Alignment](records)
        failures = [alignment.failure for alignment in alignments if alignment.failure]
        if len(failures) < len(alignments):
            for failure in failures:
                console.warn(failure)
            yield alignments
            return
    # Behind the block, the job is finished: the next one begins anew.
    for failure in failures[1:]:
        console.warn(failure)
    count = f"none of {console.counted(len(alignments), 'pair')} of documents can be aligned"
    raise NmtError(failures[0] if len(alignments) == 1 else f"{count}: {failures[0]}")


def _read_decisions(path: str) -> dict[tuple[str, str], _Decisions]:
    """Returns what a page has saved, by the paths of the documents."""
    try:
        values = json.loads(read_bytes(Path(path), "check the path"))
        return {
            (source, target): (
                [*map(str, sources)],
                [*map(str, targets)],
                [Bead(int(a), int(b), int(c), int(d), float(score)) for a, b, c, d, score in beads],
            )
            for (source, sources), (target, targets), beads in values
        }
    except (ValueError, TypeError) as error:
        raise NmtError(f"--decisions {path} is not what a page of nmt align saves ({error}); save it again") from error
