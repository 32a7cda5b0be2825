"""The gradient of an update, summed over micro-batches and ranks, and updates that are not finite."""

from collections.abc import Callable
from contextlib import nullcontext

import numpy as np
import torch
from torch import Tensor

from nmt import console
from nmt.data.batching import most_positions
from nmt.data.folder import ParallelSplit
from nmt.data.loader import MicroBatch, make_micro_batch
from nmt.data.mixture import TokenArray
from nmt.errors import NmtError
from nmt.model.device import Runtime
from nmt.model.out_of_memory import is_out_of_memory
from nmt.model.packing import obstacle_to_compiling, obstacle_to_packing
from nmt.text.subword import EOS
from nmt.training.graphs import GraphedPass
from nmt.training.loss import TrainingLoss
from nmt.training.optimizer import LossScale
from nmt.training.ranks import World


class SkippedUpdates:
    """Counts skipped updates, and ends training when too many follow each other.

    Whether an update was skipped is read from the device one update later, so that the device stays busy.
    """

    def __init__(self, limit: int, world: World, explain: Callable[[int, list[MicroBatch]], str | None]) -> None:
        """`explain` describes what is not finite in an update of this rank's batches; None if it finds nothing."""
        self.limit, self.world, self.explain = limit, world, explain
        self.in_a_row = 0
        self._last: tuple[int, list[MicroBatch]] = 0, []
        self._was_skipped: Callable[[], bool] | None = None  # None once the last update is counted

    def note(self, update: int, batches: list[MicroBatch], skipped: Tensor) -> None:
        """Records an update that the device is computing, and checks the update before it. Raises as `check` does."""
        self.check()
        self._last, self._was_skipped = (update, batches), _readable_later(skipped)

    def check(self) -> None:
        """Ends training that has diverged; all ranks must call this method."""
        if self.last_was_skipped() and self.in_a_row >= self.limit:
            update, batches = self._last
            found = next(filter(None, self.world.gather(self.explain(update, batches))), "the gradient")
            raise NmtError(
                f"training diverged: --max-skipped-updates {self.limit} in a row were skipped up to update {update:,}, "
                f"where {found} is not finite; resume from an earlier training state with a lower learning rate "
                f"(--lr-scale or --lr) or more --warmup-updates"
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


# Source and target tokens of some sentence pairs, EOS included.
Pairs = tuple[tuple[int, int], ...]


class Gradients:
    """Sums the gradients of an update's micro-batches in the parameters' `grad`, and then over all ranks."""

    def __init__(
        self, model: TrainingLoss, runtime: Runtime, world: World, loss_scale: LossScale | None = None
    ) -> None:
        self.model, self.runtime, self.loss_scale = model, runtime, loss_scale
        self._no_packing = obstacle_to_packing(model.model.config, runtime)
        self.packs = not self._no_packing  # whether batches are packed, without padding between sentences
        self._compiled = False
        self.scale = float(world.size)  # DistributedDataParallel averages, but the update needs the sum
        self.wrapped = world.wrap(model)
        # DistributedDataParallel sums over the ranks in every backward pass outside of this context.
        self._unsynchronised = getattr(self.wrapped, "no_sync", nullcontext)
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        # No graphs with a criterion of the user, which may wait for the GPU, nor with DistributedDataParallel.
        self._graphed = None
        if self.packs and runtime.device.type == "cuda" and world.control is None and model.criterion is None:
            self._graphed = GraphedPass(model, runtime.device)

    def compile_layers(self) -> None:
        """Compiles the model's layers with torch, or logs a warning that says what prevents it."""
        if obstacle := self._no_packing or obstacle_to_compiling(self.runtime.device):
            console.warn(f"--compile has no effect here: {obstacle}")
            return
        torch._dynamo.config.optimize_ddp = False  # this optimisation would cut each layer into pieces
        self.model.compile_parts()
        self._compiled = True

    @property
    def passes_before_replay(self) -> int:
        """How often a shape is computed before its graph is replayed: once without the graph, and once to record it."""
        return 2 if self._graphed else 0

    @property
    def hardware(self) -> str:
        """A description of the device and the code that computes gradients."""
        parts = [self.runtime.name, self.runtime.precision]
        if self.packs:
            parts.append("attention without padding")
        if self._compiled:
            parts.append("compiled layers")
        return ", ".join(parts)

    def add(self, batch: MicroBatch, weight: float, *, last: bool) -> tuple[Tensor, Tensor]:
        """Adds `weight` times the gradient of the batch's loss; after the `last` batch, sums over the ranks.

        In fp16, the gradient is also multiplied by the loss scale.

        A loss that is not finite makes the gradient NaN, so that all ranks detect it.

        Returns:
            The loss and the negative log-likelihood, summed over the batch's target tokens on this rank.
        """
        if self._graphed:
            return self._graphed(self._pass, batch, weight * self.scale)
        with nullcontext() if last else self._unsynchronised():
            return self._pass(batch.to(self.runtime.device), weight * self.scale)

    def _pass(self, batch: MicroBatch, weight: Tensor | float) -> tuple[Tensor, Tensor]:
        """Computes forward and backward; the batch is on the device."""
        with self.runtime.autocast():
            loss, nll = self.wrapped(batch)
        factor = torch.where(loss.detach().isfinite(), weight, torch.nan)
        (loss * (factor * self.loss_scale.scale if self.loss_scale else factor)).backward()
        return loss.detach(), nll

    def give_up_graphs(self) -> bool:
        """Frees the memory of graphs, and records no more, if a recording was begun. Returns whether one was."""
        if not self._graphed or not self._graphed.used:
            return False
        self._graphed = None
        return True

    def compute(self, batch: MicroBatch) -> list[Tensor]:
        """Returns the gradient of the batch's loss on this rank for `parameters`, without adding it to `grad`."""
        with self.runtime.autocast():
            loss, _ = self.model(batch.to(self.runtime.device))
        return list(torch.autograd.grad(loss, self.parameters))

    def fitting_tokens(self, pairs: Pairs, device_tokens: int, optimizer_bytes: int) -> int:
        """Returns the device tokens, or half or a quarter of them and so on, whose micro-batches fit into memory.

        The largest ones are computed. Returns 0 if even a single pair does not fit.
        """
        while device_tokens and not self._fit(pairs, device_tokens, optimizer_bytes):
            device_tokens //= 2
        return device_tokens

    def _fit(self, pairs: Pairs, device_tokens: int, optimizer_bytes: int) -> bool:
        """Returns whether micro-batches of this size fit into memory."""
        longest = max(map(max, pairs))
        if longest > device_tokens:
            return False
        # Packed batches may be full on both sides.
        for lengths in {(longest, longest)} if self.packs else set(pairs):
            pair = ParallelSplit(*(TokenArray(np.full(n - 1, EOS), np.array([0, n - 1])) for n in lengths))
            copies = np.zeros(most_positions(device_tokens) // max(lengths), dtype=int)
            batch = make_micro_batch(pair, [copies], packs=self.packs)
            try:
                reserved = torch.empty(optimizer_bytes, dtype=torch.uint8, device=self.runtime.device)
                self.add(batch, 0.0, last=False)
                del reserved
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                return False
            finally:
                self.model.zero_grad(set_to_none=False)
        return True
