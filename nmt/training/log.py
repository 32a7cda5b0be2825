"""What a training prints and records: its plan, intervals, validations and end."""

import shlex
import sys
from collections.abc import Mapping
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

from rich.text import Text

from nmt import console
from nmt.data.batching import UpdatePlan
from nmt.data.folder import DataFolder, raw_names
from nmt.files import writing
from nmt.text.languages import listed_codes
from nmt.training.learning_rate import learning_rate
from nmt.training.options import command_line
from nmt.training.records import TRANSLATION_SCORES, Scores, Validation, stalled_in_words
from nmt.training.run_folder import AVERAGE, BEST, RunFolder, numbered
from nmt.training.state import Training
from nmt.training.update import Interval

_WITHOUT_EVENTS = "make room for it, or leave out --tensorboard"
# The longest part of a sample sentence that is printed, in columns: the rest of 80 columns.
_SAMPLE_WIDTH = 65
# The header is repeated after so many lines, which fill a screen.
_SCREEN = 22
# Checkpoints that the proposed command averages at most, as the paper's base models do.
_AVERAGED = 5


class TrainingLog:
    """Prints the course of a training on the main rank, and records it in metrics.jsonl and event files of TensorBoard.

    Each interval is a row of a table, whose header is repeated on each screen.
    """

    def __init__(self, training: Training, folder: RunFolder) -> None:
        self.training, self.folder = training, folder
        self._lines = _SCREEN  # since the header
        self._events: Any = None  # a SummaryWriter

    def begin(self, provenance: Mapping[str, Any]) -> None:
        """Records the start of the training. Begins an event file, which replaces later events of earlier files."""
        training, codec = self.training, self.training.data.codec
        self._record("start", {
            "typed": shlex.join(["nmt", *sys.argv[1:]]) if console.prints() else None,
            "command": command_line(str(training.data.path), training.model_config, training.config),
            "train_seconds": training.counters.seconds,
            "model": training.model_config.to_dict(),
            "parameters": training.parameters,
            "text": codec.config.to_dict(),
            "vocab_sizes": {"source": len(codec.source), "target": len(codec.target)},
            "pairs": len(training.data.split("train")),
            "device": training.runtime.name,
            **provenance,
        })  # fmt: skip
        if training.config.tensorboard and training.world.is_main:
            from torch.utils.tensorboard import SummaryWriter

            path = self.folder.path / "tensorboard"
            with writing(path, _WITHOUT_EVENTS):
                self._events = SummaryWriter(str(path), purge_step=training.counters.update + 1)

    def _record(self, kind: str, values: Mapping[str, Any]) -> None:
        """Adds a record, and its numbers as events such as `train/loss`."""
        if not self.training.world.is_main:
            return
        record = {"update": self.training.counters.update, **values}
        self.folder.metrics.append(kind, record)
        if self._events:
            with writing(self.folder.path / "tensorboard", _WITHOUT_EVENTS):
                for name, value in record.items():
                    if isinstance(value, int | float) and name not in ("update", "epoch"):
                        self._events.add_scalar(f"{kind}/{name}", value, record["update"])
                self._events.flush()

    def interval(self, interval: Interval, seconds_left: float) -> None:
        """Logs an interval; all ranks must call this method."""
        training, counters = self.training, self.training.counters
        sums = interval.record(training.world)
        rate = learning_rate(counters.update, training.model_config.d_model, training.config)
        self._record("train", {
            "epoch": counters.epoch,
            **sums,
            "lr": rate,
            "peak_memory_mib": training.runtime.peak_memory_mib,
            "flops": counters.flops,
            "train_seconds": counters.seconds,
            "max_updates": training.config.max_updates,  # which the clock may change
        })  # fmt: skip
        if self._lines >= _SCREEN:
            console.info("   update epoch    loss       ppl        lr   norm    tok/s   elapsed      left")
            self._lines = 0
        self._lines += 1
        elapsed = console.clock(counters.seconds)
        left = console.clock(round(seconds_left, -1) if seconds_left > 60 else seconds_left)
        count = int(sums["skipped_updates"])
        skipped = f"\n{'':9}  {console.counted(count, 'update')} skipped" if count else ""
        console.info(
            f"{counters.update:9,}{counters.epoch + 1:6,}{sums['loss']:8.3f}{_short(sums['ppl']):>10}{rate:10.2e}"
            f"{_short(sums['gradient_norm']):>7}{sums['target_tokens_per_second']:9,.0f}{elapsed:>10}{left:>10}{skipped}"
        )

    def validation(self, validation: Validation, seconds: float, *, is_best: bool) -> None:
        """Logs the result of a validation that took `seconds`, and one translation."""
        scores, best = validation.scores, ", best so far" if is_best else ""
        result = f"{_in_words(scores)}{best} ({seconds:,.0f} s)"
        console.info(console.filled(f"validation at update {scores.update:,}: {result}", 2))
        width = max(map(len, validation.directions), default=0)
        for direction, direction_scores in validation.directions.items():
            console.info(f"  {direction:<{width}}  {_in_words(direction_scores)}")
        for sample in validation.samples[:1]:
            for name, text in zip(("source", "reference", "translation"), sample.values(), strict=False):
                shown = Text(text)
                shown.truncate(_SAMPLE_WIDTH, overflow="ellipsis")
                console.info(f"  {name:<13}{shown}")
        self._lines += 1 + len(validation.directions) + 3 * bool(validation.samples)
        others = {"ppl": scores.ppl, "bleu_signature": validation.bleu_signature, "samples": validation.samples}
        by_direction = {name: asdict(each) | {"ppl": each.ppl} for name, each in validation.directions.items()}
        directions = {"directions": by_direction} if by_direction else {}
        train_seconds = self.training.counters.seconds
        self._record("valid", {**asdict(scores), **others, **directions, "train_seconds": train_seconds})

    def end(self, outcome: str, message: str = "") -> None:
        """Records how the training ended: `finished`, `stopped` or `failed`."""
        updates = {"max_updates": self.training.config.max_updates} if outcome == "finished" else {}
        self._record("end", {"outcome": outcome, "message": message, **updates})

    def show_end(self, prefix: str = "") -> None:
        """Says that --patience ended the training, or with a prefix that the training has all its updates."""
        config, update = self.training.config, self.training.counters.update
        if self.training.out_of_patience:
            reason = stalled_in_words(config.valid_metric, config.patience or 0)
            console.info(
                f"{prefix}{self.folder.path} stopped at update {update:,}, because {reason}; "
                f"best.safetensors is of update {self.training.best_first[0].update:,}"
            )
        elif prefix:
            console.info(
                f"{prefix}{self.folder.path} has all {update:,} updates; to train more, raise --max-updates; to train "
                f"anew, also with other options, give another --save-dir"
            )

    def summary(self) -> None:
        """Prints the time of a finished training, its best checkpoint, and the next commands."""
        counters, folder = self.training.counters, self.folder
        console.info(
            f"finished {console.counted(counters.update, 'update')} after {console.clock(counters.seconds)} of training"
        )
        for best in self.training.best_first[:1]:
            console.info(f"{'best':>10}  {folder.path / BEST}, of update {best.update:,}: {_in_words(best)}")
        for i, command in enumerate(next_commands(self.training, folder)):
            words = (shlex.quote(word).replace(" ", "\0") for word in shlex.split(command))  # lines end between words
            lines = console.filled(" ".join(words), 14, f"{'' if i else 'next':>10}  ", 78)
            console.info(lines.replace("\n", " \\\n").replace("\0", " "))


def _in_words(scores: Scores) -> str:
    """Returns the scores of a validation, such as `nll 1.500, ppl 4.48, BLEU 31.20`."""
    named = [(name, getattr(scores, field)) for field, name in TRANSLATION_SCORES.items()]
    translated = [f"{name} {score:.2f}" for name, score in named if score is not None]
    return ", ".join([f"nll {scores.nll:.3f}", f"ppl {_short(scores.ppl)}", *translated])


def _short(value: float) -> str:
    return f"{value:.2f}" if abs(value) < 100_000 else f"{value:.1e}"


# The padding share is computed over this many updates.
_SAMPLED_UPDATES = 100


def show_plan(training: Training, plan: UpdatePlan) -> None:
    """Logs the plan of a training, and warnings about options that do not fit the corpus."""
    data, model, config = training.data, training.model_config, training.config
    text = data.codec.config
    sizes = f"{len(data.codec.source):,}" + ("" if text.joint_vocab else f" and {len(data.codec.target):,}")
    ranks = training.world.size
    padding = "no padding between sentences"
    if not training.packs:
        padding = f"{plan.padding_share(training.device_tokens, _SAMPLED_UPDATES):.1%} padding"
    pairs, epochs = len(plan.lengths[0]), config.max_updates / len(plan)
    show_lines({
        "model": (f"{config.arch}: " if config.arch else "")
        + model.in_words()
        + f", {training.parameters:,} parameters"
        + (f", {' and '.join(config.freeze)} frozen" if config.freeze else "")
        + (f", {training.learned:,} of them learn with --lora {config.lora}" if config.lora else ""),
        "vocabulary": f"{sizes} {text.subword} pieces, {'joint' if text.joint_vocab else 'separate'}",
        "data": f"{_languages(data)}, {pairs:,} pairs, "
        f"{plan.totals[1]:,} target tokens",
        "batches": f"{config.batch_tokens:,} tokens an update in {console.counted(config.batch_groups, 'group')}, "
        f"{console.counted(len(plan), 'update')} an epoch, {padding}",
        "device": training.hardware + (f", {ranks} processes" if ranks > 1 else ""),
        "run": f"{config.save_dir}, up to update {config.max_updates:,}",
    })  # fmt: skip
    if epochs > 2000:  # the paper's base model takes 22 epochs of WMT14; small corpora need about 100
        console.warn(
            f"--max-updates {config.max_updates:,} is {epochs:,.0f} epochs of {pairs:,} pairs; a corpus of this size "
            f"needs fewer updates, and a smaller --batch-tokens, --warmup-updates and --arch"
        )
    if config.freeze and config.init_from is None:
        console.warn(f"--freeze without --init-from keeps the random weights of the {' and the '.join(config.freeze)}")
    if config.warmup_updates > config.max_updates:
        console.warn(
            f"--warmup-updates {config.warmup_updates:,} is more than --max-updates {config.max_updates:,}, so the "
            f"learning rate never reaches its peak; lower --warmup-updates"
        )


def _languages(data: DataFolder) -> str:
    """Returns the languages of the training pairs, which may be fewer than those of the model."""
    if not data.trained:
        return data.codec.config.in_words
    return (
        f"{listed_codes(set(chain.from_iterable(data.trained)))} in {console.counted(len(data.trained), 'direction')}"
    )


def show_lines(lines: Mapping[str, str]) -> None:
    """Logs names and values below each other."""
    for name, value in lines.items():
        console.info(console.filled(value, 12, f"{name:>10}  "))


def next_commands(training: Training, folder: RunFolder) -> list[str]:
    """Returns commands that average, translate, score and look at the run. The files that they read exist."""
    snapshots = len(numbered(folder.path, "snapshot"))
    averaged = training.config.average_last or snapshots > 1
    checkpoint, commands = folder.path / (AVERAGE if averaged else BEST), []
    if averaged and not training.config.average_last:
        last = min(_AVERAGED, snapshots)
        commands.append(_joined("nmt average-checkpoints", folder.path, "--last", last, "--output", checkpoint))
    text, data = training.data.codec.config, training.data
    split = "test" if "test" in data.meta.splits else "valid"
    direction = next(iter(data.directions(split)))  # the others are translated alike
    source, reference = (data.path / name for name in raw_names(split, direction, text))
    output = folder.path / f"{split}.out.{direction.target}"
    named = ["--source-lang", direction.source, "--target-lang", direction.target] if text.languages else []
    commands.append(_joined("nmt generate", checkpoint, *named, "--input", source, "--output", output))
    if not data.meta.options.get("symbols"):  # such outputs may be trees, for which BLEU is the wrong metric
        words: list[Path | str] = [reference, "--hypothesis", output, "--target-lang", direction.target]
        words += ["--lowercase"] * text.lowercase
        commands.append(_joined("nmt score --reference", *words))
    return [*commands, _joined("nmt serve", checkpoint), _joined("nmt report", folder.path)]


def _joined(command: str, *words: Path | str | int) -> str:
    """Returns a command line. A path that begins with a dash would be taken for an option."""
    texts = (f"./{word}" if isinstance(word, Path) and str(word).startswith("-") else str(word) for word in words)
    return " ".join([command, *map(shlex.quote, texts)])
