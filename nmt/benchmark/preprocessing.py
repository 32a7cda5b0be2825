"""Measures the speed of `nmt preprocess`."""

import tempfile
import time
from dataclasses import replace
from pathlib import Path

from nmt.benchmark.report import Report
from nmt.config import DataConfig
from nmt.data.folder import DataFolder
from nmt.data.preprocess import preprocess
from nmt.files import writing
from nmt.resources import process_peak_mib


def benchmark_preprocessing(config: DataConfig, *, repeats: int) -> Report:
    """Returns a report on preprocessing, done `repeats` times into temporary folders beside --dest.

    Raises:
        NmtError: in the same cases as `nmt preprocess`.
    """
    seconds = []
    lines = 0
    dest = Path(config.dest).absolute()
    for _ in range(repeats):
        with writing(f"--dest {dest}", "choose another --dest"):
            folder = tempfile.TemporaryDirectory(dir=dest.parent, prefix=f"{dest.name}.benchmark-")
        with folder as name:
            temporary = replace(config, dest=f"{name}/data")
            started = time.perf_counter()
            preprocess(temporary)
            seconds.append(time.perf_counter() - started)
            splits = DataFolder.open(temporary.dest).meta.splits.values()
            lines = sum(2 * (split.pairs + sum(split.dropped.values())) for split in splits)
    subwords = config.subword_model or f"{config.subword}, trained"
    report = Report({"corpus": ", ".join(config.train), "subwords": subwords})
    report.add("speed", "lines/s", *(lines / s for s in seconds))
    report.add("peak memory", "MiB", process_peak_mib())
    return report
