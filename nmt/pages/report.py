"""Computes the content of the report page from the metrics.jsonl of one or several runs."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt.errors import NmtError
from nmt.options import flag_name
from nmt.training.records import METRICS, MetricsFile

# The paper's Table 2: BLEU en-de and en-fr, and floating-point operations of training.
TABLE_2 = [
    ("Transformer (base), in the paper", "27.3 / 38.1", "3.3e18"),
    ("Transformer (big), in the paper", "28.4 / 41.8", "2.3e19"),
]
_NOTE = (
    "Counted: six operations for each weight that a token is multiplied with. Sustained: training time × devices × "
    "the speed that a device sustains, as in the paper's Table 2 (9.5 TFLOP/s for its P100). The runs' BLEU is "
    "sacreBLEU's on the validation set, with the signature below; the paper's BLEU is its own on newstest2014, "
    "en-de / en-fr. Sustained speed"
)
_PROVENANCE = ("device", "precision", "ranks", "nmt", "torch", "python", "data", "written")


@dataclass(frozen=True)
class Run:
    """The records of a run.

    Attributes:
        name: the path of the run folder, as the user gave it.
        file: the path of metrics.jsonl.
        starts: the start records, one for each time that the training was started or resumed.
        train, valid: the records of log intervals and of validations.
    """

    name: str
    file: Path
    starts: list[dict[str, Any]]
    train: list[dict[str, Any]]
    valid: list[dict[str, Any]]


def read_run(path: str) -> Run:
    """Reads a run from its run folder or its metrics.jsonl.

    Raises:
        NmtError: there is no metrics.jsonl, it cannot be read, or it has no start record.
    """
    file = Path(path, METRICS) if os.path.isdir(path) else Path(path)
    records = MetricsFile(file).records()
    starts, train, valid = ([r for r in records if r["kind"] == kind] for kind in ("start", "train", "valid"))
    if not starts:
        raise NmtError(f"{file} has no record of the start of a training; give the --save-dir of a training")
    return Run(path, file, starts, train, valid)


def report_data(runs: list[Run], sustained_tflops: float | None) -> dict[str, Any]:
    """Returns the content of the page as JSON values; `sustained_tflops` is the speed that a device sustains.

    Raises:
        NmtError: a start record lacks a value or has a value of the wrong type.
    """
    try:
        return _report_data(runs, sustained_tflops)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        files = ", ".join(str(run.file) for run in runs)
        raise NmtError(
            f"{files}: a start record lacks a value or has a value of the wrong type ({error!r}); run nmt report with "
            f"the version of nmt that wrote it"
        ) from error


def _report_data(runs: list[Run], sustained_tflops: float | None) -> dict[str, Any]:
    drawn = [{"name": run.name, "train": run.train, "valid": run.valid, "config": _config(run)} for run in runs]
    note = f"{_NOTE} here: {sustained_tflops:g} TFLOP/s." if sustained_tflops else f"{_NOTE}: give --sustained-tflops."
    return {"runs": drawn, "cost": {"note": note, "rows": _cost(runs, sustained_tflops)}}


def _config(run: Run) -> dict[str, str]:
    """Returns the options and the provenance of a run as text, by name."""
    start = run.starts[-1]
    signatures = [record.get("bleu_signature") for record in run.valid]
    sizes, text = start["vocab_sizes"], start["text"]
    shown: dict[str, Any] = {
        "languages": f"{text['source_lang']} -> {text['target_lang']}",
        "training pairs": f"{start['pairs']:,}",
        "vocabulary": f"{sizes['source']:,} / {sizes['target']:,} {text['subword']} pieces",
        "parameters": f"{start['parameters']:,}",
        "validation BLEU": signatures[-1] if signatures else None,
        **{flag_name(name): value for name, value in (start["model"] | start["options"]).items()},
        **{name: start[name] for name in _PROVENANCE},
    }
    return {name: "" if value is None else str(value) for name, value in shown.items()}


def _cost(runs: list[Run], sustained_tflops: float | None) -> list[list[str]]:
    head = [
        "run",
        "updates",
        "training time",
        "parameters",
        "best validation PPL",
        "best BLEU",
        "FLOPs counted",
        "FLOPs sustained",
    ]
    rows = [[run.name, *_outcome(run, sustained_tflops)] for run in runs]
    return [head, *rows, *([name, "", "", "", "", bleu, "", flops] for name, bleu, flops in TABLE_2)]


def _device_seconds(run: Run, seconds: float) -> float:
    """Returns the training time of `seconds` in all, times the number of ranks at each time."""
    begins = [start["train_seconds"] for start in run.starts]
    ends = [*begins[1:], seconds]
    return sum((e - b) * start["ranks"] for start, b, e in zip(run.starts, begins, ends, strict=True))


def _outcome(run: Run, sustained_tflops: float | None) -> list[str]:
    """Returns the cells of the run's row behind its name."""
    last = run.train[-1] if run.train else {"update": 0, "train_seconds": 0.0, "flops": 0.0}
    ppls, bleus = ([r[name] for r in run.valid if r.get(name) is not None] for name in ("ppl", "bleu"))
    seconds = last["train_seconds"]
    sustained = _device_seconds(run, seconds) * sustained_tflops * 1e12 if sustained_tflops else None
    return [
        f"{last['update']:,}",
        f"{seconds / 3600:.2f} h",
        f"{run.starts[-1]['parameters'] / 1e6:.1f}M",
        f"{min(ppls):.2f}" if ppls else "",
        f"{max(bleus):.2f}" if bleus else "",
        f"{last['flops']:.1e}",
        "" if sustained is None else f"{sustained:.1e}",
    ]
