"""Reads and writes metrics.jsonl of a run folder: the records of a training, one JSON object per line.

A full disk or a power failure may leave a damaged line. Such a line does not stop a training, and the other records
remain readable.
"""

import json
import math
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

from nmt import console
from nmt.data.plain import COUNT, NUMBER, NUMBER_OR_NULL, TEXT, TEXT_OR_NULL, Schema, first_problem, parse_json
from nmt.data.regular import open_regular
from nmt.errors import NmtError
from nmt.files import replaced_file, writing

METRICS = "metrics.jsonl"

_ANY: Schema = {"kind": TEXT, "update": COUNT}
# The fields that a report reads from the kinds of records that a run has many of.
_OF_KIND: dict[str, Schema] = {
    "train": {
        "train_seconds": NUMBER,
        "flops": NUMBER,
        "loss": NUMBER_OR_NULL,
        "nll?": NUMBER_OR_NULL,
        "ppl": NUMBER_OR_NULL,
        "lr": NUMBER_OR_NULL,
        "gradient_norm": NUMBER_OR_NULL,
        "target_tokens_per_second": NUMBER_OR_NULL,
    },
    "valid": {
        "train_seconds": NUMBER,
        "ppl": NUMBER_OR_NULL,
        "bleu": NUMBER_OR_NULL,
        "chrf?": NUMBER_OR_NULL,
        "bleu_signature?": TEXT_OR_NULL,
        "nll?": NUMBER_OR_NULL,
        "samples": [{"source": TEXT, "reference": TEXT, "output": TEXT}],
    },
    "end": {"outcome": TEXT, "message": TEXT},
}


_MOVE = "move it away or give another --save-dir"
_MAKE_ROOM = "free some space there or give another --save-dir"


class _Line(NamedTuple):
    """A line of the file.

    Attributes:
        number: the number of the line, from 1.
        text: its bytes without the newline.
        record: its content; None if the line is damaged.
        ended: whether it ends with a newline; otherwise a training may still be writing it.
    """

    number: int
    text: bytes
    record: dict[str, Any] | None
    ended: bool


class MetricsFile:
    """The records of a training. All methods raise NmtError if the file cannot be read or written."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, kind: str, values: dict[str, Any]) -> None:
        """Appends a record. Numbers that are not finite become null, and bytes of names that are not UTF-8 become ?."""
        finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}
        line = json.dumps({"kind": kind, "time": time.time(), **finite}, ensure_ascii=False) + "\n"
        with writing(self.path, _MAKE_ROOM), self.path.open("a", encoding="utf-8", errors="replace") as file:
            file.write(line)

    def records(self) -> list[dict[str, Any]]:
        """Returns all records in order, without damaged lines.

        Logs a warning about damaged lines, but not about a last line that may still be incomplete.
        """
        lines = self._lines("give the --save-dir of a training")
        if damaged := [line for line in lines if line.record is None and line.ended]:
            console.warn_once(f"skipped {self._described(damaged)}")
        return [line.record for line in lines if line.record is not None]

    def rewind(self, update: int) -> None:
        """Removes the records of updates after `update`, because a resumed training repeats these updates.

        If `update` is 0, training starts anew and repeats even a validation before the first update. Damaged lines are
        moved to another file in the same folder.
        """
        if not os.path.exists(self.path):
            return
        lines = self._lines(_MOVE)
        if damaged := [line for line in lines if line.record is None]:
            self._set_aside(damaged)
        kept = [line.text + b"\n" for line in lines if line.record is not None and not _repeats(line.record, update)]
        with replaced_file(self.path, _MAKE_ROOM) as file:
            file.write(b"".join(kept))

    def _lines(self, advice: str) -> list[_Line]:
        try:
            with open_regular(self.path) as file:
                *ended, rest = file.read().split(b"\n")
        except OSError as error:
            raise NmtError(f"{self.path} cannot be read ({error.strerror}); {advice}") from error
        lines = [_Line(number, text, _record(text), True) for number, text in enumerate(ended, start=1) if text]
        return [*lines, _Line(len(ended) + 1, rest, _record(rest), False)] if rest else lines

    def _set_aside(self, damaged: list[_Line]) -> None:
        path = self.path.with_name(f"{self.path.name}.damaged")
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        with writing(path, _MOVE), open(os.open(path, flags, 0o666), "ab") as file:
            file.write(b"".join(line.text + b"\n" for line in damaged))
            file.flush()
            os.fsync(file.fileno())
        console.warn(f"moved {self._described(damaged)} to {path.name}")

    def _described(self, damaged: list[_Line]) -> str:
        if len(damaged) == 1:
            return f"damaged line {damaged[0].number} of {self.path}"
        return f"{len(damaged):,} damaged lines of {self.path} (the first is line {damaged[0].number})"


def _repeats(record: dict[str, Any], update: int) -> bool:
    return bool(record["update"] > update or (update == 0 and record["kind"] == "valid"))


def _record(line: bytes) -> dict[str, Any] | None:
    """Returns the record in a line, or None if the line is damaged."""
    try:
        record = parse_json(line)
    except ValueError:
        return None
    if first_problem(record, _ANY) or first_problem(record, _OF_KIND.get(record["kind"], {})):
        return None
    return dict(record)
