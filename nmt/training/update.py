"""One update of the weights (paper §5.3, §5.4)."""

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from nmt.data.loader import Batch, Update
from nmt.errors import Interrupted
from nmt.model.cost import training_flops
from nmt.model.runtime import is_out_of_memory
from nmt.training.agreement import end_together
from nmt.training.finite import first_not_finite
from nmt.training.setup import Setup
from nmt.training.state import TrainState


class UpdateResult(NamedTuple):
    """What an update found out; all tensors stay on the device.

    Attributes:
        losses: loss and negative log-likelihood, each summed over this rank's target tokens; [2].
        norm: the gradient's norm before clipping.
        skipped: 1 if the update was skipped, because the norm is not finite; otherwise 0.
    """

    losses: Tensor
    norm: Tensor
    skipped: Tensor


def train_update(
    setup: Setup, state: TrainState, update: Update, advance: Callable[[int], None] = lambda _: None
) -> UpdateResult:
    """Takes one optimiser step on the mean loss of the update's target tokens.

    The counters change only when the update is complete, so an interrupted update is repeated.

    Args:
        advance: called with 1 after each micro-batch.

    Raises:
        Interrupted: on all ranks, if any of them was asked to stop.
        DataChanged: on all ranks, if the training data of any of them has changed.
    """
    counters, started = state.counters, time.monotonic()
    losses = torch.zeros(2, device=setup.runtime.device)
    for number, batch in enumerate(update.batches):
        end_together(setup.world, Interrupted() if setup.stop.received else None)
        _seed_dropout(setup, counters.update + 1, number)
        last = number == len(update.batches) - 1
        losses += torch.stack(state.gradients.add(batch, 1 / update.target_tokens, last=last))
        advance(1)
    norm, skipped = state.optimizer.step(counters.update + 1)
    vocabulary = len(setup.data.codec.target)
    if state.average:
        state.average.add(counters.update + 1)
    counters.update += 1
    counters.update_in_epoch += 1
    counters.flops += training_flops(setup.model_config, vocabulary, update.source_tokens, update.target_tokens)
    counters.seconds += time.monotonic() - started
    return UpdateResult(losses, norm, skipped)


def explain_skipped(setup: Setup, state: TrainState, update: int, batches: list[Batch]) -> str | None:
    """Returns what was not finite in an update of this rank's batches, in words; None if that cannot be found."""

    def gradients() -> Iterator[list[Tensor]]:
        for number, batch in enumerate(batches):
            _seed_dropout(setup, update, number)
            yield state.gradients.compute(batch)

    try:
        with torch.compiler.set_stance("force_eager"):  # compiled layers hide their activations
            return first_not_finite(state.loss, gradients())
    except RuntimeError as error:
        if is_out_of_memory(error):
            return None
        raise


def _seed_dropout(setup: Setup, update: int, micro_batch: int) -> None:
    """Makes dropout depend only on seed, update, rank and micro-batch, so that resuming repeats it."""
    place = (setup.config.seed, update, setup.world.rank, micro_batch)
    torch.manual_seed(int(np.random.SeedSequence(place).generate_state(1, np.uint64)[0] >> 1))
