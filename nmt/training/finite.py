"""Counts updates that were skipped because a loss or gradient is not finite, and ends training that diverges."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from nmt import console
from nmt.data.loader import Batch
from nmt.errors import NmtError
from nmt.training.distributed import World


class SkippedUpdates:
    """Counts skipped updates, and ends training when too many follow each other.

    Whether an update was skipped is read from the device one update later, so that the device stays busy.
    """

    def __init__(self, limit: int, world: World, explain: Callable[[int, list[Batch]], str | None]) -> None:
        """`explain` describes what is not finite in an update of this rank's batches; None if it finds nothing."""
        self.limit, self.world, self.explain = limit, world, explain
        self.in_a_row = 0
        self._unread: tuple[int, list[Batch], Callable[[], bool]] | None = None
        self._last: tuple[int, list[Batch]] = 0, []

    def note(self, update: int, batches: list[Batch], skipped: Tensor) -> None:
        """Records an update that the device is computing, and checks the update before it. Raises as `check` does."""
        self.check()
        self._unread = update, batches, _readable_later(skipped)

    def check(self) -> None:
        """Ends training that has diverged; all ranks must call this method.

        Raises:
            NmtError: `limit` updates in a row were skipped; the message says what is not finite.
        """
        update, batches = self.read()
        if self.in_a_row >= self.limit:
            found = next(filter(None, self.world.gather(self.explain(update, batches))), "the gradient")
            raise NmtError(
                f"training diverged: --max-skipped-updates {self.limit} in a row were skipped up to update {update:,}, "
                f"where {found} is not finite; resume from an earlier training state with a lower learning rate "
                f"(--lr-scale or --lr) or more --warmup-updates"
            )

    def last_was_skipped(self) -> bool:
        """Returns whether the last update was skipped. Saving now could replace good training states by bad ones."""
        self.read()
        return self.in_a_row > 0

    def read(self) -> tuple[int, list[Batch]]:
        """Waits for the last update, counts it if it was skipped, and returns its number and batches."""
        if self._unread is not None:
            update, batches, was_skipped = self._unread
            self._unread = None
            self._last = update, batches
            self.in_a_row = self.in_a_row + 1 if was_skipped() else 0
            if self.in_a_row:
                console.warn(
                    f"update {update:,} was skipped: its loss or gradient is not finite ({self.in_a_row} in a row)"
                )
        return self._last


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


def first_not_finite(model: nn.Module, passes: Iterable[Sequence[Tensor]]) -> str | None:
    """Describes the first parameter, activation or gradient that is not finite; returns None if all are finite.

    Args:
        passes: an iterator that runs the model forward for each item, and yields the gradients of all parameters that
            are trained.
    """
    for name, parameter in model.named_parameters():
        if not parameter.isfinite().all():
            return f"parameter {name}"
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    with _outputs_not_finite(model) as found:
        for gradients in passes:
            found += [f"the gradient of {n}" for n, g in zip(names, gradients, strict=True) if not g.isfinite().all()]
            if found:
                return found[0]
    return None


@contextmanager
def _outputs_not_finite(model: nn.Module) -> Iterator[list[str]]:
    """Yields a list that receives a description of the first module output that is not finite."""
    found: list[str] = []

    def check(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(_: nn.Module, __: Any, output: Any) -> None:
            tensors = output if isinstance(output, tuple) else (output,)
            if not found and not all(t.isfinite().all() for t in tensors if isinstance(t, Tensor)):
                found.append(f"the output of {name or 'the loss'}")

        return hook

    handles = [module.register_forward_hook(check(name)) for name, module in model.named_modules()]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()
