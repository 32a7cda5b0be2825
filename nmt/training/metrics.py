"""What a log interval adds up, and the record it becomes."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from nmt.data.loader import Batch
from nmt.resources import process_peak_mib
from nmt.training.distributed import World


def peak_memory_mib(device: torch.device) -> float:
    """Most memory used so far: of the GPU where there is one, else of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    return process_peak_mib()


@dataclass
class Interval:
    """Sums over the updates since the last log line; those that were skipped are counted, but not summed.

    Losses and tokens are of this rank's share; `loss`, `nll`, `norm` and `trained_tokens` stay on the device until
    they are read.
    """

    updates: int = 0
    skipped: torch.Tensor | float = 0.0
    loss: torch.Tensor | float = 0.0
    nll: torch.Tensor | float = 0.0
    norm: torch.Tensor | float = 0.0
    trained_tokens: torch.Tensor | float = 0.0
    source_tokens: int = 0
    target_tokens: int = 0
    positions: int = 0
    started: float = field(default_factory=time.monotonic)

    def add(self, batches: list[Batch], losses: torch.Tensor, norm: torch.Tensor, skipped: torch.Tensor) -> None:
        """Adds an update: its micro-batches, the sums of their loss and nll [2], its gradient's norm, 1 if skipped."""
        self.updates += 1
        self.skipped = self.skipped + skipped
        tokens = sum(batch.target_tokens for batch in batches)
        loss, nll, norm, trained = (torch.where(skipped > 0, 0.0, x) for x in (*losses, norm, float(tokens)))
        self.loss, self.nll, self.norm = self.loss + loss, self.nll + nll, self.norm + norm
        self.trained_tokens = self.trained_tokens + trained
        self.target_tokens += tokens
        self.source_tokens += sum(batch.source_tokens for batch in batches)
        self.positions += sum(batch.positions for batch in batches)

    def exclude(self, work: Callable[[], None]) -> None:
        """Does other work, whose time is left out of this interval's."""
        before = time.monotonic()
        work()
        self.started += time.monotonic() - before

    def record(self, world: World) -> dict[str, float]:
        """Means over the interval and all ranks: loss and nll a target token in nats, tokens a second, padding."""
        shares = (self.loss, self.nll, self.trained_tokens, self.source_tokens, self.target_tokens, self.positions)
        loss, nll, trained, source, target, positions = world.sum(*map(float, shares))
        seconds = time.monotonic() - self.started  # now that the device has finished
        skipped = int(self.skipped)
        return {
            "loss": _ratio(loss, trained),
            "nll": _ratio(nll, trained),
            "ppl": perplexity(_ratio(nll, trained)),
            "gradient_norm": _ratio(float(self.norm), self.updates - skipped),
            "skipped_updates": skipped,
            "source_tokens_per_second": source / seconds,
            "target_tokens_per_second": target / seconds,
            "padding_share": 1 - (source + target) / positions,
        }


def _ratio(total: float, count: float) -> float:
    return total / count if count else math.nan


def perplexity(nll: float) -> float:
    """e^nll a piece, infinite where that overflows."""
    return math.exp(nll) if nll < 700 else math.inf
