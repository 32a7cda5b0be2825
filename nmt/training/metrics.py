"""Sums over the updates between two log lines, and the metrics that are computed from them."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from nmt.data.loader import MicroBatch
from nmt.resources import process_peak_mib
from nmt.training.ranks import World
from nmt.training.records import perplexity


def peak_memory_mib(device: torch.device) -> float:
    """Returns the peak memory so far, in MiB: of the GPU if there is one, otherwise of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    return process_peak_mib()


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
    trained: torch.Tensor = field(default_factory=lambda: torch.zeros(()))
    source_tokens: int = 0
    target_tokens: int = 0
    positions: int = 0
    started: float = field(default_factory=time.monotonic)

    def add(self, batches: list[MicroBatch], losses: torch.Tensor, norm: torch.Tensor, skipped: torch.Tensor) -> None:
        """Adds an update."""
        self.updates += 1
        tokens = sum(batch.target_tokens for batch in batches)
        sums = torch.stack([*losses, norm, torch.full_like(norm, tokens), torch.ones_like(norm)])
        self.trained = self.trained + torch.where(skipped > 0, 0.0, sums)
        self.target_tokens += tokens
        self.source_tokens += sum(batch.source_tokens for batch in batches)
        self.positions += sum(batch.positions for batch in batches)

    def exclude(self, work: Callable[[], None]) -> None:
        """Runs `work` without counting its time in this interval."""
        before = time.monotonic()
        work()
        self.started += time.monotonic() - before

    def record(self, world: World) -> dict[str, float]:
        """Returns the metrics of the interval over all ranks, which must all call this method."""
        loss, nll, norm, trained, updates = self.trained.tolist()
        shares = (loss, nll, trained, self.source_tokens, self.target_tokens, self.positions)
        loss, nll, trained, source, target, positions = world.sum(*shares)
        seconds = time.monotonic() - self.started  # the sums above have waited for the device
        return {
            "loss": _ratio(loss, trained),
            "nll": _ratio(nll, trained),
            "ppl": perplexity(_ratio(nll, trained)),
            "gradient_norm": _ratio(norm, updates),
            "skipped_updates": self.updates - int(updates),
            "source_tokens_per_second": source / seconds,
            "target_tokens_per_second": target / seconds,
            "padding_share": 1 - (source + target) / positions,
        }


def _ratio(total: float, count: float) -> float:
    return total / count if count else math.nan
