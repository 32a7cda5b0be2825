"""metrics.jsonl of a run folder, and which of its validations are the best."""

import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from nmt import console
from nmt.files import read_bytes, replaced_file, writing

METRICS = "metrics.jsonl"

# The numbers that a report reads from each kind of record that a run has many of.
_NUMBERS = {
    "train": ("train_seconds", "flops", "loss", "ppl", "lr", "gradient_norm", "target_tokens_per_second"),
    "valid": ("train_seconds", "ppl", "bleu"),
}

# The fields of Scores that need translations, with the names that people read. --valid-metric has - for _.
TRANSLATION_SCORES = {"bleu": "BLEU", "chrf": "chrF", "paper_bleu": "paper-BLEU", "exact": "exact"}

_MAKE_ROOM = "free some space there or give another --save-dir"


class MetricsFile:
    """The records of a training. All methods raise NmtError if the file cannot be read or written."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, kind: str, values: dict[str, Any]) -> None:
        """Appends a record. Numbers that are not finite become null, and bytes of names that are not UTF-8 become ?."""
        finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}
        with writing(self.path, _MAKE_ROOM), self.path.open("a", encoding="utf-8", errors="replace") as file:
            file.write(json.dumps({"kind": kind, "time": time.time(), **finite}, ensure_ascii=False) + "\n")

    def records(self) -> list[dict[str, Any]]:
        """Returns all records in order. Skips damaged lines with a warning."""
        records = [_record(line) for line in read_bytes(self.path, "give the --save-dir of a training").splitlines()]
        if damaged := [number for number, record in enumerate(records, start=1) if record is None]:
            lines = console.counted(len(damaged), "damaged line")
            console.warn_once(f"skipped {lines} of {self.path}, the first is line {damaged[0]}")
        return [record for record in records if record is not None]

    def rewind(self, update: int | None) -> None:
        """Removes the records of what a resumed training repeats: what came after `update`; None for the beginning."""

        def is_kept(line: bytes) -> bool:
            record = _record(line)
            if record is None:
                return True
            # A fine-tuning also begins with a validation.
            return record["update"] <= (update or 0) and (update is not None or record["kind"] != "valid")

        if os.path.exists(self.path):
            content = read_bytes(self.path, "move it away or give another --save-dir")
            kept = [line + b"\n" for line in content.splitlines() if is_kept(line)]
            with replaced_file(self.path, _MAKE_ROOM) as file:
                file.write(b"".join(kept))


def _record(line: bytes) -> dict[str, Any] | None:
    """Returns the record in a line, or None if the line is damaged."""
    try:
        record = json.loads(line)
        json.dumps(record, allow_nan=False)  # a page could not show an infinite number
        numbers = [record[name] for name in _NUMBERS.get(record["kind"], ())]
        is_whole = isinstance(record["update"], int) and all(n is None or math.isfinite(n) for n in numbers)
    except (LookupError, TypeError, ValueError, OverflowError, RecursionError):
        return None
    return record if is_whole else None


def field_of(metric: str) -> str:
    """Returns the name that a metric has in `Scores` and in records."""
    return metric.replace("-", "_")


@dataclass(frozen=True)
class Scores:
    """The scores of a validation.

    Attributes:
        update: the update after which it was done.
        nll: the mean negative log-likelihood of a target piece, in nats.
        bleu, chrf, paper_bleu, exact: scores of the translations; None if they were not computed.
    """

    update: int
    nll: float
    bleu: float | None = None
    chrf: float | None = None
    paper_bleu: float | None = None
    exact: float | None = None

    @property
    def ppl(self) -> float:
        """The perplexity of a target piece."""
        return perplexity(self.nll)

    def has(self, metric: str) -> bool:
        """Returns whether the validation computed a metric."""
        return getattr(self, field_of(metric)) is not None

    def quality(self, metric: str) -> tuple[float, float]:
        """Returns what is larger for a better validation: the score, and for equal scores the negative loss."""
        score = -self.nll if metric == "nll" else getattr(self, field_of(metric))
        if score is None or math.isnan(score):
            return -math.inf, -math.inf
        return score, -math.inf if math.isnan(self.nll) else -self.nll


class Validation(NamedTuple):
    """The result of a validation.

    Attributes:
        scores: the loss, EOS included and without label smoothing; and sacreBLEU's scores of the detokenised beam
            output against the raw reference, if --valid-metric asks for them.
        bleu_signature: sacreBLEU's signature of BLEU, which names the tokeniser; None without BLEU.
        samples: the source, the reference and the output of a few lines, the same lines in every validation.
        directions: the scores of each direction of a model of several languages, such as `en-de`. `scores` has
            their means.
    """

    scores: Scores
    bleu_signature: str | None = None
    samples: Sequence[dict[str, str]] = ()
    directions: Mapping[str, Scores] = {}


def perplexity(nll: float) -> float:
    """Returns the perplexity e^nll of a loss in nats per piece, or infinity if it overflows."""
    return math.inf if nll >= 700 else math.exp(nll)


def ranked(validations: Sequence[Scores], metric: str) -> list[Scores]:
    """Returns the validations, best first. Of equally good ones, the earlier comes first."""
    return sorted(validations, key=lambda scores: scores.quality(metric), reverse=True)


def without_improvement(validations: Sequence[Scores], metrics: Sequence[str], min_delta: float) -> int:
    """Returns the number of validations since any of the metrics has improved.

    A metric has improved if its score is more than `min_delta` better than at its last improvement. The loss decides
    between equal scores if `min_delta` is 0, and between scores of 0, which BLEU has in the first validations.
    Validations that computed none of the metrics do not count.
    """
    references: dict[str, tuple[float, float]] = {}
    count = 0
    for scores in validations:
        computed = list(filter(scores.has, metrics))
        count += bool(computed)
        for metric in computed:
            score, loss = scores.quality(metric)
            best_score, best_loss = references.get(metric, (-math.inf, -math.inf))
            is_better_tie = score == best_score and loss > best_loss and (min_delta == 0 or score == 0)
            if metric not in references or score > best_score + min_delta or is_better_tie:
                references[metric], count = (score, loss), 0
    return count


def stalled_in_words(metrics: Sequence[str], patience: int) -> str:
    """Returns why --patience ends a training, such as `bleu and nll did not improve in 3 validations`."""
    return f"{' and '.join(metrics)} did not improve in {console.counted(patience, 'validation')}"
