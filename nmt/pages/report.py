"""Reads runs, and computes the content of the report page from them."""

import math
import os
import shlex
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise, takewhile
from pathlib import Path
from statistics import median
from typing import Any

from nmt import console
from nmt.config.options import flag_name
from nmt.console import counted
from nmt.errors import NmtError
from nmt.locks import is_locked
from nmt.pages.page import page
from nmt.training.options import CONFIG
from nmt.training.records import METRICS, TRANSLATION_SCORES, MetricsFile, Scores, ranked, stalled_in_words


@dataclass(frozen=True)
class Run:
    """The records of a run.

    Attributes:
        name: a short name.
        file: the path of metrics.jsonl.
        starts: the start records, one for each time that the training was started or resumed.
        train, valid: the records of log intervals and of validations, with ascending updates.
        end: the record of the end of the training; None if it has none, or if the training was resumed after it.
        is_active: whether a training uses the run folder.
    """

    name: str
    file: Path
    starts: list[dict[str, Any]]
    train: list[dict[str, Any]]
    valid: list[dict[str, Any]]
    end: dict[str, Any] | None
    is_active: bool

    @property
    def last(self) -> dict[str, Any]:
        """The record of the last log interval."""
        return self.train[-1] if self.train else {"update": 0, "train_seconds": 0.0, "flops": 0.0}

    @property
    def update(self) -> int:
        """The last update that has a record."""
        return max((record["update"] for record in (*self.train[-1:], *self.valid[-1:])), default=0)

    @property
    def most_updates(self) -> int:
        """--max-updates. With --hours, it changes during the training."""
        latest = self.last if self.last["update"] > self.starts[-1]["update"] else {}
        return int((self._options | latest)["max_updates"])

    @property
    def status(self) -> str:
        """`running`, `finished`, `finished early` (by --patience), `stopped` or `failed`."""
        if self.is_active:
            return "running"
        if self.end is None:
            return "finished" if self.update >= self.most_updates else "stopped"
        if self.end["outcome"] == "finished" and self.end["update"] < self.end["max_updates"]:
            return "finished early"
        return str(self.end["outcome"])

    @property
    def message(self) -> str:
        """Why the training has ended; empty if it runs, or if it has made all updates."""
        if self.end is None or self.is_active:
            return ""
        if self.status == "finished early":
            reason = stalled_in_words(self._options["valid_metric"], self._options["patience"])
            return f"--patience ended it, because {reason}"
        return str(self.end["message"])

    @property
    def _options(self) -> dict[str, Any]:
        """The options of the training when it was last started or resumed."""
        return dict(self.starts[-1]["options"])

    @property
    def best(self) -> dict[str, Any] | None:
        """The record of the best validation, by the first --valid-metric; None if there is no validation."""
        records = {record["update"]: record for record in self.valid if record.get("nll") is not None}
        scores = [
            Scores(update, r["nll"], **{name: r.get(name) for name in TRANSLATION_SCORES})
            for update, r in records.items()
        ]
        best = ranked(scores, self._options["valid_metric"][0])[:1]
        return records[best[0].update] if best else None


def read_runs(paths: Sequence[str], names: Sequence[str]) -> list[Run]:
    """Reads runs from their run folders or their metrics.jsonl; by default, their names are `short_names`."""
    if names and len(names) != len(paths):
        given = f"but was given {counted(len(names), 'time')}"
        raise NmtError(f"--name must be given once for each of the {counted(len(paths), 'run')}, {given}; give as many")
    names = names or short_names(paths)
    for name, count in Counter(names).items():
        if count > 1 or not name:
            raise NmtError(f"the name {name!r:.80} is empty or of several runs; give each run its own --name")
    return [_read_run(_metrics_file(path), name) for path, name in zip(paths, names, strict=True)]


def version_of(paths: Sequence[str]) -> str:
    """Returns a text that changes when the records of a run change, or when its training starts or ends."""
    versions = []
    for file in map(_metrics_file, paths):
        with suppress(OSError):
            stat = file.stat()
            versions.append(f"{stat.st_size}-{stat.st_mtime_ns}-{is_locked(file.parent):d}")
    return ".".join(versions)


def _metrics_file(path: str) -> Path:
    return Path(path, METRICS) if os.path.isdir(path) else Path(path)


def _read_run(file: Path, name: str) -> Run:
    records = MetricsFile(file).records()
    starts = [record for record in records if record["kind"] == "start"]
    if not starts:
        raise NmtError(f"{file} has no record of the start of a training; give the --save-dir of a training")

    def ascending(kind: str) -> list[dict[str, Any]]:
        by_update = {record["update"]: record for record in records if record["kind"] == kind}  # the last of each
        return [by_update[update] for update in sorted(by_update)]

    last = [record for record in records if record["kind"] in ("start", "end")][-1]
    end = last if last["kind"] == "end" else None
    return Run(name, file, starts, ascending("train"), ascending("valid"), end, is_locked(file.parent))


def short_names(paths: Sequence[str]) -> list[str]:
    """Returns the paths without the leading folders that all have; of one path, the last part."""
    names = [[name for name in Path(os.path.abspath(path)).parts if name != METRICS] for path in paths]
    columns = zip(*(path[:-1] for path in names), strict=False)
    shared = len(list(takewhile(lambda column: len(set(column)) == 1, columns)))
    return ["/".join(path[shared:]) for path in names]


# Rows of the table of costs from the paper's Table 2: BLEU en-de and en-fr, and floating-point operations of training.
_TABLE_2 = [
    ["Transformer (base), in the paper", "", "", "", "", "27.3 / 38.1", "", "3.3e18"],
    ["Transformer (big), in the paper", "", "", "", "", "28.4 / 41.8", "", "2.3e19"],
]
_NOTE = (
    "Counted: six operations for each weight that a token is multiplied with. Sustained: training time × devices × "
    "the speed that a device sustains, as in the paper's Table 2 (9.5 TFLOP/s for its P100). The runs' BLEU is "
    "sacreBLEU's on the validation set, with the signature among the options; the paper's BLEU is its own on "
    "newstest2014, en-de / en-fr. Sustained speed"
)


def report_data(runs: list[Run], sustained_tflops: float | None) -> dict[str, Any]:
    """Returns the content of the page as JSON values; `sustained_tflops` is the speed that a device sustains."""
    note = f"{_NOTE} here: {sustained_tflops:g} TFLOP/s." if sustained_tflops else f"{_NOTE}: give --sustained-tflops."
    shown, costs = [], []
    for run in runs:
        try:
            shown.append(_shown(run))
            costs.append(_cost(run, sustained_tflops))
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            problem = f"{run.file}: a record lacks a value or has a value of the wrong type ({error!r})"
            raise NmtError(f"{problem}; run nmt report with the version of nmt that wrote it") from error
    rows = [list(costs[0]), *(list(cost.values()) for cost in costs), *_TABLE_2]
    return {"runs": shown, "cost": {"note": note, "rows": rows}}


def _shown(run: Run) -> dict[str, Any]:
    """Returns what the page shows about a run."""
    best = run.best
    samples: dict[tuple[str, ...], dict[str, Any]] = {}
    for record in run.valid:
        for sample in record["samples"]:
            line = {name: sample.get(name) for name in ("direction", "source", "reference")}
            outputs = samples.setdefault(tuple(line.values()), line | {"outputs": []})["outputs"]
            outputs.append((record["update"], sample["output"]))
    scores = "nll", "ppl", *TRANSLATION_SCORES
    directions = dict.fromkeys(name for record in run.valid for name in record.get("directions", {}))

    def of_direction(name: str) -> list[dict[str, Any]]:
        missing = dict.fromkeys(scores)
        return [record | missing | record.get("directions", {}).get(name, {}) for record in run.valid]

    return {
        "name": run.name,
        "status": run.status,
        "message": run.message,
        "facts": _facts(run),
        "outlook": _outlook(run),
        "commands": _commands(run),
        "train": _columns(run.train, ("nll", "ppl", "loss", "lr", "gradient_norm", "target_tokens_per_second")),
        "valid": _columns(run.valid, scores),
        "directions": {name: _columns(of_direction(name), scores) for name in directions},
        "best": run.valid.index(best) if best else None,
        "samples": list(samples.values()),
        "config": _config(run),
    }


def _commands(run: Run) -> list[list[str]]:
    """Returns the command that was typed, and the one that repeats what was done: names and command lines."""
    start, folder = run.starts[-1], run.file.parent
    again = shlex.join(["nmt", "train", "--config", f"{folder}/{CONFIG}", "--save-dir", f"{folder}-again"])
    commands = [["typed", start.get("typed") or start.get("command", "")]]
    return commands + [[f"repeats these {run.update:,} updates", again]] * (run.status == "finished")


def _outlook(run: Run) -> str:
    """Returns the last scores in words, whether they still improve, and what more time would probably bring."""
    valid = [record for record in run.valid if record["ppl"] is not None]
    if not valid:
        return "No validation has been made yet, so it is not known how good the model is."
    last, epoch = valid[-1], run.last.get("epoch", 0) + 1
    reached = [f"{name} {last[field]:.2f}" for field, name in TRANSLATION_SCORES.items() if last.get(field) is not None]
    scores = ", ".join([*reached, f"perplexity {last['ppl']:.2f} (1 would be perfect)"])
    words = f"The last validation has {scores}. The training is in epoch {epoch}."
    earlier = min(valid[:-1], key=lambda record: abs(record["update"] - last["update"] / 2), default=last)
    if not last["update"] or not last["update"] / 4 <= earlier["update"] <= 3 * last["update"] / 4:
        return f"{words} There are too few validations to say whether more time would help."
    since = f"since update {earlier['update']:,} of {last['update']:,}"
    fall = 1 - last["ppl"] / earlier["ppl"]
    if fall <= -0.02:
        return f"{words} Perplexity has risen by {-fall:.0%} {since}: more text would help, and more time would not."
    if fall < 0.02:
        return f"{words} Perplexity has hardly fallen {since}: more text would help more than time."
    fallen = f"{words} Perplexity has fallen by {fall:.0%} {since}"
    return f"{fallen}: the same time again would probably help, but by less than that."


def _columns(records: list[dict[str, Any]], names: Sequence[str]) -> dict[str, list[float | None]]:
    """Returns the values of each name, in the order of the records; a missing value is null."""
    values = {name: [record.get(name) for record in records] for name in names}
    return {
        "update": [record["update"] for record in records],
        "train_seconds": [round(record["train_seconds"], 3) for record in records],
        **{name: [None if v is None else float(f"{v:.7g}") for v in column] for name, column in values.items()},
    }


def _facts(run: Run) -> list[list[str]]:
    """Returns what the page shows first about a run: names, values and notes."""
    last = run.last
    facts = [["updates", f"{run.update:,}", f"of {run.most_updates:,}"]]
    for field, name in TRANSLATION_SCORES.items():
        if scored := [record for record in run.valid if record.get(field) is not None]:
            top = max(scored, key=lambda record: (record[field], -(record["ppl"] or math.inf)))
            facts.append([f"best {name}", f"{top[field]:.2f}", f"at update {top['update']:,}"])
    left = ""
    if run.status == "running" and last["update"]:
        seconds = last["train_seconds"] / last["update"] * (run.most_updates - last["update"])
        left = f"about {console.clock(seconds)} left"
    facts.append(["training time", console.clock(last["train_seconds"]), left])
    speeds = [record["target_tokens_per_second"] for record in run.train]
    if known := [speed for speed in speeds if speed is not None]:
        facts.append(["speed", f"{median(known):,.0f}", "target tokens a second"])
    return [*facts, ["cost", f"{last['flops']:.1e}", "FLOPs counted"]]


def _config(run: Run) -> dict[str, str]:
    """Returns the options and the provenance of a run as text, by name."""
    start = run.starts[-1]
    sizes, text = start["vocab_sizes"], start["text"]
    values: dict[str, Any] = {
        "run folder": run.file.parent,
        "languages": ", ".join(text.get("languages", [])) or f"{text['source_lang']} -> {text['target_lang']}",
        "training pairs": f"{start['pairs']:,}",
        "vocabulary": f"{sizes['source']:,} / {sizes['target']:,} {text['subword']} pieces",
        "parameters": f"{start['parameters']:,}",
        "BLEU tokenizer and signature": run.valid[-1].get("bleu_signature") if run.valid else None,
        **{flag_name(name): value for name, value in (start["options"] | start["model"]).items()},
        **{name: start[name] for name in ("device", "precision", "ranks", "nmt", "torch", "python", "data", "written")},
        "data": start["data"][:12],
    }
    texts = {name: " ".join(map(str, value)) if isinstance(value, list) else value for name, value in values.items()}
    return {name: "" if text is None else str(text) for name, text in texts.items()}


def _cost(run: Run, sustained_tflops: float | None) -> dict[str, str]:
    """Returns the run's row of the table of costs, by column."""
    ppls, bleus = ([r[name] for r in run.valid if r.get(name) is not None] for name in ("ppl", "bleu"))
    seconds = run.last["train_seconds"]
    times = pairwise([*(start["train_seconds"] for start in run.starts), seconds])
    # The number of devices may differ after each start.
    device_seconds = sum((end - begin) * start["ranks"] for start, (begin, end) in zip(run.starts, times, strict=True))
    return {
        "run": run.name,
        "updates": f"{run.last['update']:,}",
        "training time": f"{seconds / 3600:.2f} h",
        "parameters": f"{run.starts[-1]['parameters'] / 1e6:.1f}M",
        "best validation PPL": f"{min(ppls):.2f}" if ppls else "",
        "best BLEU": f"{max(bleus):.2f}" if bleus else "",
        "FLOPs counted": f"{run.last['flops']:.1e}",
        "FLOPs sustained": f"{device_seconds * sustained_tflops * 1e12:.1e}" if sustained_tflops else "",
    }


def report_page(data: dict[str, Any]) -> str:
    """Returns the page with the content that `report_data` returned."""
    return page("report", ", ".join(run["name"] for run in data["runs"]), data)
