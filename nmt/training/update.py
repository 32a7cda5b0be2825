"""The updates of a training: their stream, gradients and steps, sums of their results, and those that are skipped."""

import math
import time
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

from nmt import console
from nmt.data.arrays import TokenArray
from nmt.data.batching import UpdatePlan, draw_epoch, most_positions
from nmt.data.folder import ParallelSplit
from nmt.data.loader import MicroBatch, Update, make_micro_batch, updates
from nmt.errors import MemoryRanOutError, NmtError
from nmt.model.architectures import training_flops
from nmt.model.device import is_out_of_memory, moved
from nmt.text.subword import UNK
from nmt.training.learning_rate import learning_rate
from nmt.training.ranks import World
from nmt.training.records import perplexity
from nmt.training.state import Training


def plan_epoch(training: Training) -> UpdatePlan:
    """Returns the update plan of the epoch that the training is in."""
    config, epoch = training.config, training.counters.epoch
    tokens, groups, seed = config.batch_tokens, config.batch_groups, config.seed
    split = training.data.split("train").in_epoch(seed, epoch)
    lengths = split.source.lengths, split.target.lengths
    drawn = training.world.broadcast(lambda: draw_epoch(lengths, tokens, groups, seed, epoch))
    return UpdatePlan(lengths, drawn, groups, split.given)


def endless_updates(training: Training, plan: UpdatePlan) -> Generator[Update, None, None]:
    """Yields this rank's part of every update without end, from the counters' position in `plan`, their epoch's.

    If memory runs out in an update, the same update comes again, perhaps in smaller micro-batches.
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


class UpdateResult(NamedTuple):
    """What an update gave, on the device.

    Attributes:
        losses: loss and negative log-likelihood, each summed over this rank's target tokens; [2].
        norm: the gradient's norm before clipping.
        skipped: 1 if the update was skipped, because the norm is not finite, otherwise 0.
    """

    losses: Tensor
    norm: Tensor
    skipped: Tensor


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
        _seed_dropout(training, counters.update + 1, index)
        try:
            batch_losses = add_gradient(training, batch, 1 / update.target_tokens)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            batch_losses = None
        # Outside of the handler, because the error keeps tensors alive. All ranks give up graphs together.
        if (training.graphs and training.world.any(batch_losses is None)) or batch_losses is None:
            _make_room(training, batch)
            return None
        losses += torch.stack(batch_losses)
    if training.optimizer.flat_gradient is not None:
        exchanged = torch.bfloat16 if training.config.reduce_precision == "bf16" else torch.float32
        training.world.add_up(training.optimizer.flat_gradient, exchanged)
    rate = learning_rate(counters.update + 1, training.model_config.d_model, training.config)
    norm, skipped = training.optimizer.step(rate)
    training.average.add(counters.update + 1)
    counters.update += 1
    counters.update_in_epoch += 1
    tokens = update.source_tokens, update.target_tokens
    flops = training_flops(training.model_config, len(training.data.codec.target), *tokens)
    counters.flops += flops + training.optimizer.flops
    return UpdateResult(losses, norm, skipped)


def _seed_dropout(training: Training, update: int, micro_batch: int) -> None:
    """Makes dropout depend only on seed, update, rank and micro-batch, so that resuming repeats it."""
    sequence = np.random.SeedSequence((training.config.seed, update, training.world.rank, micro_batch))
    torch.manual_seed(int(sequence.generate_state(1, np.uint64)[0] >> 1))


def add_gradient(training: Training, batch: MicroBatch, weight: float) -> tuple[Tensor, Tensor]:
    """Adds `weight` times the gradient of the batch's loss to the gradient of this rank, in fp16 times the loss scale.

    A loss that is not finite makes the gradient NaN, so that all ranks detect it.

    Returns:
        The loss and the negative log-likelihood, summed over the batch's target tokens on this rank.
    """
    loss_scale = training.optimizer.loss_scale

    def forward_and_backward(batch: MicroBatch, weight: Tensor | float) -> tuple[Tensor, Tensor]:
        with training.runtime.autocast():
            loss, nll = training.loss(batch)
        factor = torch.where(loss.detach().isfinite(), weight, torch.nan)
        (loss * (factor if loss_scale is None else factor * loss_scale)).backward()
        return loss.detach(), nll

    if training.graphs:
        return training.graphs(forward_and_backward, batch, weight)
    return forward_and_backward(moved(batch, training.runtime.device), weight)


def _make_room(training: Training, batch: MicroBatch) -> None:
    """Gives up CUDA graphs if there are any, and otherwise halves the device tokens. Discards the gradients.

    Raises:
        MemoryRanOutError: the batch has one pair, or several ranks train without graphs, which would have to do this
            together.
    """
    update = training.counters.update + 1
    if training.graphs and (training.graphs.used or training.world.size > 1):
        training.graphs, remedy = None, "without CUDA graphs"
    elif sum(map(len, batch.sentences)) == 1:
        advice = "train a smaller model, drop long pairs (nmt preprocess --max-length), or use a larger device"
        raise MemoryRanOutError(f"memory ran out on a single sentence pair in update {update:,}", advice)
    elif training.world.size > 1:
        raise MemoryRanOutError(f"rank {training.world.rank} ran out of memory in update {update:,}")
    else:
        training.counters.device_tokens = training.device_tokens // 2
        remedy = f"with --device-tokens {training.counters.device_tokens}"
    training.optimizer.clear_gradients()
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
        raise NmtError(f"{problem}; give --device-tokens {max(fitting, training.data.split('train').longest)}")
    training.counters.device_tokens = fitting
    console.info(f"{problem}, so training uses {fitting}")


def _fits(training: Training, plan: UpdatePlan, device_tokens: int) -> bool:
    """Returns whether the largest micro-batches of this size fit into memory."""
    longest = max(map(max, plan.epoch.widest))
    # The first update allocates Adam's moments and the average.
    missing_bytes = 0 if training.counters.update else training.optimizer.adam_bytes + training.average_bytes
    # Packed batches may be full on both sides.
    for lengths in {(longest, longest)} if training.packs else set(plan.epoch.widest):
        pair = ParallelSplit(*(TokenArray(np.full(n - 1, UNK), np.array([0, n - 1])) for n in lengths))
        copies = np.zeros(max(1, most_positions(device_tokens) // max(lengths)), dtype=int)
        batch = make_micro_batch(pair, [copies], packs=training.packs)
        try:
            reserved = torch.empty(missing_bytes, dtype=torch.uint8, device=training.runtime.device)
            add_gradient(training, batch, 0.0)
            del reserved
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            return False
        finally:
            training.optimizer.clear_gradients()
    return True


@dataclass
class Interval:
    """Sums over the updates since the last log line.

    Sums of losses and tokens cover this rank's share of the updates. Tensors stay on the device until they are read.

    Attributes:
        updates: the number of updates.
        trained: sums over the updates that were not skipped: loss, nll, gradient norm, target tokens, updates; [5].
        source_tokens, target_tokens: sums over all updates, padding left out.
        positions: the positions of both sides in all updates, padding included.
        started: the monotonic time at which the interval began, plus the time of excluded work.
    """

    updates: int = 0
    trained: Tensor = field(default_factory=lambda: torch.zeros(()))
    source_tokens: int = 0
    target_tokens: int = 0
    positions: int = 0
    started: float = field(default_factory=time.monotonic)

    def add(self, batches: list[MicroBatch], result: UpdateResult) -> None:
        """Adds an update."""
        self.updates += 1
        tokens, (losses, norm, skipped) = sum(batch.target_tokens for batch in batches), result
        sums = torch.stack([*losses, norm, torch.full_like(norm, tokens), torch.ones_like(norm)])
        self.trained = self.trained + torch.where(skipped > 0, 0.0, sums)
        self.target_tokens += tokens
        self.source_tokens += sum(batch.source_tokens for batch in batches)
        self.positions += sum(batch.positions for batch in batches)

    def exclude(self, work: Callable[[], None]) -> None:
        """Runs `work` without counting its time in this interval."""
        start = time.monotonic()
        work()
        self.started += time.monotonic() - start

    def record(self, world: World) -> dict[str, float]:
        """Returns the metrics of the interval over all ranks, which must all call this method."""
        loss, nll, norm, trained, updates = self.trained.tolist()
        shares = (loss, nll, trained, self.source_tokens, self.target_tokens, self.positions)
        loss, nll, trained, source, target, positions = (sum(x) for x in zip(*world.gather(shares), strict=True))
        seconds = time.monotonic() - self.started  # the sums above have waited for the device
        loss, nll = (total / trained if trained else math.nan for total in (loss, nll))
        return {
            "loss": loss,
            "nll": nll,
            "ppl": perplexity(nll),
            "gradient_norm": norm / updates if updates else math.nan,
            "skipped_updates": self.updates - int(updates),
            "source_tokens_per_second": source / seconds,
            "target_tokens_per_second": target / seconds,
            "padding_share": 1 - (source + target) / positions,
        }


class SkippedUpdates:
    """Counts skipped updates, and ends training when too many follow each other.

    Whether an update was skipped is read from the device one update later, so that the device stays busy.
    """

    def __init__(self, training: Training) -> None:
        self.training = training
        self.in_a_row = 0
        self._last: tuple[int, list[MicroBatch]] = 0, []
        self._was_skipped: Callable[[], bool] | None = None  # None once the last update is counted

    def note(self, update: int, batches: list[MicroBatch], skipped: Tensor) -> None:
        """Records an update that the device is computing, and checks the update before it. Raises as `check` does."""
        self.check()
        self._last, self._was_skipped = (update, batches), _readable_later(skipped)

    def check(self) -> None:
        """Ends training that has diverged; all ranks must call this method."""
        limit = self.training.config.max_skipped_updates
        if self.last_was_skipped() and self.in_a_row >= limit:
            update, batches = self._last
            causes = self.training.world.gather(_cause(self.training, update, batches))
            raise NmtError(
                f"training diverged: --max-skipped-updates {limit} in a row were skipped up to update {update:,}, "
                f"where {next(filter(None, causes), 'the gradient')} is not finite; resume from an earlier training "
                f"state with a lower learning rate (--lr-scale or --lr) or more --warmup-updates"
            )

    def last_was_skipped(self) -> bool:
        """Waits for the last update, and returns whether it was skipped.

        Saving after a skipped update could replace good training states by bad ones.
        """
        if self._was_skipped:
            self.in_a_row = self.in_a_row + 1 if self._was_skipped() else 0
            self._was_skipped = None
            if self.in_a_row:
                console.warn(
                    f"update {self._last[0]:,} was skipped: its loss or gradient is not finite "
                    f"({self.in_a_row} in a row)"
                )
        return self.in_a_row > 0


def _readable_later(flag: Tensor) -> Callable[[], bool]:
    """Returns a function that reads the flag without waiting for work that the device receives later."""
    if flag.device.type != "cuda":
        return lambda: bool(flag)
    copy = torch.empty_like(flag, device="cpu", pin_memory=True).copy_(flag, non_blocking=True)
    arrived = torch.cuda.Event()
    arrived.record()

    def read() -> bool:
        arrived.synchronize()
        return bool(copy)

    return read


def _cause(training: Training, update: int, batches: list[MicroBatch]) -> str | None:
    """Names the first parameter, activation or gradient that is not finite in an update of this rank's batches.

    Returns None if all are finite, or if memory runs out.
    """
    causes = [f"parameter {name}" for name, weight in training.loss.named_parameters() if not weight.isfinite().all()]
    modules = {module: name for name, module in training.loss.named_modules()}
    trained = {name: weight for name, weight in training.loss.named_parameters() if weight.requires_grad}

    def check(module: nn.Module, _: Any, output: Any) -> None:
        outputs = output if isinstance(output, tuple) else (output,)
        # A loss of the user may call modules that are not part of the model.
        if module in modules and not all(x.isfinite().all() for x in outputs if isinstance(x, Tensor)):
            causes.append(f"the output of {modules[module] or 'the loss'}")

    try:
        # Compiled layers hide their activations.
        with torch.compiler.set_stance("force_eager"), register_module_forward_hook(check):
            for index, batch in enumerate(batches):
                if causes:
                    break
                _seed_dropout(training, update, index)
                with training.runtime.autocast():
                    loss, _ = training.loss(moved(batch, training.runtime.device))
                named = zip(trained, torch.autograd.grad(loss, list(trained.values())), strict=True)
                causes += [f"the gradient of {name}" for name, gradient in named if not gradient.isfinite().all()]
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return None  # the message about the divergence matters more
    return causes[0] if causes else None
