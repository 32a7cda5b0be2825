"""The dry run: it estimates what a training needs from a few updates, and discards them."""

import math
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import islice

from nmt import console
from nmt.checkpoint import WEIGHT_BYTES
from nmt.config import ModelConfig, TrainConfig
from nmt.data.batching import UpdatePlan
from nmt.data.folder import DataFolder
from nmt.data.loader import Update
from nmt.model.architectures import training_flops
from nmt.training.fine_tuning import start_from
from nmt.training.log import show_lines
from nmt.training.ranks import join_ranks
from nmt.training.run_folder import STATES_KEPT
from nmt.training.state import Training
from nmt.training.train import NOTHING_SAVED, first_plan, prepare
from nmt.training.update import Interval, endless_updates, train_update


def timed_updates(training: Training, stream: Iterator[Update], count: int) -> tuple[Interval, float]:
    """Performs `count` updates, or all if there are fewer; returns their sums and their time in seconds."""
    interval, started = Interval(), time.perf_counter()
    for update in stream:
        if result := train_update(training, update):
            interval.add(update.batches, result)
        if interval.updates == count:
            break
    training.runtime.wait()
    return interval, time.perf_counter() - started


# Updates that are measured at most.
_MEASURED_UPDATES = 8
# About how long the measurement takes, unless a single micro-batch takes longer.
_SECONDS = 20.0


def dry_run(data_folder: str, model_config: ModelConfig, config: TrainConfig) -> None:
    """Logs the plan of a training, and the time, memory, operations and disk space that it needs.

    It writes no run folder.

    Raises:
        StoppedError: a signal asked to stop.
    """
    with join_ranks(config, NOTHING_SAVED) as ranks:
        training = prepare(DataFolder.open(data_folder), model_config, config, *ranks)
        if config.init_from:
            start_from(config.init_from, training.loss.model, training.data.codec)
        plan = first_plan(training)
        seconds = seconds_per_update(training, plan, _SECONDS)
        updates = config.max_updates
        source, target = (tokens // len(plan) for tokens in plan.totals)
        flops = training_flops(model_config, len(training.data.codec.target), source, target) + training.optimizer.flops
        # best.safetensors and, with --keep-best, numbered copies
        best = 1 if config.keep_best == 1 else 1 + config.keep_best
        every = 60 * config.save_minutes / seconds if config.save_updates is None else config.save_updates
        kept = min(max(config.keep_checkpoints, config.average_last or 0), int(updates / every) + 1)
        moments = training.optimizer.moment_bytes + training.average_bytes
        checkpoint, training_state = ((WEIGHT_BYTES * training.parameters + n) / 2**20 for n in (0, moments))
        disk = (kept + best + (config.average_last is not None)) * checkpoint + STATES_KEPT * training_state
        show_lines({
            "update": f"{source:,} source and {target:,} target tokens, {flops / 1e12:.3g} TFLOP, {seconds:.3g} s",
            "in total": f"{updates / len(plan):,.1f} epochs, {updates * flops:.1e} FLOP, "
            f"{console.clock(seconds * updates)} at {flops / seconds / 1e12:.3g} TFLOP/s, without validation",
            "memory": f"{training.runtime.peak_memory_mib:,.0f} MiB per process",
            "disk": f"{console.counted(kept, 'checkpoint')} of {checkpoint:,.0f} MiB and {STATES_KEPT} training states "
            f"of {training_state:,.0f} MiB, {disk / 1024:,.1f} GiB in total with "
            + ("the best checkpoint" if best == 1 else f"{best} best checkpoints"),
        })  # fmt: skip
        console.info("dry run: nothing was written to --save-dir")


def seconds_per_update(training: Training, plan: UpdatePlan, limit: float) -> float:
    """Returns the time of an update, which it measures for about `limit` seconds.

    If whole updates take longer, only some of their micro-batches are measured.
    """
    console.info("measuring the time of an update …")
    stream = endless_updates(training, plan)
    with console.Progress("measuring", None, "micro-batch") as progress, closing(stream) as updates:

        def timed(measured: list[Update]) -> float:
            _, seconds = timed_updates(training, iter(measured), len(measured))
            progress.advance(sum(len(update.batches) for update in measured))
            return seconds

        first = next(updates)
        first_batch = [replace(first, batches=first.batches[:1])]
        timed(first_batch)  # is slower than the next, because memory is allocated
        seconds = timed(first_batch) * len(first.batches)
        estimate = training.world.broadcast(lambda: seconds)
        stride = math.ceil(estimate / limit)
        whole = list(islice(updates, max(1, min(_MEASURED_UPDATES, int(limit / estimate)))))
        measured = [replace(update, batches=update.batches[::stride]) for update in whole]
        for _ in range(2 if training.graphs else 0):  # a shape is computed without its graph, and then to record it
            timed(measured)
        positions = [sum(batch.positions for update in part for batch in update.batches) for part in (whole, measured)]
        return timed(measured) / len(whole) * positions[0] / positions[1]
