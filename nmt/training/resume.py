"""Converts the state of a training to a checkpoint, and resumes a training from one."""

import math
from dataclasses import asdict, fields, replace
from pathlib import Path

from nmt import console
from nmt.checkpoint import Checkpoint, load_weights
from nmt.training.provenance import provenance_of
from nmt.training.resumable import check_changes
from nmt.training.run_folder import RunFolder
from nmt.training.selection import Scores
from nmt.training.setup import Setup
from nmt.training.state import Counters, TrainState


def checkpoint_of(setup: Setup, state: TrainState) -> Checkpoint:
    """Returns a training state: weights, and all that is needed to resume."""
    training = {
        "optimizer": state.optimizer.state_dict(),
        "counters": vars(state.counters).copy(),
        "validations": [asdict(scores) for scores in state.validations],
        "average": state.average.state_dict() if state.average else {},
    }
    if scale := state.optimizer.loss_scale:
        training["loss_scale"] = scale.state_dict()
    return replace(_checkpoint(setup, state), training=training)


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

    Raises:
        NmtError: no training state can be read, or the newest belongs to another training.
    """
    found = folder.newest_state() if setup.world.is_main else None
    path = setup.world.broadcast(lambda: found[0] if found else None)
    if path is not None:
        _load(setup, state, path, found[1] if found else folder.wait_for_state(path))
        console.info(f"resumed from {path} after update {state.counters.update:,}")
    if setup.world.is_main:
        if path is None:
            folder.set_checkpoints_aside()
        else:
            folder.remove_checkpoints_after(state.counters.update)
        folder.metrics.rewind(state.counters.update)
    return path is not None


def _load(setup: Setup, state: TrainState, path: Path, checkpoint: Checkpoint) -> None:
    saved = checkpoint.training["counters"]
    counters = Counters(**{field.name: saved[field.name] for field in fields(Counters)})
    validations = _validations(checkpoint)
    if check_changes(checkpoint, path, setup.data, setup.model_config, setup.config):
        counters.skip_to_next_epoch()
        validations = []
    load_weights(state.loss.model, checkpoint, path)
    state.optimizer.load_state_dict(checkpoint.training["optimizer"])
    if (scale := state.optimizer.loss_scale) and "loss_scale" in checkpoint.training:
        scale.load_state_dict(checkpoint.training["loss_scale"])
    if state.average:
        state.average.load_state_dict(checkpoint.training.get("average", {}))
    state.counters, state.validations = counters, validations


def _validations(checkpoint: Checkpoint) -> list[Scores]:
    training = checkpoint.training
    if "validations" in training:
        return [Scores(**scores) for scores in training["validations"]]
    best, update = training["counters"].get("best", -math.inf), training["counters"].get("validated", 0)
    if not math.isfinite(best):
        return []
    # A training state of nmt 0.2.0 has only the best score so far.
    by_bleu = checkpoint.provenance["options"].get("valid_bleu", True)
    return [Scores(update, math.nan, bleu=best) if by_bleu else Scores(update, -best)]
