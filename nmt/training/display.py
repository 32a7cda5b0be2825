"""What a training prints while it runs: a table of intervals, and the results of validations."""

from typing import Any

from nmt import console
from nmt.training.validation import Sample, Validation

_COLUMNS = {
    "update": 9, "epoch": 6, "loss": 8, "ppl": 10, "lr": 10, "norm": 7, "tok/s": 9, "elapsed": 10, "left": 10
}  # fmt: skip
# The longest part of a sample sentence that is printed, in characters.
_SAMPLE_LENGTH = 160


class TrainingTable:
    """Prints one row for each interval, below a header that is repeated after other results."""

    def __init__(self) -> None:
        self._needs_header = True

    def interval(self, record: dict[str, Any], seconds_left: float) -> None:
        """Prints the record of an interval."""
        if self._needs_header:
            console.info("".join(name.rjust(width) for name, width in _COLUMNS.items()))
            self._needs_header = False
        cells = {
            "update": f"{record['update']:,}",
            "epoch": f"{record['epoch'] + 1:,}",
            "loss": f"{record['loss']:.3f}",
            "ppl": _short(record["ppl"]),
            "lr": f"{record['lr']:.2e}",
            "norm": _short(record["gradient_norm"]),
            "tok/s": f"{record['target_tokens_per_second']:,.0f}",
            "elapsed": console.clock(record["train_seconds"]),
            "left": console.clock(seconds_left),
        }
        skipped = f"  {record['skipped_updates']} skipped" if record["skipped_updates"] else ""
        console.info("".join(cell.rjust(_COLUMNS[name]) for name, cell in cells.items()) + skipped)

    def validation(self, update: int, found: Validation, is_best: bool, seconds: float) -> None:
        """Prints the result of a validation that took `seconds`, and one translation."""
        scores = scores_in_words(found.nll, found.ppl, found.bleu, found.chrf)
        console.info(
            f"validation at update {update:,}: {scores}{', the best so far' if is_best else ''} "
            f"({console.clock(seconds)})"
        )
        if found.samples:
            _show_sample(found.samples[0])
        self._needs_header = True


def scores_in_words(nll: float, ppl: float, bleu: float | None, chrf: float | None) -> str:
    """Returns the scores of a validation, such as `nll 1.500, ppl 4.48, BLEU 31.20`."""
    translated = [f"{name} {score:.2f}" for name, score in (("BLEU", bleu), ("chrF", chrf)) if score is not None]
    return ", ".join([f"nll {nll:.3f}", f"ppl {_short(ppl)}", *translated])


def _show_sample(sample: Sample) -> None:
    for name, text in (("source", sample.source), ("reference", sample.reference), ("translation", sample.output)):
        shown = text if len(text) <= _SAMPLE_LENGTH else f"{text[: _SAMPLE_LENGTH - 1]}…"
        console.info(f"  {name:<13}{shown}")


def _short(value: float) -> str:
    return f"{value:.2f}" if abs(value) < 100_000 else f"{value:.1e}"
