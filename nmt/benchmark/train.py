"""Measures the speed of training: of the updates of `nmt train`, without validation and checkpoints."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path

import torch

from nmt import console
from nmt.benchmark.command import run_nmt
from nmt.benchmark.machine import product_flops
from nmt.benchmark.report import Report
from nmt.config import BatchConfig, ModelConfig, TrainConfig
from nmt.data.loader import Update
from nmt.errors import Interrupted, NmtError
from nmt.files import Output, output_file
from nmt.model.device import Runtime
from nmt.training.dry_run import timed_updates
from nmt.training.loop import UpdateStream
from nmt.training.metrics import peak_memory_mib
from nmt.training.records import METRICS, MetricsFile
from nmt.training.state import Setup, TrainState, new_state
from nmt.training.train import prepared

_PROFILED_ROWS = 20


def benchmark_training(
    data_folder: str,
    model: ModelConfig,
    batches: BatchConfig,
    *,
    repeats: int,
    updates: int,
    profile: str | None,
) -> Report:
    """Returns a report on `repeats` measurements of `updates` updates each, which follow `updates` updates to warm up.

    Args:
        profile: the file for a trace of `updates` more updates, which ui.perfetto.dev displays; None for no trace.

    Raises:
        NmtError: in the same cases as `nmt train`, and if a signal asked to stop.
    """
    files = [path for path in Path(data_folder).glob("*") if path.is_file()]
    with (
        tempfile.TemporaryDirectory() as folder,
        # Opened first, so that a file that cannot be written causes an error before minutes of work.
        output_file(profile, files, "--profile") if profile else nullcontext() as trace,
    ):
        config = TrainConfig(save_dir=f"{folder}/run", **batches.to_dict())
        start_up = _start_up_seconds(data_folder, model, config)
        try:
            with prepared(data_folder, model, config, "stopping; nothing is saved") as setup:
                report = _measure(setup, repeats, updates, trace)
        except Interrupted as error:
            raise NmtError("the benchmark was stopped before its end; start it again") from error
    report.add("start-up", "s", start_up)
    return report


def _measure(setup: Setup, repeats: int, updates: int, trace: Output | None) -> Report:
    limit, state = product_flops(setup.runtime), new_state(setup)
    stream = UpdateStream(setup, state)
    with closing(stream.updates(stream.plan())) as made:
        trials = [_trial(setup, state, made, updates) for _ in range(1 + repeats)][1:]
        memory = peak_memory_mib(setup.runtime.device)
        if trace:
            with _profiled(trace, setup.runtime):
                _trial(setup, state, made, updates)
    report = Report({"device": state.gradients.hardware})
    report.add("speed", "target tok/s", *(record["target_tokens_per_second"] for record, _ in trials))
    report.add("padding", "%", *(100 * record["padding_share"] for record, _ in trials))
    report.add("peak memory", "MiB", memory)
    report.add("achieved", "TFLOP/s", *(flops / 1e12 for _, flops in trials))
    report.add("large product", "TFLOP/s", limit / 1e12)
    report.add("utilisation", "%", *(100 * flops / limit for _, flops in trials))
    return report


def _trial(setup: Setup, state: TrainState, stream: Iterator[Update], updates: int) -> tuple[dict[str, float], float]:
    """Performs `updates` updates; returns their metrics and their FLOP/s."""
    before = state.counters.flops
    interval, seconds = timed_updates(setup, state, stream, updates)
    return interval.record(setup.world), (state.counters.flops - before) / seconds


def _start_up_seconds(data_folder: str, model: ModelConfig, config: TrainConfig) -> float:
    """Returns the time from the start of `nmt train` to the end of its first update."""
    changed = {"max_updates": 1, "log_updates": 1, "valid_metric": ("nll",)}
    started = time.time()
    run_nmt("train", data_folder, "--arch=transformer_base", options=model.to_dict() | config.to_dict() | changed)
    records = MetricsFile(Path(config.save_dir) / METRICS).records()
    first = next(record for record in records if record["kind"] == "train")
    return float(first["time"]) - started


@contextmanager
def _profiled(trace: Output, runtime: Runtime) -> Iterator[None]:
    """Writes a trace of the block, and logs the operations that took most time."""
    kinds = [torch.profiler.ProfilerActivity.CPU]
    if runtime.device.type == "cuda":
        kinds.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=kinds) as profiler:
        yield
    with tempfile.TemporaryDirectory() as folder:
        profiler.export_chrome_trace(f"{folder}/trace.json")
        trace.write(Path(f"{folder}/trace.json").read_bytes())
    order = f"self_{runtime.device.type}_time_total"
    console.info(profiler.key_averages().table(sort_by=order, row_limit=_PROFILED_ROWS, max_name_column_width=40))
