"""Updates whose numbers went wrong: left out, counted, and, if they do not end, traced to where they come from."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from nmt import console
from nmt.data.loader import Batch
from nmt.errors import NmtError
from nmt.training.distributed import World


class SkippedUpdates:
    """Whether an update was skipped is known on the device. It is read an update later, to keep the device busy."""

    def __init__(self, limit: int, world: World, explain: Callable[[int, list[Batch]], str]) -> None:
        """`explain` finds out what is not finite in an update of this rank's batches, in words; '' for nothing."""
        self.limit, self.world, self.explain = limit, world, explain
        self.in_a_row = 0
        self._unread: tuple[int, list[Batch], Callable[[], bool]] | None = None
        self._last: tuple[int, list[Batch]] = 0, []

    def note(self, update: int, batches: list[Batch], skipped: Tensor) -> None:
        """Remembers an update that is under way, after a look at the one before it. Raises as `check`."""
        self.check()
        self._unread = update, batches, _readable_later(skipped)

    def check(self) -> None:
        """To be called by all ranks alike.

        Raises:
            NmtError: as many updates as the limit were skipped in a row; says what went wrong.
        """
        update, batches = self.read()
        if self.in_a_row >= self.limit:
            found = next(filter(None, self.world.gather(self.explain(update, batches))), "the gradient")
            raise NmtError(
                f"training diverged: --max-skipped-updates {self.limit} in a row were skipped up to update {update:,}, "
                f"where {found} is not finite; start again from an earlier state with a lower --lr-scale or a longer "
                f"--warmup-updates"
            )

    def is_going_on(self) -> bool:
        """Whether the last update was skipped: no time to save, lest bad states take the place of good ones."""
        self.read()
        return self.in_a_row > 0

    def read(self) -> tuple[int, list[Batch]]:
        """Waits until the last update is done and counts it; returns which it was."""
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
    """Reads a flag when the device has come to it, without waiting for what it was given to do since."""
    if flag.device.type != "cuda":
        return lambda: bool(flag)
    copy = torch.empty_like(flag, device="cpu", pin_memory=True).copy_(flag, non_blocking=True)
    arrived = torch.cuda.Event()
    arrived.record()

    def read() -> bool:
        arrived.synchronize()
        return bool(copy)

    return read


def first_not_finite(model: nn.Module, passes: Iterable[Sequence[Tensor]]) -> str:
    """The first parameter, activation or gradient that is not finite, in words; '' if all are.

    Args:
        passes: runs the model forward for every item, the gradients of its parameters in their order.
    """
    for name, parameter in model.named_parameters():
        if not parameter.isfinite().all():
            return f"parameter {name}"
    found: list[str] = []

    def look(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(_: nn.Module, __: Any, output: Any) -> None:
            tensors = output if isinstance(output, tuple) else (output,)
            if not found and not all(t.isfinite().all() for t in tensors if isinstance(t, Tensor)):
                found.append(f"the output of {name or 'the loss'}")

        return hook

    handles = [module.register_forward_hook(look(name)) for name, module in model.named_modules()]
    names = [name for name, _ in model.named_parameters()]
    try:
        for gradients in passes:
            found += [f"the gradient of {n}" for n, g in zip(names, gradients, strict=True) if not g.isfinite().all()]
            if found:
                return found[0]
    finally:
        for handle in handles:
            handle.remove()
    return ""
