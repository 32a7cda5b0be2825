"""The checkpoints that a training writes: snapshots for use, and training states from which it resumes."""

import os
import platform
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import nmt
from nmt import console
from nmt.checkpoint import (
    WEIGHT_BYTES,
    Checkpoint,
    Computed,
    joint_codec,
    learned_weights,
    load_checkpoint,
    load_weights,
)
from nmt.checkpoint_format import without_prefix
from nmt.config.options import flag_name
from nmt.data.batching import PLAN_VERSION
from nmt.errors import NmtError
from nmt.files import identity
from nmt.resources import available_bytes
from nmt.training.records import Scores
from nmt.training.run_folder import RunFolder
from nmt.training.state import Counters, Training

# Beginnings of names of tensors.
_OPTIMIZER, _AVERAGE = "optimizer.", "average."


def provenance_of(training: Training) -> dict[str, Any]:
    """Returns the provenance of a checkpoint of this training."""
    update = training.counters.update
    validations = [asdict(scores) for scores in training.validations if scores.update == update]
    return {
        "nmt": nmt.__version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "data": training.data.meta.fingerprint,
        **({"directions": [direction.stored for direction in trained]} if (trained := training.data.trained) else {}),
        **({"derived_from": training.derived_from} if training.derived_from else {}),
        "options": training.config.to_dict(),
        "precision": training.runtime.precision,
        "ranks": training.world.size,
        "plan": PLAN_VERSION,
        "update": update,
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        **({"validation": validations[-1]} if validations else {}),
        **(training.base.added_pieces if training.base else {}),
    }


def has_room_for_copies(training: Training) -> bool:
    """Returns whether memory has room for copies of what a snapshot and a training state hold."""
    weights = 2 * WEIGHT_BYTES * training.learned
    return weights + training.optimizer.moment_bytes + training.average_bytes < available_bytes()


def snapshot_of(training: Training, *, whole: bool = False, copied: bool = False) -> Checkpoint:
    """Returns a checkpoint without what only training needs, and with averaged weights if there are any.

    With --lora, it has only the weights that have learned unless `whole`. The next update changes the checkpoint
    on a CPU, unless it is `copied`.
    """
    with training.average.in_use():
        return _checkpoint(training, whole=whole or not training.config.lora, copied=copied)


def _checkpoint(training: Training, *, whole: bool, copied: bool) -> Checkpoint:
    """Returns a checkpoint; unless `whole`, without frozen weights that another checkpoint has."""
    model, base, provenance = training.loss.model, training.base, provenance_of(training)
    state = model.state_dict()

    def weights(names: Iterable[str]) -> dict[str, Tensor]:
        return {name: state[name].detach().to("cpu", copy=copied) for name in names}

    names: Iterable[str] = state
    computed: Mapping[str, Computed] = {}
    if base and whole:
        names, computed = base.names_in_model, base.whole_weights([weights(learned_weights(model))])
    elif base:
        names, provenance["learned_from"] = learned_weights(model), base.reference
    return Checkpoint(training.model_config, training.data.codec, weights(names), provenance, computed=computed)


def training_state_of(training: Training, *, copied: bool = False) -> Checkpoint:
    """Returns a training state: weights, and all that is needed to resume. See `snapshot_of` for `copied`."""
    optimizer = training.optimizer
    document: dict[str, Any] = {
        "counters": asdict(training.counters),
        "validations": [asdict(scores) for scores in training.validations],
    }
    if (scale := optimizer.loss_scale) is not None:
        document["loss_scale"] = {"scale": scale.item(), "good_updates": int(optimizer.good_updates)}
    tensors = {_OPTIMIZER + name: tensor for name, tensor in optimizer.state_dict().items()}
    tensors |= {_AVERAGE + name: tensor for name, tensor in training.average.averages.items()}
    if copied:
        tensors = {name: tensor.to("cpu", copy=True) for name, tensor in tensors.items()}
    checkpoint = _checkpoint(training, whole=False, copied=copied)
    return replace(checkpoint, training=document, training_tensors=tensors)


def load_training_state(training: Training, checkpoint: Checkpoint, path: Path) -> None:
    """Gives the training everything that `training_state_of` wrote.

    Raises:
        NmtError: the weights do not fit the model.
        LookupError, TypeError, ValueError: the checkpoint is no training state of this version.
    """
    document, tensors, optimizer = checkpoint.training, checkpoint.training_tensors, training.optimizer
    counters, validations = Counters(**document["counters"]), [Scores(**scores) for scores in document["validations"]]
    load_weights(training.loss.model, checkpoint, path)
    optimizer.load_state_dict(without_prefix(tensors, _OPTIMIZER))
    if optimizer.loss_scale is not None and "loss_scale" in document:
        optimizer.loss_scale.fill_(document["loss_scale"]["scale"])
        optimizer.good_updates.fill_(document["loss_scale"]["good_updates"])
    training.average.load(without_prefix(tensors, _AVERAGE))
    training.counters, training.validations = counters, validations


# Options that decide which sentences an update holds, and which weights it changes and how. If one of them
# changes, the position in the epoch is void.
_PLANNED_BY = ("batch_tokens", "batch_groups", "seed", "freeze", "lora", "optimizer")
# Options that are about the command itself, and --arch, whose sizes are compared one by one.
_OF_THE_COMMAND = ("save_dir", "resume_changed", "arch", "tensorboard")


def resume(training: Training, folder: RunFolder) -> bool:
    """Loads the newest training state of the run folder on all ranks; returns False if there is none.

    Checkpoints and log records of later updates are removed, because these updates are about to be repeated.
    """
    is_main = training.world.is_main
    newest = folder.newest_state() if is_main else None
    path = training.world.broadcast(lambda: newest[0] if newest else None)
    if path is None:
        if is_main:
            folder.set_checkpoints_aside(training.config.init_from)
            folder.metrics.rewind(None)
        return False
    if newest is None and not path.exists():
        raise NmtError(
            f"rank 0 resumes from {path}, but this machine has no such file; give a --save-dir that all machines share"
        )
    checkpoint = newest[1] if newest else load_checkpoint(path, verify=True, whole=False)
    try:
        options = checkpoint.provenance["options"]
        device_tokens, valid_lines = options["device_tokens"], options["valid_lines"]
        metric, metric_then = training.config.valid_metric[0], options["valid_metric"][0]
        changed = _check_changes(training, path, checkpoint)
        load_training_state(training, checkpoint, path)
    except (LookupError, TypeError, ValueError) as error:
        raise NmtError(
            f"{path} is not a training state that this version of nmt can resume ({error!r:.100}); move it elsewhere "
            f"to resume from the state before it"
        ) from error
    counters = training.counters
    if training.config.device_tokens != device_tokens:
        counters.device_tokens = None
    if changed:
        counters.epoch, counters.update_in_epoch = counters.epoch + 1, 0
    # Scores of another metric, or of other lines, say nothing about which checkpoint is the best now.
    has_same_lines = not training.config.translates or training.config.valid_lines == valid_lines
    is_comparable = metric == metric_then and has_same_lines
    if changed or not is_comparable:
        training.validations = []
    console.info(f"resumed from {path} after update {counters.update:,}")
    if is_main:
        folder.rewind(counters.update, changed=changed or not is_comparable)
    return True


def _check_changes(training: Training, path: Path, checkpoint: Checkpoint) -> bool:
    """Returns whether data and options would train something else than the checkpoint; logs all changed options."""
    config, model_config = training.config, training.model_config
    options = [o for o in config.changed_from(checkpoint.provenance["options"]) if o[0] not in _OF_THE_COMMAND]
    planning = [option for option in options if option[0] in _PLANNED_BY]
    changes = [_change(*option) for option in model_config.changed_from(checkpoint.model_config.to_dict())]
    if checkpoint.provenance["data"] != training.data.meta.fingerprint:
        changes.append("it was trained on another data folder")
    if checkpoint.provenance.get("plan") != PLAN_VERSION:
        changes.append("another version of nmt planned its updates")
    changes += [_change(*option) for option in planning]
    refusal = f"{path} cannot be resumed: {'; '.join(changes)}; choose another --save-dir"
    if joint_codec(checkpoint.codec, training.data.codec) is None:
        raise NmtError(f"{refusal}, because the vocabulary differs")
    if model_config.incompatible_options(checkpoint.model_config.to_dict()):
        raise NmtError(f"{refusal}, because the weights of one model do not fit the other")
    begun, now = checkpoint.provenance["options"].get("init_from"), config.init_from
    if now and (begun is None or (os.path.exists(begun) and identity(begun) != identity(now))):
        origin = begun or "random weights"
        raise NmtError(f"{path} is of a training from {origin}, not from --init-from {now}; choose another --save-dir")
    if any(name in ("freeze", "lora", "optimizer") for name, _, _ in planning):
        raise NmtError(f"{refusal}, because the state of the optimiser does not fit")
    if training.base:
        training.base.check(checkpoint.provenance["learned_from"]["sha256"], path)
    elif base := checkpoint.provenance.get("learned_from"):
        raise NmtError(f"{path} lacks the weights that do not learn; give --init-from {base['path']} as before")
    update = checkpoint.training["counters"]["update"]
    if changes and update >= config.max_updates:
        raise NmtError(f"{refusal}, because its {update:,} updates are done and nothing is left to train")
    if changes and not config.resume_changed:
        raise NmtError(f"{refusal}, or give --resume-changed to resume anyway")
    for option in options:
        if option not in planning:
            console.info(f"changed option: {_change(*option)}")
    for change in changes:
        console.warn(f"resuming although {change}")
    return bool(changes)


def _change(name: str, *values: Any) -> str:
    """Returns an option's earlier and present value in words."""
    then, now = ((" ".join(map(str, value)) or "empty") if isinstance(value, tuple) else str(value) for value in values)
    return f"{flag_name(name)} was {then} and is now {now}"
