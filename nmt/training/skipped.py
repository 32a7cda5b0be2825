"""Updates that are skipped, because their loss or gradient is not finite."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

from nmt import console
from nmt.data.loader import MicroBatch
from nmt.errors import NmtError
from nmt.model.out_of_memory import is_out_of_memory
from nmt.training.state import Training


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
                training.seed_dropout(update, index)
                with training.runtime.autocast():
                    loss, _ = training.loss(batch.to(training.runtime.device))
                gradients = torch.autograd.grad(loss, list(trained.values()))
                named = zip(trained, gradients, strict=True)
                causes += [f"the gradient of {name}" for name, gradient in named if not gradient.isfinite().all()]
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return None  # the message about the divergence matters more
    return causes[0] if causes else None
