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
        "options": training.config.to_dict(),
        "precision": training.runtime.precision,
        "ranks": training.world.size,
        "plan": PLAN_VERSION,
        "update": update,
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        **({"validation": validations[-1]} if validations else {}),
    }


def snapshot_of(training: Training) -> Checkpoint:
    """Returns a checkpoint for use: without what only training needs, and with averaged weights if there are any."""
    with training.average.in_use():
        return _checkpoint(training)


def _checkpoint(training: Training) -> Checkpoint:
    weights = {name: tensor.detach().cpu() for name, tensor in training.loss.model.state_dict().items()}
    return Checkpoint(training.model_config, training.data.codec, weights, provenance_of(training))


def training_state_of(training: Training) -> Checkpoint:
    """Returns a training state: weights, and all that is needed to resume."""
    optimizer = training.optimizer
    document: dict[str, Any] = {
        "counters": asdict(training.counters),
        "validations": [asdict(scores) for scores in training.validations],
    }
    if (scale := optimizer.loss_scale) is not None:
        document["loss_scale"] = {"scale": scale.item(), "good_updates": int(optimizer.good_updates)}
    tensors = {_OPTIMIZER + name: tensor for name, tensor in optimizer.state_dict().items()}
    tensors |= {_AVERAGE + name: tensor for name, tensor in training.average.averages.items()}
    return replace(_checkpoint(training), training=document, training_tensors=tensors)


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
