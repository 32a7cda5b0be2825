"""The speed of `nmt preprocess`."""

import resource
import shutil
import time

from nmt.benchmark.report import Report
from nmt.config import DataConfig
from nmt.data.pool import process_peak_mib
from nmt.data.preprocess import preprocess
from nmt.data.store import DataFolder


def benchmark_preprocessing(config: DataConfig, *, repeats: int) -> Report:
    """Preprocesses `repeats` times, and removes what that wrote.

    Raises:
        NmtError: as `nmt preprocess` does.
    """
    seconds, lines = [], 0
    for _ in range(repeats):
        started = time.perf_counter()
        preprocess(config)
        seconds.append(time.perf_counter() - started)
        try:
            splits = DataFolder.open(config.dest).meta["splits"].values()
            lines = sum(2 * (split["pairs"] + sum(split.get("dropped", {}).values())) for split in splits)
        finally:
            shutil.rmtree(config.dest)
    subwords = config.subword_model or f"{config.subword}, trained"
    report = Report({"corpus": ", ".join(config.train), "subwords": subwords})
    report.add("speed", "lines/s", *(lines / s for s in seconds))
    report.add("peak memory", "MiB", process_peak_mib())
    if config.workers > 1:
        report.add("of a worker", "MiB", process_peak_mib(resource.RUSAGE_CHILDREN))
    return report
