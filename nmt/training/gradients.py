"""The gradient of an update, summed over its micro-batches and over all ranks.

A gradient is a sum over sentences. So a micro-batch that does not fit into memory can be processed in two halves, and
the sum stays the same.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from nmt import console
from nmt.data.loader import Batch, check_ids, make_batch
from nmt.data.store import DataFolder, ParallelSplit
from nmt.data.tokens import TokenArray
from nmt.errors import NmtError
from nmt.model.packed import obstacle_to_packing
from nmt.model.runtime import Runtime, is_out_of_memory, obstacle_to_compiling
from nmt.text.subword import EOS
from nmt.training.distributed import World
from nmt.training.loss import TrainingLoss
from nmt.training.loss_scale import LossScale

Pairs = tuple[tuple[int, int], ...]


@dataclass
class _Progress:
    """The progress of the pass over a micro-batch.

    Attributes:
        forward_done: whether the forward pass ended.
        arrived: the parameters whose gradients are complete.
    """

    forward_done: bool = False
    arrived: set[Tensor] = field(default_factory=set)


class Gradients:
    """Sums the gradients of an update's micro-batches in the parameters' `grad`, and then over all ranks."""

    def __init__(
        self,
        model: TrainingLoss,
        data: DataFolder,
        runtime: Runtime,
        world: World,
        loss_scale: LossScale | None = None,
    ) -> None:
        self.model, self.data, self.runtime, self.loss_scale = model, data, runtime, loss_scale
        self._no_packing = obstacle_to_packing(model.model.config, runtime)
        self._compiled = False
        self.scale = float(world.size)  # DistributedDataParallel averages, but the update needs the sum
        self.wrapped = world.wrap(model)
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._progress = _Progress()
        for parameter in self.parameters:
            parameter.register_post_accumulate_grad_hook(lambda p: self._progress.arrived.add(p))

    @property
    def packs(self) -> bool:
        """Whether batches are packed, without padding between sentences."""
        return not self._no_packing

    def compile_layers(self) -> None:
        """Compiles the model's layers with torch, or logs a warning that says what prevents it."""
        if obstacle := self._no_packing or obstacle_to_compiling(self.runtime.device):
            console.warn(f"--compile has no effect here: {obstacle}")
            return
        torch._dynamo.config.optimize_ddp = False  # this optimisation would cut each layer into pieces
        self.model.model.compile_layers()
        self._compiled = True

    @property
    def hardware(self) -> str:
        """A description of the device and the code that computes gradients.

        An example is `NVIDIA H200, bf16, attention without padding, compiled layers`.
        """
        parts = [self.runtime.name, self.runtime.precision]
        if self.packs:
            parts.append("attention without padding")
        if self._compiled:
            parts.append("compiled layers")
        return ", ".join(parts)

    def add(self, batch: Batch, weight: float, *, last: bool) -> tuple[Tensor, Tensor]:
        """Adds `weight` times the gradient of the batch's loss; after the `last` batch, sums over the ranks.

        In fp16, the gradient is also multiplied by the loss scale.

        A loss that is not finite makes the gradient NaN, so that all ranks detect it.

        Returns:
            The loss and the negative log-likelihood, summed over the batch's target tokens on this rank.
        """
        self._progress = _Progress()
        try:
            with nullcontext() if last else self._unsynchronised():
                return self._forward_backward(batch, weight)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        # Outside the handler, because the exception keeps the tensors of the failed pass alive.
        return self._add_in_halves(batch, weight, last)

    def _unsynchronised(self) -> AbstractContextManager[None]:
        return self.wrapped.no_sync() if isinstance(self.wrapped, DistributedDataParallel) else nullcontext()

    def _forward_backward(self, batch: Batch, weight: float) -> tuple[Tensor, Tensor]:
        loss, nll = self._losses(self.wrapped, batch)
        self._progress.forward_done = True
        (loss * self._factor(loss, weight)).backward()
        return loss.detach(), nll

    def _losses(self, module: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        check_ids(batch, self.data)
        with self.runtime.autocast():
            loss, nll = module(batch.to(self.runtime.device))
        return loss, nll

    def _factor(self, loss: Tensor, weight: float) -> Tensor:
        factor = torch.where(loss.detach().isfinite(), weight * self.scale, torch.nan)
        return factor * self.loss_scale.scale if self.loss_scale else factor

    def compute(self, batch: Batch) -> list[Tensor]:
        """Returns the gradient of the batch's loss on this rank for `parameters`, without adding it to `grad`."""
        loss, _ = self._losses(self.model, batch)
        return list(torch.autograd.grad(loss, self.parameters))

    def _add_in_halves(self, batch: Batch, weight: float, last: bool) -> tuple[Tensor, Tensor]:
        progress = self._progress
        # Each parameter has either this batch's whole gradient or none of it.
        missing = [p for p in self.parameters if p not in progress.arrived]
        parts = [self._add_to(missing, half, weight) for half in self._halves(batch)]
        if last:
            self._synchronise(missing, progress.forward_done, batch)
        return _summed(parts)

    def _add_to(self, parameters: list[nn.Parameter], batch: Batch, weight: float) -> tuple[Tensor, Tensor]:
        """Adds the batch's gradient to these parameters, or to none of them if it raises; does not sum over ranks."""
        try:
            loss, nll = self._losses(self.model, batch)
            gradients = torch.autograd.grad(loss * self._factor(loss, weight), parameters)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        else:
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
            return loss.detach(), nll
        parts = [self._add_to(parameters, half, weight) for half in self._halves(batch)]
        return _summed(parts)

    def _halves(self, batch: Batch) -> list[Batch]:
        """Returns the two halves of a batch, and logs a warning.

        Raises:
            NmtError: the batch is a single sentence pair.
        """
        sentences = sum(map(len, batch.sentences))
        if sentences == 1:
            raise NmtError(
                "memory ran out on a single sentence pair; train a smaller model, drop long pairs "
                "(nmt preprocess --max-length), or use a device with more memory"
            )
        if self.runtime.device.type == "cuda":
            torch.cuda.empty_cache()
        console.warn(
            f"memory ran out on a micro-batch of {sentences:,} sentence pairs, which is now processed in two halves; "
            f"a smaller --device-tokens avoids this",
            from_any_rank=True,
        )
        assert batch.split
        return [make_batch(batch.split, half, packs=self.packs) for half in _halved(batch.sentences)]

    def _synchronise(self, missing: list[nn.Parameter], forward_done: bool, batch: Batch) -> None:
        """Runs a backward pass of zeros, so that the other ranks' all-reduces complete."""
        if not isinstance(self.wrapped, DistributedDataParallel):
            return
        if forward_done:  # the failed backward pass has begun, so the parameters that it did not reach complete it
            torch.autograd.backward(missing, [p.new_zeros(()).expand_as(p) for p in missing])
        else:
            shortest = [block[:1] for block in batch.sentences[:1]]
            assert batch.split
            loss, _ = self._losses(self.wrapped, make_batch(batch.split, shortest, packs=self.packs).without_labels())
            loss.backward()

    # Memory check

    def check_memory(self, pairs: Pairs, device_tokens: int, optimizer_bytes: int) -> None:
        """Checks that the largest micro-batches that --device-tokens allows fit into memory, by computing them.

        Args:
            pairs: source and target lengths of sentence pairs; each fills one micro-batch.
            device_tokens: the value of --device-tokens.
            optimizer_bytes: memory that the optimiser will need; it is reserved during the check.

        Raises:
            NmtError: they do not fit; the message names a value of --device-tokens that fits.
        """
        tokens = device_tokens
        while tokens and not self._fit(pairs, tokens, optimizer_bytes):
            tokens //= 2
        if tokens < device_tokens:
            advice = f"give --device-tokens {tokens}" if tokens else "train a smaller model or drop long pairs"
            raise NmtError(f"micro-batches of --device-tokens {device_tokens} do not fit into memory; {advice}")

    def _fit(self, pairs: Pairs, device_tokens: int, optimizer_bytes: int) -> bool:
        """Returns whether micro-batches of this size fit into memory."""
        if max(map(max, pairs)) > device_tokens:
            return False
        for lengths in set(pairs):
            batch = self._batch_of_copies(lengths, device_tokens // max(lengths))
            try:
                reserved = torch.empty(optimizer_bytes, dtype=torch.uint8, device=self.runtime.device)
                with self._unsynchronised():
                    self._forward_backward(batch, 0.0)
                del reserved
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                return False
            finally:
                self.model.zero_grad(set_to_none=False)
        return True

    def _batch_of_copies(self, lengths: tuple[int, int], count: int) -> Batch:
        """Returns a micro-batch with `count` copies of a sentence pair of these lengths."""
        pair = ParallelSplit(*(TokenArray(np.full(n - 1, EOS), np.array([0, n - 1])) for n in lengths))
        return make_batch(pair, [np.zeros(count, dtype=int)], packs=self.packs)


def _summed(parts: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    losses, nlls = zip(*parts, strict=True)
    return torch.stack(losses).sum(), torch.stack(nlls).sum()


def _halved(blocks: tuple[np.ndarray, ...]) -> list[list[np.ndarray]]:
    """Splits the blocks into two halves; splits a single block in two."""
    if len(blocks) == 1:
        return [[half] for half in np.array_split(blocks[0], 2)]
    middle = len(blocks) // 2
    return [list(blocks[:middle]), list(blocks[middle:])]
