"""The gradient of an update, micro-batch by micro-batch, on one rank of several, even where memory runs out.

Gradients are sums over sentences. So a micro-batch that does not fit is done in two halves, and the sum is the same.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from nmt import console
from nmt.data.loader import Batch, check_ids, make_batch
from nmt.data.store import DataFolder, ParallelSplit, TokenArray
from nmt.errors import NmtError
from nmt.model.packed import obstacle_to_packing
from nmt.model.runtime import Runtime, is_out_of_memory, obstacle_to_compiling
from nmt.text.subword import EOS
from nmt.training.distributed import World
from nmt.training.loss import TrainingLoss

Pairs = tuple[tuple[int, int], ...]


@dataclass
class _Progress:
    """How far the pass over a micro-batch came: whether forward ended, and which parameters have their gradient."""

    forward_done: bool = False
    arrived: set[Tensor] = field(default_factory=set)


class Gradients:
    """Adds up the gradients of micro-batches in the parameters' `grad`, on all ranks after the last."""

    def __init__(self, model: TrainingLoss, data: DataFolder, runtime: Runtime, world: World) -> None:
        self.model, self.data, self.runtime = model, data, runtime
        self.split = data.split("train")
        self._no_packing = obstacle_to_packing(model.model.config, runtime)
        self._compiled = False
        self.scale = float(world.size)  # because DistributedDataParallel averages, where we sum
        self.wrapped = world.wrap(model)
        self.parameters = list(model.parameters())
        self._progress = _Progress()
        for parameter in self.parameters:
            parameter.register_post_accumulate_grad_hook(lambda p: self._progress.arrived.add(p))

    @property
    def packs(self) -> bool:
        """Whether batches are to be without padding."""
        return not self._no_packing

    def compile_layers(self) -> None:
        """Has torch compile the model's layers, or warns why it cannot."""
        if obstacle := self._no_packing or obstacle_to_compiling(self.runtime.device):
            console.warn(f"--compile changes nothing here: {obstacle}")
            return
        torch._dynamo.config.optimize_ddp = False  # which would cut each layer in pieces
        self.model.model.compile_layers()
        self._compiled = True

    @property
    def hardware(self) -> str:
        """What computes them, and how: `NVIDIA H200, bf16, attention without padding, compiled layers`."""
        how = ["attention without padding"] * self.packs + ["compiled layers"] * self._compiled
        return ", ".join([self.runtime.name, self.runtime.precision, *how])

    def add(self, batch: Batch, weight: float, *, last: bool) -> tuple[Tensor, Tensor]:
        """Adds `weight` times the gradient of the batch's loss. The update's `last` batch has it summed over the ranks.

        A loss that is not finite makes its gradient NaN, so that every rank learns of it.

        Returns:
            The loss and the negative log-likelihood, summed over the batch's target tokens of this rank.
        """
        self._progress = _Progress()
        try:
            with nullcontext() if last else self._unsynchronised():
                return self._forward_backward(batch, weight)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        # Only here, where the exception and what its traceback holds on to are gone, is there memory again.
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
        return torch.where(loss.detach().isfinite(), weight * self.scale, torch.nan)

    def of(self, batch: Batch) -> list[Tensor]:
        """The gradient of the batch's loss on this rank, for every parameter; nothing is added to `grad`."""
        loss, _ = self._losses(self.model, batch)
        return list(torch.autograd.grad(loss, self.parameters))

    def _add_in_halves(self, batch: Batch, weight: float, last: bool) -> tuple[Tensor, Tensor]:
        progress = self._progress
        # A parameter whose gradient arrived has all of this batch's; the others have nothing of it.
        missing = [p for p in self.parameters if p not in progress.arrived]
        parts = [self._add_to(missing, half, weight) for half in self._halves(batch)]
        if last:
            self._synchronise(missing, progress.forward_done, batch)
        return _summed(parts)

    def _add_to(self, parameters: list[nn.Parameter], batch: Batch, weight: float) -> tuple[Tensor, Tensor]:
        """As `add`, for these parameters alone, all of them or none, and unknown to DistributedDataParallel."""
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
        """
        Raises:
            NmtError: the batch is a single sentence.
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
            f"memory ran out on a micro-batch of {sentences:,} sentence pairs, which is now done in two halves; "
            f"a smaller --device-tokens avoids this",
            from_any_rank=True,
        )
        return [make_batch(self.split, half, packs=self.packs) for half in _halved(batch.sentences)]

    def _synchronise(self, missing: list[nn.Parameter], forward_done: bool, batch: Batch) -> None:
        """Has the other ranks get what they wait for, by a backward pass that adds zeros."""
        if not isinstance(self.wrapped, DistributedDataParallel):
            return
        if forward_done:  # the pass has begun: it is for the parameters that it did not reach to complete it
            torch.autograd.backward(missing, [p.new_zeros(()).expand_as(p) for p in missing])
        else:
            shortest = [block[:1] for block in batch.sentences[:1]]
            loss, _ = self._losses(self.wrapped, make_batch(self.split, shortest, packs=self.packs).without_labels())
            loss.backward()

    # Trying it out

    def check_memory(self, pairs: Pairs, device_tokens: int, optimizer_bytes: int) -> None:
        """Tries the largest micro-batches that --device-tokens allows, with as much memory taken as Adam will need.

        Args:
            pairs: source and target tokens of the sentence pairs that such micro-batches are made of.

        Raises:
            NmtError: they do not fit; says which --device-tokens would.
        """
        tokens = device_tokens
        while tokens and not self._fit(pairs, tokens, optimizer_bytes):
            tokens //= 2
        if tokens < device_tokens:
            way_out = f"give --device-tokens {tokens}" if tokens else "train a smaller model or drop long pairs"
            raise NmtError(f"micro-batches of --device-tokens {device_tokens} do not fit into memory; {way_out}")

    def _fit(self, pairs: Pairs, device_tokens: int, optimizer_bytes: int) -> bool:
        """Whether micro-batches of this size do."""
        if max(map(max, pairs)) > device_tokens:
            return False
        for lengths in set(pairs):
            pair = ParallelSplit(*(TokenArray(np.full(n - 1, EOS), np.array([0, n - 1])) for n in lengths))
            batch = make_batch(pair, [np.zeros(device_tokens // max(lengths), dtype=int)], packs=self.packs)
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


def _summed(parts: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    losses, nlls = zip(*parts, strict=True)
    return torch.stack(losses).sum(), torch.stack(nlls).sum()


def _halved(blocks: tuple[np.ndarray, ...]) -> list[list[np.ndarray]]:
    """The blocks in two parts; a single block cut in two."""
    if len(blocks) == 1:
        return [[half] for half in np.array_split(blocks[0], 2)]
    middle = len(blocks) // 2
    return [list(blocks[:middle]), list(blocks[middle:])]
