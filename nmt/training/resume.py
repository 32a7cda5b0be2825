"""Converts the state of a training to a checkpoint, and resumes a training from one."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from nmt import console
from nmt.checkpoint import Checkpoint, load_checkpoint, load_weights
from nmt.checkpoint_file import without_prefix
from nmt.config import ModelConfig, TrainConfig
from nmt.config.options import flag_name
from nmt.data.batching import PLAN_VERSION
from nmt.data.folder import DataFolder
from nmt.errors import NmtError
from nmt.training.log import provenance_of
from nmt.training.records import Scores
from nmt.training.run_folder import RunFolder
from nmt.training.state import Counters, Setup, TrainState

# Options that decide which sentences an update holds, and which weights it changes and how. If one of them changes, the
# position in the epoch is void.
_PLANNED_BY = ("batch_tokens", "batch_groups", "seed", "freeze", "optimizer")
# Options that are about the command itself, and --arch, whose sizes are compared one by one.
_OF_THE_COMMAND = ("save_dir", "resume_changed", "arch", "tensorboard")


def check_changes(
    checkpoint: Checkpoint, path: Path, data: DataFolder, model_config: ModelConfig, config: TrainConfig
) -> bool:
    """Returns whether data and options would train something else than the checkpoint; logs all changed options."""
    options = [o for o in config.changed_from(checkpoint.provenance["options"]) if o[0] not in _OF_THE_COMMAND]
    planning = [option for option in options if option[0] in _PLANNED_BY]
    changes = [*_changes(checkpoint, data, model_config), *(_change(*option) for option in planning)]
    refusal = f"{path} cannot be resumed: {'; '.join(changes)}; choose another --save-dir"
    if checkpoint.codec.to_dict() != data.codec.to_dict():
        raise NmtError(f"{refusal}, because the vocabulary differs")
    if model_config.other_weights(checkpoint.model_config.to_dict()):
        raise NmtError(f"{refusal}, because the weights of one model do not fit the other")
    if any(name in ("freeze", "optimizer") for name, _, _ in planning):
        raise NmtError(f"{refusal}, because the state of the optimiser does not fit")
    if changes and not config.resume_changed:
        raise NmtError(f"{refusal}, or give --resume-changed to resume anyway")
    for option in options:
        if option not in planning:
            console.info(f"changed option: {_change(*option)}")
    for change in changes:
        console.warn(f"resuming although {change}")
    return bool(changes)


def _changes(checkpoint: Checkpoint, data: DataFolder, model_config: ModelConfig) -> list[str]:
    """Describes what differs from the checkpoint in model, data and version."""
    changes = [_change(*option) for option in model_config.changed_from(checkpoint.model_config.to_dict())]
    if checkpoint.provenance["data"] != data.meta.fingerprint:
        changes.append("it was trained on another data folder")
    if checkpoint.provenance.get("plan") != PLAN_VERSION:
        changes.append("another version of nmt planned its updates")
    return changes


def _change(name: str, then: Any, now: Any) -> str:
    return f"{flag_name(name)} was {_shown(then)} and is now {_shown(now)}"


def _shown(value: Any) -> str:
    return (" ".join(map(str, value)) or "empty") if isinstance(value, tuple) else str(value)


# Beginnings of names of tensors.
_OPTIMIZER, _AVERAGE = "optimizer.", "average."


def checkpoint_of(setup: Setup, state: TrainState) -> Checkpoint:
    """Returns a training state: weights, and all that is needed to resume."""
    training: dict[str, Any] = {
        "counters": asdict(state.counters),
        "validations": [asdict(scores) for scores in state.validations],
    }
    if scale := state.optimizer.loss_scale:
        training["loss_scale"] = scale.state_dict()
    tensors = {_OPTIMIZER + name: tensor for name, tensor in state.optimizer.state_dict().items()}
    if state.average:
        tensors |= {_AVERAGE + name: tensor for name, tensor in state.average.averages.items()}
    return replace(_checkpoint(setup, state), training=training, training_tensors=tensors)


def snapshot_of(setup: Setup, state: TrainState) -> Checkpoint:
    """Returns a checkpoint for use: without what only training needs, and with averaged weights if there are any."""
    with state.averaged():
        return _checkpoint(setup, state)


def _checkpoint(setup: Setup, state: TrainState) -> Checkpoint:
    weights = {name: tensor.detach().cpu() for name, tensor in state.loss.model.state_dict().items()}
    return Checkpoint(setup.model_config, setup.data.codec, weights, provenance_of(setup, state))


def resume(setup: Setup, state: TrainState, folder: RunFolder) -> bool:
    """Loads the newest training state of the run folder on all ranks; returns False if there is none.

    Checkpoints and log records of later updates are removed, because these updates are about to be repeated.
    """
    found = folder.newest_state() if setup.world.is_main else None
    path = setup.world.broadcast(lambda: found[0] if found else None)
    if path is not None:
        _load(setup, state, path, found[1] if found else _state_of_main_rank(path))
        console.info(f"resumed from {path} after update {state.counters.update:,}")
    if setup.world.is_main:
        if path is None:
            folder.set_checkpoints_aside()
        else:
            folder.remove_checkpoints_after(state.counters.update)
        folder.metrics.rewind(state.counters.update)
    return path is not None


def _state_of_main_rank(path: Path) -> Checkpoint:
    if not path.exists():
        raise NmtError(
            f"rank 0 resumes from {path}, but this machine has no such file; give a --save-dir that all machines share"
        )
    return load_checkpoint(path, verify=True)


def _load(setup: Setup, state: TrainState, path: Path, checkpoint: Checkpoint) -> None:
    try:
        counters = Counters(**checkpoint.training["counters"])
        validations = [Scores(**scores) for scores in checkpoint.training["validations"]]
        if setup.config.device_tokens != checkpoint.provenance["options"]["device_tokens"]:
            counters.device_tokens = None
        changed = check_changes(checkpoint, path, setup.data, setup.model_config, setup.config)
        load_weights(state.loss.model, checkpoint, path)
        _load_tensors(state, checkpoint)
    except (LookupError, TypeError, ValueError) as error:
        raise NmtError(
            f"{path} is not a training state that this version of nmt can resume ({error!r:.100}); move it elsewhere "
            f"to resume from the state before it"
        ) from error
    if changed:
        counters.skip_to_next_epoch()
        validations = []
    state.counters, state.validations = counters, validations


def _load_tensors(state: TrainState, checkpoint: Checkpoint) -> None:
    tensors = checkpoint.training_tensors
    state.optimizer.load_state_dict(without_prefix(tensors, _OPTIMIZER))
    if (scale := state.optimizer.loss_scale) and "loss_scale" in checkpoint.training:
        scale.load_state_dict(checkpoint.training["loss_scale"])
    if state.average:
        state.average.load(without_prefix(tensors, _AVERAGE))
