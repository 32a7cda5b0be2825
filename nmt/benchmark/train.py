"""The speed of training: updates of `nmt train`, without validation and checkpoints."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import torch

from nmt import console
from nmt.benchmark.command import run_nmt
from nmt.benchmark.machine import product_flops
from nmt.benchmark.report import Report
from nmt.config import BatchConfig, ModelConfig, TrainConfig
from nmt.data.loader import Update
from nmt.data.store import DataFolder
from nmt.errors import Interrupted, NmtError
from nmt.files import writing
from nmt.model.runtime import Runtime
from nmt.training.distributed import joined
from nmt.training.metrics import peak_memory_mib
from nmt.training.records import METRICS, MetricsFile
from nmt.training.run_folder import RunFolder
from nmt.training.trainer import Trainer
from nmt.training.trial import timed

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
    """Trains for `repeats` times `updates` updates, after as many to warm up.

    Args:
        profile: file for a trace of as many updates more, to be looked at with ui.perfetto.dev; or None.

    Raises:
        NmtError: as `nmt train` does, or it was asked to stop.
    """
    data = DataFolder.open(data_folder)
    if profile:  # rather now than after minutes
        with writing(f"--profile {profile}", "choose another file"):
            Path(profile).touch()
    with tempfile.TemporaryDirectory() as folder:
        config = TrainConfig(save_dir=folder, **batches.to_dict())
        start_up = _start_up_seconds(data_folder, model, config)
        try:
            with joined(config) as (world, runtime, stop):
                limit = product_flops(runtime)
                trainer = Trainer(data, model, config, RunFolder(Path(folder)), runtime, world, stop)
                plan = trainer.stream.plan(0)
                with closing(trainer.stream.updates(plan, trainer.counters)) as stream:
                    trials = [_trial(trainer, stream, updates) for _ in range(1 + repeats)][1:]
                    memory = peak_memory_mib(runtime.device)
                    if profile:
                        with _profiled(profile, runtime):
                            _trial(trainer, stream, updates)
        except Interrupted as error:
            raise NmtError("the benchmark was stopped before its end; start it again") from error
    report = Report({"device": trainer.gradients.hardware})
    report.add("speed", "target tok/s", *(record["target_tokens_per_second"] for record, _ in trials))
    report.add("padding", "%", *(100 * record["padding_share"] for record, _ in trials))
    report.add("peak memory", "MiB", memory)
    report.add("start-up", "s", start_up)
    report.add("achieved", "TFLOP/s", *(flops / 1e12 for _, flops in trials))
    report.add("large product", "TFLOP/s", limit / 1e12)
    report.add("utilisation", "%", *(100 * flops / limit for _, flops in trials))
    return report


def _trial(trainer: Trainer, stream: Iterator[Update], updates: int) -> tuple[dict[str, float], float]:
    """The record of so many updates, and the FLOP/s in them."""
    before = trainer.counters.flops
    interval, seconds = timed(trainer, stream, updates)
    return interval.record(trainer.world), (trainer.counters.flops - before) / seconds


def _start_up_seconds(data_folder: str, model: ModelConfig, config: TrainConfig) -> float:
    """From the start of `nmt train` to the end of its first update."""
    changed = {"max_updates": 1, "log_updates": 1, "valid_bleu": False}
    started = time.time()
    run_nmt("train", data_folder, "--arch=transformer_base", options=model.to_dict() | config.to_dict() | changed)
    records = MetricsFile(Path(config.save_dir) / METRICS).records()
    first = next(record for record in records if record["kind"] == "train")
    return float(first["time"]) - started


@contextmanager
def _profiled(path: str, runtime: Runtime) -> Iterator[None]:
    """Writes a trace of what is done within, and tells what took most time."""
    kinds = [torch.profiler.ProfilerActivity.CPU]
    if runtime.device.type == "cuda":
        kinds.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=kinds) as profiler:
        yield
    profiler.export_chrome_trace(path)
    order = f"self_{runtime.device.type}_time_total"
    console.info(profiler.key_averages().table(sort_by=order, row_limit=_PROFILED_ROWS, max_name_column_width=40))
    console.info(f"wrote {path}")
