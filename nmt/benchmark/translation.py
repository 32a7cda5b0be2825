"""Measures the speed of `nmt generate`."""

import os
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from itertools import chain, islice, repeat
from pathlib import Path

from nmt.benchmark.command import run_nmt
from nmt.benchmark.report import Report
from nmt.checkpoint import Checkpoint, new_model, save_checkpoint
from nmt.config import ModelConfig, RuntimeConfig, SearchConfig
from nmt.jobs.run import do_windows, in_line_order, survived
from nmt.model.device import resolve
from nmt.resources import memory_of_all_processes_mib
from nmt.text.codec import TextCodec
from nmt.text.corpus import Windows
from nmt.training.metrics import peak_memory_mib
from nmt.translate.job import TranslationJob
from nmt.translate.requests import Hypothesis, Request


def benchmark_translation(
    checkpoint: str, lines: Sequence[str], search: SearchConfig, runtime: RuntimeConfig, *, workers: int, repeats: int
) -> Report:
    """Returns a report on translating the lines `repeats` times, after one translation to warm up.

    Raises:
        NmtError: in the same cases as `nmt generate`.
    """
    start_up = [_start_up_seconds(checkpoint, lines[0], search, runtime) for _ in range(repeats)]
    job = TranslationJob((checkpoint,), runtime, search)
    seconds = []
    pieces = []
    repeated = chain.from_iterable(repeat(lines, 1 + repeats))
    # Several processes work ahead across repeats, so a single trial measures all repeats together.
    trials, passes = (repeats, 1) if workers == 1 else (1, repeats)
    with closing(_translations(job, repeated, workers, len(lines))) as stream:
        list(islice(stream, len(lines)))
        for _ in range(trials):
            started = time.perf_counter()
            done = list(islice(stream, passes * len(lines)))
            seconds.append(time.perf_counter() - started)
            pieces.append(sum(len(hypotheses[0].pieces) + 1 for hypotheses in done))
        # Close to the peak, because freed memory is kept.
        memory = memory_of_all_processes_mib(os.getpid()) if workers > 1 else None
    resolved = resolve(runtime)
    processes = f", {workers} processes" if workers > 1 else ""
    report = Report({"device": f"{resolved.name}, {resolved.precision}{processes}"})
    report.add("speed", "sentences/s", *(passes * len(lines) / s for s in seconds))
    report.add("output", "target tok/s", *(n / s for n, s in zip(pieces, seconds, strict=True)))
    if workers == 1:
        report.add("peak memory", "MiB", peak_memory_mib(resolved.device))
    elif resolved.device.type == "cpu" and memory is not None:
        report.add("memory of all processes", "MiB", memory)
    report.add("start-up", "s", *start_up)
    return report


def _translations(
    job: TranslationJob, lines: Iterator[str], workers: int, lines_at_once: int
) -> Generator[list[Hypothesis], None, None]:
    """Yields the translations of all raw lines, in order; `lines_at_once` lines are sorted by length together."""
    with closing(do_windows(job, Windows(map(Request, lines), lines_at_once), workers)) as batches:
        yield from in_line_order((batch.numbers, results) for _, batch, results in survived(batches))


def _start_up_seconds(checkpoint: str, line: str, search: SearchConfig, runtime: RuntimeConfig) -> float:
    """Returns how long the command `nmt generate` takes for one sentence."""
    started = time.perf_counter()
    run_nmt("generate", checkpoint, options=search.to_dict() | runtime.to_dict(), text=line)
    return time.perf_counter() - started


def save_untrained(path: Path, model: ModelConfig, codec: TextCodec) -> None:
    """Writes a checkpoint of an untrained model.

    It computes as much per position as a trained model, but its translations run to the maximum length.
    """
    weights = {name: tensor.detach() for name, tensor in new_model(model, codec).state_dict().items()}
    save_checkpoint(Checkpoint(model, codec, weights, provenance={}), path)
