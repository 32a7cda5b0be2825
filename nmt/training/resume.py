"""Converts the state of a training to a checkpoint, and resumes a training from one."""

import math
from pathlib import Path
from typing import Any

from nmt import console
from nmt.checkpoint import Checkpoint, load_weights
from nmt.training.run_folder import RunFolder
from nmt.training.setup import Setup, TrainState
from nmt.training.state import Counters, check_changes, provenance


def checkpoint_of(setup: Setup, state: TrainState) -> Checkpoint:
    """Returns a checkpoint of the state: weights, optimiser and counters."""
    weights = {name: tensor.detach().cpu() for name, tensor in state.loss.model.state_dict().items()}
    training = {"optimizer": state.optimizer.state_dict(), "counters": vars(state.counters).copy()}
    return Checkpoint(setup.model_config, setup.data.codec, weights, provenance_of(setup, state), training)


def provenance_of(setup: Setup, state: TrainState) -> dict[str, Any]:
    """Returns the provenance of a checkpoint of this state."""
    return provenance(
        setup.data, setup.config, setup.runtime.precision, ranks=setup.world.size, update=state.counters.update
    )


def resume(setup: Setup, state: TrainState, folder: RunFolder) -> None:
    """Loads the newest training state of the run folder on all ranks; changes nothing if there is none.

    Checkpoints and log records of later updates are removed, because these updates are about to be repeated.

    Raises:
        NmtError: none of the training states can be read, or the newest belongs to another training.
    """
    found = folder.newest_state() if setup.world.is_main else None
    path = setup.world.broadcast(lambda: found[0] if found else None)
    if path is not None:
        _load(setup, state, path, found[1] if found else folder.wait_for_state(path))
        console.info(f"resumed from {path} after update {state.counters.update:,}")
    if setup.world.is_main:
        folder.metrics.rewind(state.counters.update)
        if path is not None:
            folder.remove_checkpoints_after(state.counters.update)


def _load(setup: Setup, state: TrainState, path: Path, checkpoint: Checkpoint) -> None:
    counters = Counters(**checkpoint.training["counters"])
    if check_changes(checkpoint, path, setup.data, setup.model_config, setup.config):
        counters.skip_to_next_epoch()
        counters.best = -math.inf
    if checkpoint.provenance["options"]["valid_bleu"] != setup.config.valid_bleu:
        counters.best = -math.inf  # BLEU and loss cannot be compared
    load_weights(state.loss.model, checkpoint, path)
    state.optimizer.load_state_dict(checkpoint.training["optimizer"])
    state.counters = counters
