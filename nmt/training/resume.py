"""The state of a training as a checkpoint, and back."""

import math
from pathlib import Path
from typing import Any

from nmt import console
from nmt.checkpoint import Checkpoint, load_weights
from nmt.training.run_folder import RunFolder
from nmt.training.setup import Setup, TrainState
from nmt.training.state import Counters, provenance, trains_something_else


def checkpoint_of(setup: Setup, state: TrainState) -> Checkpoint:
    """Returns weights, optimiser and counters as they are now."""
    weights = {name: tensor.detach().cpu() for name, tensor in state.loss.model.state_dict().items()}
    training = {"optimizer": state.optimizer.state_dict(), "counters": vars(state.counters).copy()}
    return Checkpoint(setup.model_config, setup.data.codec, weights, provenance_of(setup, state), training)


def provenance_of(setup: Setup, state: TrainState) -> dict[str, Any]:
    """Returns where a checkpoint of this state comes from."""
    precision, ranks = setup.runtime.precision, setup.world.size
    return provenance(setup.data, setup.config, precision, ranks, state.counters.update)


def resume(setup: Setup, state: TrainState, folder: RunFolder) -> None:
    """Loads the newest training state of the run folder, on all ranks; without one, the state stays as it is.

    Checkpoints and log records of later updates are removed, because these updates are about to be repeated.

    Raises:
        NmtError: no state can be read, or it belongs to another training.
    """
    found = folder.newest_state() if setup.world.is_main else None
    path = setup.world.broadcast(lambda: found[0] if found else None)
    if path is not None:
        _load(setup, state, path, found[1] if found else folder.load_when_there(path))
        console.info(f"resumed from {path} after update {state.counters.update:,}")
    if setup.world.is_main:
        folder.metrics.rewind(state.counters.update)
        if path is not None:
            folder.forget_after(state.counters.update)


def _load(setup: Setup, state: TrainState, path: Path, checkpoint: Checkpoint) -> None:
    counters = Counters(**checkpoint.training["counters"])
    if trains_something_else(checkpoint, path, setup.data, setup.model_config, setup.config):
        counters.skip_to_next_epoch()
        counters.best = -math.inf
    if checkpoint.provenance["options"]["valid_bleu"] != setup.config.valid_bleu:
        counters.best = -math.inf  # it was a score of another kind
    load_weights(state.loss.model, checkpoint, path)
    state.optimizer.load_state_dict(checkpoint.training["optimizer"])
    state.counters = counters
