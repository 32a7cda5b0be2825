"""The checkpoints that a training writes: snapshots for use, and training states from which it resumes."""

import platform
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

import nmt
from nmt.checkpoint import Checkpoint, load_weights
from nmt.checkpoint_file import without_prefix
from nmt.data.batching import PLAN_VERSION
from nmt.training.records import Scores
from nmt.training.state import Counters, Setup, TrainState

# Beginnings of names of tensors.
_OPTIMIZER, _AVERAGE = "optimizer.", "average."


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


def snapshot_of(setup: Setup, state: TrainState) -> Checkpoint:
    """Returns a checkpoint for use: without what only training needs, and with averaged weights if there are any."""
    with state.averaged():
        return _checkpoint(setup, state)


def _checkpoint(setup: Setup, state: TrainState) -> Checkpoint:
    weights = {name: tensor.detach().cpu() for name, tensor in state.loss.model.state_dict().items()}
    return Checkpoint(setup.model_config, setup.data.codec, weights, provenance_of(setup, state))


def training_state_of(setup: Setup, state: TrainState) -> Checkpoint:
    """Returns a training state: weights, and all that is needed to resume."""
    optimizer = state.optimizer
    training: dict[str, Any] = {
        "counters": asdict(state.counters),
        "validations": [asdict(scores) for scores in state.validations],
    }
    if optimizer.loss_scale is not None:
        scale, updates = optimizer.loss_scale.item(), int(optimizer.good_updates)
        training["loss_scale"] = {"scale": scale, "good_updates": updates}
    tensors = {_OPTIMIZER + name: tensor for name, tensor in optimizer.state_dict().items()}
    if state.average:
        tensors |= {_AVERAGE + name: tensor for name, tensor in state.average.averages.items()}
    return replace(_checkpoint(setup, state), training=training, training_tensors=tensors)


def load_training_state(state: TrainState, checkpoint: Checkpoint, path: Path) -> None:
    """Gives the state everything that `training_state_of` wrote.

    Raises:
        NmtError: the weights do not fit the model.
        LookupError, TypeError, ValueError: the checkpoint is no training state of this version.
    """
    training, tensors, optimizer = checkpoint.training, checkpoint.training_tensors, state.optimizer
    counters, validations = Counters(**training["counters"]), [Scores(**scores) for scores in training["validations"]]
    load_weights(state.loss.model, checkpoint, path)
    optimizer.load_state_dict(without_prefix(tensors, _OPTIMIZER))
    if optimizer.loss_scale is not None and "loss_scale" in training:
        optimizer.loss_scale.fill_(training["loss_scale"]["scale"])
        optimizer.good_updates.fill_(training["loss_scale"]["good_updates"])
    if state.average:
        state.average.load(without_prefix(tensors, _AVERAGE))
    state.counters, state.validations = counters, validations
