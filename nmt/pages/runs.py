"""Reads runs for the report: their records, their state, and short names for them."""

import os
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt.console import counted
from nmt.errors import NmtError
from nmt.locks import is_locked
from nmt.training.records import METRICS, MetricsFile, Scores, best_updates, stalled_in_words


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
    def update(self) -> int:
        """The last update that has a record."""
        return max((record["update"] for record in (*self.train[-1:], *self.valid[-1:])), default=0)

    @property
    def status(self) -> str:
        """`running`, `finished`, `finished early` (by --patience), `stopped` or `failed`.

        Logs of earlier versions do not say how a training ended. It counts as stopped if updates are missing.
        """
        if self.is_active:
            return "running"
        wanted = self._options["max_updates"]
        if self.end is None:
            return "finished" if self.update >= wanted else "stopped"
        if self.end["outcome"] == "finished" and self.end["update"] < wanted:
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
        options = self._options
        # Options of nmt 0.2.0 had no --valid-metric.
        metric = options["valid_metric"][0] if "valid_metric" in options else "bleu" if options["valid_bleu"] else "nll"
        scores = [
            Scores(r["update"], r["nll"], r["bleu"], r.get("chrf")) for r in self.valid if r.get("nll") is not None
        ]
        best = best_updates(scores, metric, 1)
        return next((record for record in self.valid if record["update"] in best), None)


def read_runs(paths: Sequence[str], names: Sequence[str]) -> list[Run]:
    """Reads runs from their run folders or their metrics.jsonl.

    Args:
        names: a name for each run; if empty, the names are the parts of the paths that differ.

    Raises:
        NmtError: the numbers of names and of paths differ, two names or runs are the same, or a log cannot be read or
            has no start record.
    """
    if names and len(names) != len(paths):
        raise NmtError(
            f"--name must be given once for each of the {counted(len(paths), 'run')}, but was given "
            f"{counted(len(names), 'time')}; give as many names as runs"
        )
    if "" in names:
        raise NmtError("--name is empty; give a name for the run")
    if repeated := _repeated(names):
        raise NmtError(f"--name {repeated:.80} was given more than once; give each run its own name")
    if repeated := _repeated([os.path.realpath(_metrics(path)) for path in paths]):
        raise NmtError(f"the run of {repeated} was given more than once; give each run once")
    return [_read_run(path, name) for path, name in zip(paths, names or short_names(paths), strict=True)]


def _repeated(names: Sequence[str]) -> str | None:
    return next((name for name, count in Counter(names).items() if count > 1), None)


def version_of(paths: Sequence[str]) -> str:
    """Returns a text that changes when the records of a run change, or when its training starts or ends."""
    found = []
    for file in map(_metrics, paths):
        with suppress(OSError):
            stat = file.stat()
            found.append(f"{stat.st_size}-{stat.st_mtime_ns}-{is_locked(file.parent):d}")
    return ".".join(found)


def _metrics(path: str) -> Path:
    return Path(path, METRICS) if os.path.isdir(path) else Path(path)


def _read_run(path: str, name: str) -> Run:
    file = _metrics(path)
    records = MetricsFile(file).records()
    starts = [record for record in records if record["kind"] == "start"]
    if not starts:
        raise NmtError(f"{file} has no record of the start of a training; give the --save-dir of a training")
    last = [record for record in records if record["kind"] in ("start", "end")][-1]
    train, valid = (_ascending(records, kind) for kind in ("train", "valid"))
    return Run(name, file, starts, train, valid, last if last["kind"] == "end" else None, is_locked(file.parent))


def _ascending(records: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """Returns the records of a kind in the order of their updates; of two with the same update, the later one."""
    by_update = {record["update"]: record for record in records if record["kind"] == kind}
    return [by_update[update] for update in sorted(by_update)]


def short_names(paths: Sequence[str]) -> list[str]:
    """Returns the paths without the leading folders that all have; of one path, the last part."""
    parts = [[part for part in Path(os.path.abspath(path)).parts if part != METRICS] for path in paths]
    same = [len(set(column)) == 1 for column in zip(*(path[:-1] for path in parts), strict=False)]
    shared = same.index(False) if False in same else len(same)
    return ["/".join(path[shared:]) for path in parts]
