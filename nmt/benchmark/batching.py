"""Measures the speed of opening a data folder, of planning an epoch and of making batches."""

import statistics
import time
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from functools import partial
from itertools import islice

from nmt.benchmark.report import Report
from nmt.config import PlanConfig
from nmt.data.batching import UpdatePlan, make_plan
from nmt.data.folder import DataFolder, ParallelSplit
from nmt.data.loader import updates
from nmt.jobs.pool import worker_pool

_SEED = 1
# The benchmark computes the padding of this many updates and makes batches from them.
_SAMPLED_UPDATES = 200


def benchmark_batching(data_folder: str, config: PlanConfig, *, repeats: int) -> Report:
    """Returns a report on opening the folder, planning an epoch and making batches, each done `repeats` times.

    A new process does the work, so that the measured memory includes nothing else.

    Raises:
        NmtError: the folder cannot be opened.
    """
    with worker_pool(partial(_measurer, config, repeats), 1, preload=__name__) as submit:
        return submit(data_folder).result()


def _measurer(config: PlanConfig, repeats: int, _worker: int) -> Callable[[str], Report]:
    return partial(_measure, config, repeats)


def _measure(config: PlanConfig, repeats: int, data_folder: str) -> Report:
    report = Report({})
    split, plan = _measure_planning(data_folder, config, repeats, report)
    sizes = [max(plan.tokens(index)) for index in range(len(plan))]
    device_tokens = config.tokens_at_once("cuda", 1)
    report.subject = {"pairs": f"{len(split):,}", "updates an epoch": f"{len(plan):,}"}
    report.add("tokens an update", "", min(sizes), statistics.median(sizes), max(sizes))
    report.add("padding", "%", 100 * plan.padding_share(device_tokens, _SAMPLED_UPDATES))
    report.add("making batches", "target tok/s", *(_loading_speed(split, plan, device_tokens) for _ in range(repeats)))
    return report


def _measure_planning(
    data_folder: str, config: PlanConfig, repeats: int, report: Report
) -> tuple[ParallelSplit, UpdatePlan]:
    opening, planning = [], []
    tracemalloc.start()
    for epoch in range(repeats):
        split = plan = None  # otherwise the previous plan would count as memory of the next one
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        started = time.perf_counter()
        split = DataFolder.open(data_folder).split("train")
        opened = time.perf_counter()
        plan = make_plan(
            split.source.lengths,
            split.target.lengths,
            batch_tokens=config.batch_tokens,
            groups=config.batch_groups,
            seed=_SEED,
            epoch=epoch,
        )
        opening.append(opened - started)
        planning.append(time.perf_counter() - opened)
        kept, peak = ((size - before) / 2**20 for size in tracemalloc.get_traced_memory())
    tracemalloc.stop()
    assert split and plan
    report.add("opening", "s", *opening)
    report.add("planning an epoch", "s", *planning)
    report.add("peak memory of planning", "MiB", peak)
    report.add("memory of a plan", "MiB", kept)
    return split, plan


def _loading_speed(split: ParallelSplit, plan: UpdatePlan, device_tokens: int) -> float:
    """Returns how many target tokens per second are made into batches."""
    started = time.perf_counter()
    with closing(updates(split, plan, device_tokens)) as prepared:
        tokens = sum(update.target_tokens for update in islice(prepared, _SAMPLED_UPDATES))
    return tokens / (time.perf_counter() - started)
