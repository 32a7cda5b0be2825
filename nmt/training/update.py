"""One update of the weights (paper §5.3, §5.4)."""

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from nmt import console
from nmt.data.loader import Batch, Update
from nmt.errors import NmtError
from nmt.model.architectures import training_flops
from nmt.model.device import is_out_of_memory
from nmt.training.finite import first_not_finite
from nmt.training.setup import Setup
from nmt.training.state import TrainState


class OutOfMemoryError(NmtError):
    """Memory ran out on one of several ranks."""


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
) -> UpdateResult | None:
    """Takes one optimiser step on the mean loss of the update's target tokens.

    The counters change only when the update is complete, so an interrupted update is repeated.

    Args:
        advance: called with 1 after each micro-batch.

    Returns:
        The result; None if memory ran out. The update must then be repeated with the lower number of device tokens
        that the counters now have.

    Raises:
        Interrupted: on all ranks, if any of them was asked to stop.
        OutOfMemoryError: memory ran out on one of several ranks.
        NmtError: memory ran out on a single sentence pair.
    """
    counters, started = state.counters, time.monotonic()
    losses = torch.zeros(2, device=setup.runtime.device)
    for number, batch in enumerate(update.batches):
        setup.world.end_together(setup.stop.received)
        _seed_dropout(setup, counters.update + 1, number)
        last = number == len(update.batches) - 1
        added = _add(state, batch, 1 / update.target_tokens, last)
        if added is None:
            _lower_device_tokens(setup, state, batch)
            return None
        losses += torch.stack(added)
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


def _add(state: TrainState, batch: Batch, weight: float, last: bool) -> tuple[Tensor, Tensor] | None:
    """Adds the gradient of a batch; returns None if memory runs out."""
    try:
        return state.gradients.add(batch, weight, last=last)
    except (RuntimeError, MemoryError) as error:
        if is_out_of_memory(error):
            return None
        raise


def _lower_device_tokens(setup: Setup, state: TrainState, batch: Batch) -> None:
    """Discards the gradients, and halves the device tokens of a training with one rank."""
    lower, update = state.device_tokens(setup) // 2, state.counters.update + 1
    if sum(map(len, batch.sentences)) == 1:
        raise NmtError(
            "memory ran out on a single sentence pair; train a smaller model, drop long pairs "
            "(nmt preprocess --max-length), or use a device with more memory"
        )
    if setup.world.size > 1:
        raise OutOfMemoryError(f"rank {setup.world.rank} ran out of memory in update {update:,}")
    state.loss.zero_grad(set_to_none=False)
    if setup.runtime.device.type == "cuda":
        torch.cuda.empty_cache()
    state.counters.device_tokens = lower
    console.warn(f"memory ran out in update {update:,}; training goes on with --device-tokens {lower}")


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
