"""What a training prints and records: its plan, intervals, validations, its end, and where a model comes from."""

import math
import platform
import shlex
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

import nmt
from nmt import console
from nmt.data.batching import PLAN_VERSION, UpdatePlan
from nmt.data.folder import raw_name
from nmt.data.loader import MicroBatch
from nmt.errors import importing
from nmt.files import writing
from nmt.training.ranks import World
from nmt.training.records import Scores, perplexity, ranked
from nmt.training.run_folder import AVERAGE, BEST, RunFolder, command_line, numbered
from nmt.training.state import Setup, TrainState
from nmt.training.validation import Validation


def provenance_of(setup: Setup, state: TrainState) -> dict[str, Any]:
    """Returns the provenance of a checkpoint of this state."""
    update = state.counters.update
    last = state.validations[-1] if state.validations else None
    return {
        "nmt": nmt.__version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "data": setup.data.meta.fingerprint,
        "options": setup.config.to_dict(),
        "precision": setup.runtime.precision,
        "ranks": setup.world.size,
        "plan": PLAN_VERSION,
        "update": update,
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        **({"validation": asdict(last)} if last and last.update == update else {}),
    }


def start_record(setup: Setup, state: TrainState) -> dict[str, Any]:
    """Returns the start record of metrics.jsonl."""
    codec = setup.data.codec
    return {
        "command": command_line(str(setup.data.path), setup.model_config, setup.config),
        "train_seconds": state.counters.seconds,
        "model": setup.model_config.to_dict(),
        "parameters": state.parameters,
        "text": codec.config.to_dict(),
        "vocab_sizes": {"source": len(codec.source), "target": len(codec.target)},
        "pairs": len(setup.data.split("train")),
        "device": setup.runtime.name,
        **provenance_of(setup, state),
    }


@dataclass
class Interval:
    """Sums over the updates since the last log line.

    Sums of losses and tokens cover this rank's share of the updates. Tensors stay on the device until they are read.

    Attributes:
        updates: the number of updates.
        trained: sums over the updates that were not skipped: loss, nll, gradient norm, target tokens, updates; [5].
        source_tokens, target_tokens: sums over all updates, padding left out.
        positions: the positions of both sides in all updates, padding included.
        started: the monotonic time at which the interval began, plus the time of excluded work.
    """

    updates: int = 0
    trained: torch.Tensor = field(default_factory=lambda: torch.zeros(()))
    source_tokens: int = 0
    target_tokens: int = 0
    positions: int = 0
    started: float = field(default_factory=time.monotonic)

    def add(self, batches: list[MicroBatch], losses: torch.Tensor, norm: torch.Tensor, skipped: torch.Tensor) -> None:
        """Adds an update."""
        self.updates += 1
        tokens = sum(batch.target_tokens for batch in batches)
        sums = torch.stack([*losses, norm, torch.full_like(norm, tokens), torch.ones_like(norm)])
        self.trained = self.trained + torch.where(skipped > 0, 0.0, sums)
        self.target_tokens += tokens
        self.source_tokens += sum(batch.source_tokens for batch in batches)
        self.positions += sum(batch.positions for batch in batches)

    def exclude(self, work: Callable[[], None]) -> None:
        """Runs `work` without counting its time in this interval."""
        before = time.monotonic()
        work()
        self.started += time.monotonic() - before

    def record(self, world: World) -> dict[str, float]:
        """Returns the metrics of the interval over all ranks, which must all call this method."""
        loss, nll, norm, trained, updates = self.trained.tolist()
        shares = (loss, nll, trained, self.source_tokens, self.target_tokens, self.positions)
        loss, nll, trained, source, target, positions = (sum(x) for x in zip(*world.gather(shares), strict=True))
        seconds = time.monotonic() - self.started  # the sums above have waited for the device
        return {
            "loss": _ratio(loss, trained),
            "nll": _ratio(nll, trained),
            "ppl": perplexity(_ratio(nll, trained)),
            "gradient_norm": _ratio(norm, updates),
            "skipped_updates": self.updates - int(updates),
            "source_tokens_per_second": source / seconds,
            "target_tokens_per_second": target / seconds,
            "padding_share": 1 - (source + target) / positions,
        }


def _ratio(total: float, count: float) -> float:
    return total / count if count else math.nan


# The longest part of a sample sentence that is printed, in characters.
_SAMPLE_LENGTH = 160


class TrainingTable:
    """Prints one row for each interval, below a header that is repeated after other results."""

    def __init__(self) -> None:
        self._needs_header = True

    def interval(self, update: int, record: dict[str, Any], seconds_left: float) -> None:
        """Prints the record of an interval."""
        if self._needs_header:
            console.info("   update epoch    loss       ppl        lr   norm    tok/s   elapsed      left")
            self._needs_header = False
        elapsed, left = console.clock(record["train_seconds"]), console.clock(seconds_left)
        skipped = f"  {record['skipped_updates']} skipped" if record["skipped_updates"] else ""
        console.info(
            f"{update:9,}{record['epoch'] + 1:6,}{record['loss']:8.3f}{_short(record['ppl']):>10}"
            f"{record['lr']:10.2e}{_short(record['gradient_norm']):>7}{record['target_tokens_per_second']:9,.0f}"
            f"{elapsed:>10}{left:>10}{skipped}"
        )

    def validation(self, found: Validation, is_best: bool, seconds: float) -> None:
        """Prints the result of a validation that took `seconds`, and one translation."""
        console.info(
            f"validation at update {found.scores.update:,}: {_in_words(found.scores)}"
            f"{', the best so far' if is_best else ''} ({console.clock(seconds)})"
        )
        if found.samples:
            _show_sample(**found.samples[0])
        self._needs_header = True


def _in_words(scores: Scores) -> str:
    """Returns the scores of a validation, such as `nll 1.500, ppl 4.48, BLEU 31.20`."""
    found = (("BLEU", scores.bleu), ("chrF", scores.chrf))
    translated = [f"{name} {score:.2f}" for name, score in found if score is not None]
    return ", ".join([f"nll {scores.nll:.3f}", f"ppl {_short(scores.ppl)}", *translated])


def _show_sample(source: str, reference: str, output: str) -> None:
    for name, text in (("source", source), ("reference", reference), ("translation", output)):
        shown = text if len(text) <= _SAMPLE_LENGTH else f"{text[: _SAMPLE_LENGTH - 1]}…"
        console.info(f"  {name:<13}{shown}")


def _short(value: float) -> str:
    return f"{value:.2f}" if abs(value) < 100_000 else f"{value:.1e}"


# The padding share is computed over this many updates.
_SAMPLED_UPDATES = 100
# More epochs than this cause a warning. The paper's base model takes 22 epochs of WMT14; small corpora need about 100.
_MANY_EPOCHS = 2000


def show_plan(setup: Setup, state: TrainState, plan: UpdatePlan) -> None:
    """Logs the plan of a training, and warnings about options that do not fit the corpus."""
    show_lines(_plan_lines(setup, state, plan))
    _warn_of_unsuitable_options(setup, plan)


def show_lines(lines: Mapping[str, str]) -> None:
    """Logs names and values below each other."""
    for name, value in lines.items():
        console.info(f"{name:>10}  {value}")


def _plan_lines(setup: Setup, state: TrainState, plan: UpdatePlan) -> dict[str, str]:
    data, model, config = setup.data, setup.model_config, setup.config
    text = data.codec.config
    sizes = f"{len(data.codec.source):,}" + ("" if text.joint_vocab else f" and {len(data.codec.target):,}")
    processes = f", {setup.world.size} processes" if setup.world.size > 1 else ""
    name = f"{config.arch}: " if config.arch else ""
    if state.gradients.packs:
        padding = "no padding between sentences"
    else:
        padding = f"{plan.padding_share(state.device_tokens(setup), _SAMPLED_UPDATES):.1%} padding"
    return {
        "model": f"{name}{model.in_words()}, {state.parameters:,} parameters"
        + (f", {' and '.join(config.freeze)} frozen" if config.freeze else ""),
        "vocabulary": f"{sizes} {text.subword} pieces, {'joint' if text.joint_vocab else 'separate'}",
        "data": f"{text.source_lang} -> {text.target_lang}, {len(plan.source_lengths):,} pairs, "
        f"{plan.totals[1]:,} target tokens",
        "batches": f"{config.batch_tokens:,} tokens an update in {console.counted(config.batch_groups, 'group')}, "
        f"{console.counted(len(plan), 'update')} an epoch, {padding}",
        "device": f"{state.gradients.hardware}{processes}",
        "run": f"{config.save_dir}, up to update {config.max_updates:,}",
    }


def _warn_of_unsuitable_options(setup: Setup, plan: UpdatePlan) -> None:
    config = setup.config
    pairs, epochs = len(plan.source_lengths), config.max_updates / len(plan)
    if epochs > _MANY_EPOCHS:
        console.warn(
            f"--max-updates {config.max_updates:,} is {epochs:,.0f} epochs of {pairs:,} pairs; a corpus of this size "
            f"needs fewer updates, and a smaller --batch-tokens, --warmup-updates and --arch"
        )
    if config.warmup_updates > config.max_updates:
        console.warn(
            f"--warmup-updates {config.warmup_updates:,} is more than --max-updates {config.max_updates:,}, so the "
            f"learning rate never reaches its peak; lower --warmup-updates"
        )
    if pairs < len(plan) * setup.world.size:
        console.warn(
            f"{pairs:,} pairs in {len(plan):,} updates are too few for {setup.world.size} processes; "
            f"raise --batch-tokens or use fewer processes"
        )


# Checkpoints that the proposed command averages at most, as the paper's base models do.
_AVERAGED = 5


def show_summary(setup: Setup, state: TrainState, folder: RunFolder) -> None:
    """Prints the time of a finished training, its best checkpoint, and the next commands."""
    counters = state.counters
    console.info(
        f"finished {console.counted(counters.update, 'update')} after {console.clock(counters.seconds)} of training"
    )
    for best in ranked(state.validations, setup.config.valid_metric[0])[:1]:
        console.info(f"{'best':>10}  {folder.path / BEST}, of update {best.update:,}: {_in_words(best)}")
    for i, command in enumerate(next_commands(setup, folder)):
        console.info(f"{'' if i else 'next':>10}  {command}")


def next_commands(setup: Setup, folder: RunFolder) -> list[str]:
    """Returns commands that average, translate, score and look at the run. The files that they read exist."""
    snapshots = len(numbered(folder.path, "snapshot"))
    averaged = setup.config.average_last or snapshots > 1
    checkpoint, commands = folder.path / (AVERAGE if averaged else BEST), []
    if averaged and not setup.config.average_last:
        last = min(_AVERAGED, snapshots)
        commands.append(_joined("nmt average-checkpoints", folder.path, "--last", last, "--output", checkpoint))
    text = setup.data.codec.config
    split = "test" if "test" in setup.data.meta.splits else "valid"
    source, reference = (setup.data.path / raw_name(split, lang) for lang in (text.source_lang, text.target_lang))
    output = folder.path / f"{split}.out.{text.target_lang}"
    commands.append(_joined("nmt generate", checkpoint, "--input", source, "--output", output))
    if setup.config.translates:  # otherwise the outputs may be trees, for which BLEU is the wrong metric
        words = reference, "--hypothesis", output, "--target-lang", text.target_lang
        commands.append(_joined("nmt score --reference", *words))
    return [*commands, _joined("nmt report", folder.path)]


def _joined(command: str, *words: Path | str | int) -> str:
    """Returns a command line. A path that begins with a dash would be taken for an option."""
    texts = (f"./{word}" if isinstance(word, Path) and str(word).startswith("-") else str(word) for word in words)
    return " ".join([command, *map(shlex.quote, texts)])


def require_tensorboard() -> None:
    """Checks that TensorBoard can be used."""
    with importing("tensorboard", "--tensorboard"):
        import torch.utils.tensorboard  # noqa: F401


class EventFiles:
    """The event files of a run folder, for TensorBoard."""

    def __init__(self, folder: Path, resumed_after: int) -> None:
        """Begins an event file. TensorBoard ignores events after update `resumed_after` from earlier files."""
        from torch.utils.tensorboard import SummaryWriter

        self._path = folder / "tensorboard"
        with self._writing():
            self._writer = SummaryWriter(str(self._path), purge_step=resumed_after + 1)

    def add(self, kind: str, record: Mapping[str, Any]) -> None:
        """Adds the numbers of a record of metrics.jsonl, for example `train/loss`."""
        with self._writing():
            for name, value in record.items():
                if isinstance(value, int | float) and name not in ("update", "epoch"):
                    self._writer.add_scalar(f"{kind}/{name}", value, record["update"])
            self._writer.flush()

    def _writing(self) -> AbstractContextManager[None]:
        return writing(self._path, "make room for it, or leave out --tensorboard")
