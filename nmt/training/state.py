"""Where a run is, what its checkpoints say about it, and whether training can resume from one."""

import math
import platform
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import chain
from pathlib import Path
from reprlib import repr as shortened
from typing import Any

import torch
from torch import Tensor

import nmt
from nmt import console
from nmt.checkpoint import Checkpoint
from nmt.checkpoint_file import TAKE_ANOTHER
from nmt.config import ModelConfig, TrainConfig
from nmt.data.batching import PLAN_VERSION
from nmt.data.store import DataFolder
from nmt.errors import NmtError
from nmt.options import check_type, flag_name

# Options that decide which sentences an update holds: with others, a place in the epoch means nothing.
_PLANNED_BY = ("batch_tokens", "batch_groups", "seed")

_MOST_UPDATES = 2**31


@dataclass
class Counters:
    """Where training is.

    Attributes:
        update, epoch, update_in_epoch: how many are done, of all and within the unfinished epoch.
        validated, snapshot_seconds: update and training time of the last validation and the last snapshot.
        best: the best validation's goodness.
        seconds, flops: training time and floating-point operations so far.
    """

    update: int = 0
    epoch: int = 0
    update_in_epoch: int = 0
    validated: int = 0
    snapshot_seconds: float = 0.0
    best: float = -math.inf
    seconds: float = 0.0
    flops: float = 0.0

    def skip_to_next_epoch(self) -> None:
        self.epoch, self.update_in_epoch = self.epoch + 1, 0

    def validation_due(self, config: TrainConfig) -> bool:
        """Returns whether a validation has to follow the last update and has not been done."""
        planned = self.update % config.valid_updates == 0 or self.update == config.max_updates
        return planned and self.update > self.validated

    def snapshot_due(self, config: TrainConfig) -> bool:
        """Returns whether a snapshot has to be written after the last update."""
        if config.save_updates is not None:
            return self.update % config.save_updates == 0
        return self.seconds - self.snapshot_seconds >= 60 * config.save_minutes


def provenance(data: DataFolder, config: TrainConfig, precision: str, ranks: int, update: int) -> dict[str, Any]:
    """Where a checkpoint comes from."""
    return {
        "nmt": nmt.__version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "data": data.fingerprint,
        "options": config.to_dict(),
        "precision": precision,
        "ranks": ranks,
        "plan": PLAN_VERSION,
        "update": update,
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def start_record(
    data: DataFolder, model_config: ModelConfig, parameters: int, counters: Counters, device: str
) -> dict[str, Any]:
    """Returns what metrics.jsonl says of the start of a training, besides `provenance`."""
    return {
        "train_seconds": counters.seconds,
        "model": model_config.to_dict(),
        "parameters": parameters,
        "text": vars(data.codec.config),
        "vocab_sizes": {"source": len(data.codec.source), "target": len(data.codec.target)},
        "pairs": len(data.split("train")),
        "device": device,
    }


def check_resumable(checkpoint: Checkpoint, origin: Path) -> None:
    """Checks that a checkpoint holds all that training needs to resume, in the form it was written in.

    Raises:
        NmtError: something is missing or has another form; says what.
    """
    training = checkpoint.training
    flaws = chain(
        _counter_flaws(training.get("counters")),
        _optimizer_flaws(training.get("optimizer"), checkpoint.weights),
        _provenance_flaws(checkpoint.provenance),
    )
    if flaw := next(flaws, None):
        raise NmtError(f"{origin} is no training state that can be resumed: {flaw}; {TAKE_ANOTHER}")


def _counter_flaws(counters: Any) -> Iterator[str]:
    declared = {field.name: field.type for field in fields(Counters)}
    if not isinstance(counters, dict) or counters.keys() != declared.keys():
        yield f"its counters are not {', '.join(declared)}"
        return
    for name, value in counters.items():
        kinds, above_all = ((int,), _MOST_UPDATES) if declared[name] is int else ((float, int), math.inf)
        least = -math.inf if name == "best" else 0
        if type(value) not in kinds or not least <= value < above_all:
            yield f"its counter {name} is {shortened(value)}"


def _optimizer_flaws(optimizer: Any, weights: Mapping[str, Tensor]) -> Iterator[str]:
    """Yields what is wrong with Adam's state, which is numbered like the weights."""
    state = optimizer.get("state") if isinstance(optimizer, dict) else None
    if not isinstance(state, dict) or state.keys() != set(range(len(weights))):
        yield f"its optimiser has no state for each of the {len(weights)} weights"
        return
    for number, (name, weight) in enumerate(weights.items()):
        shapes = {"step": (), "exp_avg": weight.shape, "exp_avg_sq": weight.shape}
        moments = state[number]
        if not isinstance(moments, dict) or moments.keys() != shapes.keys():
            yield f"its optimiser's state for {name!r:.80} is not {', '.join(shapes)}"
        elif wrong := [part for part, shape in shapes.items() if not _has_shape(moments[part], shape)]:
            yield f"its optimiser's {wrong[0]} for {name!r:.80} is no tensor of the shape {tuple(shapes[wrong[0]])}"
        elif not 0 <= moments["step"].item() < math.inf:
            yield f"its optimiser's step for {name!r:.80} is {moments['step'].item()}"


def _has_shape(value: Any, shape: tuple[int, ...]) -> bool:
    return isinstance(value, Tensor) and value.shape == shape


def _provenance_flaws(provenance: Mapping[str, Any]) -> Iterator[str]:
    options = provenance.get("options")
    if not isinstance(options, dict) or "valid_bleu" not in options:
        yield "it does not say what it was trained with"
        return
    for field in fields(TrainConfig):
        if field.name in options:
            try:
                check_type(field, options[field.name])
            except NmtError as error:
                yield str(error)
    if not isinstance(provenance.get("data"), str) or not isinstance(provenance.get("plan", 0), int):
        yield "it does not say what data it was trained on"


def trains_something_else(
    checkpoint: Checkpoint, path: Path, data: DataFolder, model_config: ModelConfig, config: TrainConfig
) -> bool:
    """Lists the options that are not those of the checkpoint; returns whether they change what is trained.

    Raises:
        NmtError: they do, and --resume-changed is not given; or the vocabulary is another one.
    """
    options = config.changed_from(checkpoint.provenance["options"])
    model = model_config.changed_from(checkpoint.model_config.to_dict())
    changed = [f"{name} is {then} there, {now} here" for name, then, now in model]
    if checkpoint.provenance["data"] != data.fingerprint:
        changed.append("it was trained on another data folder")
    if checkpoint.provenance.get("plan") != PLAN_VERSION:
        changed.append("another version of nmt planned its updates")
    planned_by = [option for option in options if option[0] in _PLANNED_BY]
    changed += [f"{flag_name(name)} was {then} there, is {now} here" for name, then, now in planned_by]
    refusal = f"{path} cannot be resumed: {'; '.join(changed)}; choose another --save-dir"
    if checkpoint.codec.to_dict() != data.codec.to_dict():
        raise NmtError(f"{refusal}, for the vocabulary is another one")
    if changed and not config.resume_changed:
        raise NmtError(f"{refusal}, or give --resume-changed to go on all the same")
    for name, then, now in [option for option in options if option not in planned_by]:
        console.info(f"changed since: {flag_name(name)} was {then}, is {now}")
    for change in changed:
        console.warn(f"resuming though {change}")
    return bool(changed)
