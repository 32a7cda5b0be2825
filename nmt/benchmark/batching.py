"""The way from a data folder to batches: opening it, planning an epoch, and making batches of it."""

import multiprocessing
import time
import tracemalloc
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from itertools import islice

import numpy as np

from nmt.benchmark.report import Report
from nmt.data.batching import UpdatePlan, make_plan
from nmt.data.loader import updates
from nmt.data.store import DataFolder

_SEED = 1
# Updates of which the padding is computed, and which are made into batches.
_SAMPLED_UPDATES = 200


def benchmark_batching(data_folder: str, *, batch_tokens: int, groups: int, device_tokens: int, repeats: int) -> Report:
    """Opens the folder and plans and loads an epoch `repeats` times, in a new process, whose memory is only for that.

    Raises:
        NmtError: the folder cannot be opened.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(_measure, data_folder, batch_tokens, groups, device_tokens, repeats).result()


def _measure(data_folder: str, batch_tokens: int, groups: int, device_tokens: int, repeats: int) -> Report:
    opening, planning, loading = [], [], []
    plan = None
    tracemalloc.start()
    for epoch in range(repeats):
        started = time.perf_counter()
        split = DataFolder.open(data_folder).split("train")
        opening.append(time.perf_counter() - started)
        plan = None
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        started = time.perf_counter()
        lengths = split.source.lengths, split.target.lengths
        plan = make_plan(*lengths, batch_tokens=batch_tokens, groups=groups, seed=_SEED, epoch=epoch)
        planning.append(time.perf_counter() - started)
        kept, peak = ((taken - before) / 2**20 for taken in tracemalloc.get_traced_memory())
    tracemalloc.stop()
    assert plan
    sizes = np.array([_larger_side(plan, index) for index in range(len(plan))])
    for _ in range(repeats):
        started = time.perf_counter()
        with closing(updates(split, plan, device_tokens)) as prepared:
            tokens = sum(update.target_tokens for update in islice(prepared, _SAMPLED_UPDATES))
        loading.append(tokens / (time.perf_counter() - started))
    report = Report({"pairs": f"{len(split):,}", "updates an epoch": f"{len(plan):,}"})
    report.add("opening", "s", *opening)
    report.add("planning an epoch", "s", *planning)
    report.add("peak memory of planning", "MiB", peak)
    report.add("memory of a plan", "MiB", kept)
    report.add("tokens an update", "", sizes.min(), float(np.median(sizes)), sizes.max())
    report.add("padding", "%", 100 * plan.padding_share(device_tokens, _SAMPLED_UPDATES))
    report.add("making batches", "target tok/s", *loading)
    return report


def _larger_side(plan: UpdatePlan, index: int) -> float:
    """Source or target tokens of an update, of which there are more."""
    groups = plan.update(index)
    return max(sum(float(lengths[g].sum()) for g in groups) for lengths in (plan.source_lengths, plan.target_lengths))
