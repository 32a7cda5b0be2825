"""The updates of a training: the stream of their batches, their gradients, and the step of the optimiser."""

from collections.abc import Generator
from contextlib import closing, nullcontext
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from nmt import console
from nmt.data.arrays import TokenArray
from nmt.data.batching import UpdatePlan, draw_epoch, most_positions
from nmt.data.folder import ParallelSplit
from nmt.data.loader import MicroBatch, Update, make_micro_batch, updates
from nmt.errors import NmtError
from nmt.model.architectures import training_flops
from nmt.model.out_of_memory import is_out_of_memory
from nmt.text.subword import EOS
from nmt.training.optimizer import learning_rate
from nmt.training.state import Training, UpdateResult


def plan_epoch(training: Training) -> UpdatePlan:
    """Returns the update plan of the epoch that the training is in."""
    c, epoch = training.config, training.counters.epoch
    split = training.data.split("train").in_epoch(c.seed, epoch)
    lengths = split.source.lengths, split.target.lengths
    drawn = training.world.broadcast(
        lambda: draw_epoch(*lengths, batch_tokens=c.batch_tokens, groups=c.batch_groups, seed=c.seed, epoch=epoch)
    )
    return UpdatePlan(*lengths, drawn, c.batch_groups)


def endless_updates(training: Training, plan: UpdatePlan) -> Generator[Update, None, None]:
    """Yields this rank's part of every update, starting at the position of the counters, without end.

    If memory runs out in an update, the same update comes again, perhaps in smaller micro-batches.

    Args:
        plan: the plan of the epoch that the training is in.
    """
    counters, world = training.counters, training.world
    while True:
        split = training.data.split("train").in_epoch(training.config.seed, counters.epoch)
        if training.model_config.guided_alignment is None:
            split = replace(split, alignments=None)  # to prepare alignments takes time
        tokens, graphed = training.device_tokens, training.graphs is not None
        rest = updates(split, plan, tokens, counters.update_in_epoch, world.rank, world.size, packs=training.packs)
        with closing(rest) as prepared:
            for update in prepared:
                yield update
                if training.device_tokens != tokens or (training.graphs is not None) != graphed:  # memory ran out
                    break
            else:
                counters.epoch, counters.update_in_epoch = counters.epoch + 1, 0
                plan = plan_epoch(training)


class MemoryRanOutError(NmtError):
    """Memory ran out where this process cannot repeat the work with fewer device tokens."""


def train_update(training: Training, update: Update) -> UpdateResult | None:
    """Takes one optimiser step on the mean loss of the update's target tokens.

    The counters change only when the update is complete, so an interrupted update is repeated.

    Returns:
        The result; None if memory ran out. Training then needs less memory, and `endless_updates` repeats the update.

    Raises:
        StoppedError: on all ranks, if any of them was asked to stop.
    """
    counters = training.counters
    losses = torch.zeros(2, device=training.runtime.device)
    for index, batch in enumerate(update.batches):
        training.world.end_together(training.stop.received)
        training.seed_dropout(counters.update + 1, index)
        is_last = index == len(update.batches) - 1
        try:
            batch_losses = add_gradient(training, batch, 1 / update.target_tokens, last=is_last)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            batch_losses = None
        if batch_losses is None:  # outside of the handler, because the error keeps tensors alive
            _make_room(training, batch)
            return None
        losses += torch.stack(batch_losses)
    rate = learning_rate(counters.update + 1, training.model_config.d_model, training.config)
    norm, skipped = training.optimizer.step(rate)
    training.average.add(counters.update + 1)
    counters.update += 1
    counters.update_in_epoch += 1
    tokens = update.source_tokens, update.target_tokens
    flops = training_flops(training.model_config, len(training.data.codec.target), *tokens)
    counters.flops += flops + training.optimizer.flops
    return UpdateResult(losses, norm, skipped)


def add_gradient(training: Training, batch: MicroBatch, weight: float, *, last: bool) -> tuple[Tensor, Tensor]:
    """Adds `weight` times the gradient of the batch's loss; after the `last` batch, sums over the ranks.

    In fp16, the gradient is also multiplied by the loss scale.

    A loss that is not finite makes the gradient NaN, so that all ranks detect it.

    Returns:
        The loss and the negative log-likelihood, summed over the batch's target tokens on this rank.
    """
    loss_scale = training.optimizer.loss_scale

    def forward_and_backward(batch: MicroBatch, weight: Tensor | float) -> tuple[Tensor, Tensor]:
        with training.runtime.autocast():
            loss, nll = training.parallel(batch)
        factor = torch.where(loss.detach().isfinite(), weight, torch.nan)
        (loss * (factor if loss_scale is None else factor * loss_scale)).backward()
        return loss.detach(), nll

    weight *= training.world.size  # DistributedDataParallel averages, but the update needs the sum
    if training.graphs:
        return training.graphs(forward_and_backward, batch, weight)
    # DistributedDataParallel sums over the ranks in every backward pass outside of this context.
    unsynchronised = nullcontext if last else getattr(training.parallel, "no_sync", nullcontext)
    with unsynchronised():
        return forward_and_backward(batch.to(training.runtime.device), weight)


def _make_room(training: Training, batch: MicroBatch) -> None:
    """Gives up CUDA graphs if there are any, and otherwise halves the device tokens. Discards the gradients.

    Raises:
        MemoryRanOutError: several ranks train, which would have to do this together.
    """
    update = training.counters.update + 1
    if training.graphs and training.graphs.used:
        training.graphs, remedy = None, "without CUDA graphs"
    elif sum(map(len, batch.sentences)) == 1:
        raise NmtError(
            "memory ran out on a single sentence pair; train a smaller model, drop long pairs "
            "(nmt preprocess --max-length), or use a device with more memory"
        )
    elif training.world.size > 1:
        raise MemoryRanOutError(f"rank {training.world.rank} ran out of memory in update {update:,}")
    else:
        training.counters.device_tokens = training.device_tokens // 2
        remedy = f"with --device-tokens {training.counters.device_tokens}"
    training.loss.zero_grad(set_to_none=False)
    if training.runtime.device.type == "cuda":
        torch.cuda.empty_cache()
    console.warn(f"memory ran out in update {update:,}; training continues {remedy}")


def fit_memory(training: Training, plan: UpdatePlan) -> None:
    """Checks that the largest micro-batches fit into memory. Halves the default of --device-tokens until they do."""
    tokens = training.device_tokens
    fitting = tokens
    while fitting and not _fits(training, plan, fitting):
        fitting //= 2
    fitting = min(training.world.gather(fitting))
    if fitting == tokens:
        return
    problem = f"micro-batches of --device-tokens {tokens} do not fit into memory"
    if not fitting:
        raise NmtError(f"{problem}; train a smaller model or drop long pairs")
    if training.config.device_tokens is not None:
        raise NmtError(f"{problem}; give --device-tokens {fitting}")
    training.counters.device_tokens = fitting
    console.info(f"{problem}, so training uses {fitting}")


def _fits(training: Training, plan: UpdatePlan, device_tokens: int) -> bool:
    """Returns whether the largest micro-batches of this size fit into memory."""
    longest = max(map(max, plan.epoch.widest))
    if longest > device_tokens:
        return False
    # The first update allocates Adam's moments and the average.
    missing_bytes = 0 if training.counters.update else training.optimizer.adam_bytes + training.average_bytes
    # Packed batches may be full on both sides.
    for lengths in {(longest, longest)} if training.packs else set(plan.epoch.widest):
        pair = ParallelSplit(*(TokenArray(np.full(n - 1, EOS), np.array([0, n - 1])) for n in lengths))
        copies = np.zeros(most_positions(device_tokens) // max(lengths), dtype=int)
        batch = make_micro_batch(pair, [copies], packs=training.packs)
        try:
            reserved = torch.empty(missing_bytes, dtype=torch.uint8, device=training.runtime.device)
            add_gradient(training, batch, 0.0, last=False)
            del reserved
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            return False
        finally:
            training.loss.zero_grad(set_to_none=False)
    return True
