"""Cleans corpora: rules judge shards of pairs in any order, then copies are found and the files are written.

Judging is a job (nmt/jobs), so that interrupted work resumes after the last finished shard. A shard keeps only the
reasons and hashes of its pairs, and the lines that were changed; the other lines are read from the corpora again.
"""

import heapq
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from nmt import console
from nmt.cleaning.rules import COPIES, REASONS, RULES, SCORE, Cleaner, histogram, reason_in_words
from nmt.config import CleanConfig, RuntimeConfig
from nmt.data.leaks import HeldOut
from nmt.data.raw_pairs import in_chunks, joined, warn_of_text
from nmt.errors import NmtError
from nmt.files import Output, output_file, refuse_inputs
from nmt.jobs.run import JobFolder, contents_of, job_folder, settings_of
from nmt.jobs.source import Files, Plan, Shard
from nmt.jobs.stream import Batch, Chunk, Execution, Job, Result, Row
from nmt.text.corpus import COMPRESSED, parallel_paths, read_rows

_SHARD_PAIRS = 50_000
Outputs = Sequence[tuple[str, str]]  # flags and paths of files
Report = Callable[["Summary"], None]
# Examples of each reason on the page.
_EXAMPLES = 10


@dataclass(frozen=True)
class CleaningJob(Job):
    """How pairs are judged.

    The result of pairs has the lines of those whose text was changed, by their numbers, and histograms; see
    `Cleaner`. Its arrays are `reasons`, the number of the reason in REASONS or -1 for what is kept, int8, [L], and
    `hashes` of what each pair says, uint64, [L].
    """

    config: CleanConfig
    excluded: HeldOut

    def load(self, _models: Sequence[str], _process: int) -> Cleaner:
        return Cleaner(self.config, self.excluded)

    def batches(self, _: Any, chunk: Chunk) -> Iterator[Batch]:
        first = chunk.first
        for rows in in_chunks(chunk.units):
            yield Batch(range(first, first + len(rows)), rows)
            first += len(rows)

    def compute(self, cleaner: Cleaner, rows: Sequence[Row]) -> Result:
        pairs, reasons, histograms = cleaner([list(side) for side in zip(*rows, strict=True)])
        texts = list(zip(*pairs.sides, strict=True))
        changed = {n: now for n, (then, now) in enumerate(zip(rows, texts, strict=True)) if then != now}
        return Result({"changed": changed, "histograms": histograms}, {"reasons": reasons, "hashes": pairs.hashes})

    def result(self, _: Any, chunk: Chunk, done: Sequence[tuple[Batch, Result]]) -> Result:
        batches, values, arrays = joined(done)
        changed, histograms = list[tuple[int, Row]](), Counter[str]()
        for batch, judged in zip(batches, values, strict=True):
            changed += [(batch.unit_numbers[n] - chunk.first, row) for n, row in judged["changed"].items()]
            histograms.update(judged["histograms"])
        return Result({"changed": changed, "histograms": histograms}, arrays)


class Summary:
    """What cleaning did.

    Attributes:
        read: the number of pairs in each corpus.
        counts: for each corpus, how many pairs each reason dropped.
        limits: the limits of the rules, by option.
        histograms: see `Cleaner`.
        examples: by reason, the dropped pairs with the smallest hashes, and these hashes. This is a random choice
            that does not depend on shards or workers.
    """

    def __init__(self, config: CleanConfig) -> None:
        self.config = config
        self.read = [0 for _ in config.train]
        self.counts = [Counter[str]() for _ in config.train]
        self.limits: dict[str, float] = {rule.option: getattr(config, rule.option) for rule in RULES}
        self.histograms = Counter[str]()
        self.examples: dict[str, list[tuple[int, Row]]] = {}

    @property
    def kept(self) -> list[int]:
        """The number of pairs of each corpus that were kept."""
        return [read - counts.total() for read, counts in zip(self.read, self.counts, strict=True)]

    def add(self, shard: Shard, result: Result, rows: Sequence[Row], reasons: np.ndarray) -> None:
        """Counts the pairs of a shard by their final reasons."""
        self.read[shard.segment] += shard.rows
        self.histograms.update(result.values["histograms"])
        for code in np.unique(reasons[reasons >= 0]).tolist():
            reason, dropped = REASONS[code], np.flatnonzero(reasons == code).tolist()
            self.counts[shard.segment][reason] += len(dropped)
            some = {*self.examples.get(reason, []), *((int(result.arrays["hashes"][n]), rows[n]) for n in dropped)}
            self.examples[reason] = heapq.nsmallest(_EXAMPLES, some)

    def in_words(self) -> str:
        """Returns how many pairs each reason dropped."""
        total = sum(self.counts, Counter[str]())
        words = (f"{total[reason]:,} {reason_in_words(reason, self.config)}" for reason in REASONS if total[reason])
        return ", ".join(words)


def clean(
    config: CleanConfig,
    execution: Execution | None = None,
    runtime: RuntimeConfig | None = None,
    report: Report = lambda _: None,
) -> Summary | None:
    """Writes the pairs of the corpora that the rules and the scores keep.

    Args:
        execution, runtime: how pairs are judged and scored, and where the models of --score-with run.
        report: called when all files but the corpora are written. If it fails, the work is kept.

    Returns:
        What was done; None if only a part of the shards was done (--shard).

    Raises:
        StoppedError: a signal asked the process to end; the same command resumes the work.
        NmtError: the text or an option is wrong, or a file cannot be written.
    """
    execution = execution or Execution(workers=config.workers)
    options = execution.options
    outputs = [("--dest", f"{config.dest}.{lang}") for lang in config.languages]
    outputs += [("--rejected", config.rejected)] if config.rejected is not None else []
    source, settings = _checked(config, outputs)
    job = None if options.merge else CleaningJob(config, _excluded(config))

    def prepare(_: Path, plan: Plan) -> None:
        for files in plan.segments:
            if len(files) == 2 and files[0].lines:
                warn_of_text(*files, config.languages)

    with job_folder(config.dest, source, options, _SHARD_PAIRS, settings, prepare) as folder:
        if job:
            with console.Progress("Cleaning", None, "pair") as progress:
                workers = config.workers if options.cluster else config.workers or 2
                folder.finish_shards(job, replace(execution, workers=workers), progress)
        if options.shard:
            return None
        if not folder.plan.rows:
            folder.discard()
            raise NmtError(f"there are no lines in {' and '.join(config.train)}; give another --train")
        summary = Summary(config)
        reasons, hashes = np.zeros(folder.plan.rows, np.int8), np.zeros(folder.plan.rows, np.uint64)
        first = 0
        for shard, result in folder.results():
            shard_slice = slice(first, first := first + shard.rows)
            reasons[shard_slice], hashes[shard_slice] = result.arrays["reasons"], result.arrays["hashes"]
        if config.max_copies:
            _drop_copies(reasons, hashes, config.max_copies)
        if config.score_with:
            _score(folder, reasons, summary, runtime or RuntimeConfig(), execution)
        _write(folder, reasons, outputs, summary, report)
        folder.finish()
    return summary


def _checked(config: CleanConfig, outputs: Outputs) -> tuple[Files, dict[str, Any]]:
    """Checks what can be checked before the text is read; returns the corpora, and what the result depends on."""
    segments = [_paths(prefix, config) for prefix in config.train]
    excluded = [path for prefix in config.exclude for path in _paths(prefix, config)]
    models = config.score_with or ()
    _check_outputs(config, outputs, [*chain.from_iterable(segments), *excluded, *models])
    if config.score_with:
        from nmt.cleaning.scores import check_models  # imports torch

        check_models(config.score_with, config.languages)

    source = Files(segments, [f"--train text in {lang}" for lang in config.languages])
    settings = settings_of(config, without=("dest", "rejected", "page", "workers", "keep", "min_score"))
    return source, settings | contents_of([*excluded, *models])


def _paths(prefix: str, config: CleanConfig) -> list[str]:
    source, target = parallel_paths(prefix, config.source_lang, config.target_lang or config.source_lang)
    return [str(source), str(target)][: len(config.languages)]


def _check_outputs(config: CleanConfig, outputs: Outputs, inputs: Sequence[str]) -> None:
    """Raises NmtError if an output is an input or another output, or cannot be written."""
    seen: dict[str, str] = {}
    page = [("--page", config.page)] if config.page is not None else []
    for flag, path in (*outputs, *page):
        file = Path(path)
        if not path or (flag == "--dest" and file.name.startswith(".")) or file.is_dir():
            raise NmtError(f"{flag} {path!r} names no file; give the name of a file")
        if file.suffix in COMPRESSED:
            raise NmtError(f"{flag} {path} names a compressed file, but it is written as text; leave out {file.suffix}")
        refuse_inputs(path, inputs, f"{flag} {path}")
        if flag != "--dest" and not file.parent.is_dir():
            raise NmtError(f"{flag} {path} is in a folder that does not exist; make the folder first")
        other = seen.setdefault(os.path.realpath(path), flag)
        if other != flag:
            raise NmtError(f"{flag} {path} is also named by {other}; give another file")


def _excluded(config: CleanConfig) -> HeldOut:
    """Returns the lines of --exclude as they would be written."""
    changed = Cleaner(config, HeldOut(())).changed  # a missing package ends the command here
    paths = [path for prefix in config.exclude for path in _paths(prefix, config)]
    return HeldOut(enumerate(changed(line) for path in paths for (line,) in read_rows(path)))


def _judged(folder: JobFolder, reasons: np.ndarray) -> Iterator[tuple[Shard, Result, list[Row], np.ndarray]]:
    """Yields each shard with its result, its rows as they are written, and its part of the final `reasons`."""
    files, first = Files(folder.plan.paths), 0
    for shard, result in folder.results():
        rows = files.read(shard)
        for index, row in result.values["changed"]:
            rows[index] = tuple(row)
        yield shard, result, rows, reasons[first : first + shard.rows]
        first += shard.rows


def _score(
    folder: JobFolder, reasons: np.ndarray, summary: Summary, runtime: RuntimeConfig, execution: Execution
) -> None:
    """Scores the pairs that the rules keep, and gives those that are dropped their reason."""
    from nmt.cleaning.scores import dual_scores, threshold

    config, kept = summary.config, np.flatnonzero(reasons < 0)
    if not len(kept):
        return
    sides = [folder.data / f"kept.{lang}" for lang in config.languages]
    if not sides[0].exists():
        folder.data.mkdir(exist_ok=True)
        with _opened([("--dest", str(path)) for path in sides]) as opened:
            for _, _, rows, shard_slice in _judged(folder, reasons):
                _write_rows(rows, shard_slice, opened, [], config)
    files = list(map(str, sides))
    scores = dual_scores(config, files, folder.data, runtime, execution)
    limit = threshold(scores, config.keep or 1.0) if config.min_score is None else config.min_score
    summary.limits[SCORE] = limit
    console.info(f"pairs with a score below {limit:.4g} are dropped")
    summary.histograms.update(histogram(SCORE, scores))
    reasons[kept[scores < limit]] = REASONS.index(SCORE)


def _write(folder: JobFolder, reasons: np.ndarray, outputs: Outputs, summary: Summary, report: Report) -> None:
    """Writes all files, and completes the summary. If no pair is kept, the corpora are not written."""
    config, sides = summary.config, len(summary.config.languages)
    # The first output is renamed last: if it is there, all of them are.
    with _opened(outputs[:sides]) as kept:
        with _opened(outputs[sides:]) as rejected, console.Progress("Writing", folder.plan.rows, "pair") as progress:
            for shard, result, rows, shard_slice in _judged(folder, reasons):
                _write_rows(rows, shard_slice, kept, rejected, config)
                summary.add(shard, result, rows, shard_slice)
                progress.advance(shard.rows)
        report(summary)
        if not any(summary.kept):
            if SCORE not in summary.limits:  # scores took long, and another limit can use them
                folder.discard()
            others = " and ".join(filter(None, (config.rejected, config.page)))
            problem = f"all {folder.plan.rows:,} pairs were dropped ({summary.in_words()}), so no corpus was written"
            raise NmtError(f"{problem}{f', only {others}' if others else ''}; check the languages and the rules")


@contextmanager
def _opened(outputs: Outputs) -> Iterator[list[Output]]:
    """Yields the output files with these flags and paths. The first one is closed last."""
    with ExitStack() as files:
        yield [files.enter_context(output_file(path, flag=flag)) for flag, path in outputs]


def _drop_copies(reasons: np.ndarray, hashes: np.ndarray, most: int) -> None:
    """Marks a pair as a copy if `most` equal pairs come before it. Takes about 48 bytes of memory a pair."""
    kept = np.flatnonzero(reasons < 0)
    order = kept[np.argsort(hashes[kept], kind="stable")]  # equal ones stay in the order of the input
    begins = np.flatnonzero(np.diff(hashes[order], prepend=~hashes[order][:1]))
    ranks = np.arange(len(order)) - np.repeat(begins, np.diff(np.append(begins, len(order))))
    reasons[order[ranks >= most]] = REASONS.index(COPIES)


def _write_rows(
    rows: Sequence[Row], reasons: np.ndarray, kept: Sequence[Output], rejected: Sequence[Output], config: CleanConfig
) -> None:
    """Writes the pairs that are kept, each language into its file, and the other ones if there is a file for them."""
    good = [row for row, reason in zip(rows, reasons.tolist(), strict=True) if reason < 0]
    for file, lines in zip(kept, zip(*good, strict=True), strict=False):
        file.write("".join(f"{line}\n" for line in lines))
    for file in rejected:
        for row, reason in zip(rows, reasons.tolist(), strict=True):
            if reason >= 0:
                texts = (line.replace("\t", " ") for line in row)
                file.write("\t".join([reason_in_words(REASONS[reason], config), *texts]) + "\n")
