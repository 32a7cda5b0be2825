"""What a log interval adds up, and the line and the record it becomes."""

import json
import math
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from nmt.data.loader import Batch
from nmt.errors import NmtError


def peak_memory_mib(device: torch.device) -> float:
    """Most memory used so far: of the GPU where there is one, else of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


@dataclass
class Interval:
    """Sums over the updates since the last log line; `loss` and `nll` stay on the device until they are read."""

    updates: int = 0
    loss: torch.Tensor | float = 0.0
    nll: torch.Tensor | float = 0.0
    gradient_norm: torch.Tensor | float = 0.0
    source_tokens: int = 0
    target_tokens: int = 0
    positions: int = 0
    started: float = field(default_factory=time.monotonic)

    def add_batch(self, batch: Batch, loss: torch.Tensor, nll: torch.Tensor) -> None:
        self.loss = self.loss + loss.detach()
        self.nll = self.nll + nll
        self.source_tokens += batch.source_tokens
        self.target_tokens += batch.target_tokens
        self.positions += batch.positions

    def add_update(self, gradient_norm: torch.Tensor) -> None:
        self.updates += 1
        self.gradient_norm = self.gradient_norm + gradient_norm

    def exclude(self, work: Callable[[], None]) -> None:
        """Does other work, whose time is left out of this interval's."""
        before = time.monotonic()
        work()
        self.started += time.monotonic() - before

    def record(self) -> dict[str, float]:
        """Means over the interval: loss and nll a target token in nats, tokens a second, share of padding."""
        loss, nll = float(self.loss) / self.target_tokens, float(self.nll) / self.target_tokens
        seconds = time.monotonic() - self.started  # now that the device has finished
        return {
            "loss": loss,
            "nll": nll,
            "ppl": perplexity(nll),
            "gradient_norm": float(self.gradient_norm) / self.updates,
            "source_tokens_per_second": self.source_tokens / seconds,
            "target_tokens_per_second": self.target_tokens / seconds,
            "padding_share": 1 - (self.source_tokens + self.target_tokens) / self.positions,
        }


def perplexity(nll: float) -> float:
    """e^nll a piece, infinite where that overflows."""
    return math.exp(nll) if nll < 700 else math.inf


class MetricsFile:
    """`metrics.jsonl` of a run: one JSON object a line, appended as training goes on.

    Raises:
        NmtError: in all methods, if the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def rewind(self, update: int) -> None:
        """Drops the records of updates after `update`, which a resumed run makes anew."""
        if not self.path.exists():
            return
        with self._writing():
            lines = self.path.read_text(encoding="utf-8").splitlines()
            partial = self.path.with_suffix(".partial")
            partial.write_text("".join(f"{line}\n" for line in lines if _is_of(line, update)), encoding="utf-8")
            partial.replace(self.path)

    def append(self, kind: str, values: dict[str, Any]) -> None:
        finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}
        with self._writing(), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": kind, "time": time.time(), **finite}) + "\n")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise NmtError(f"{self.path} cannot be written ({error.strerror}); free some space there") from error


def _is_of(line: str, last_update: int) -> bool:
    """Whether a line is a whole record, and of an update up to `last_update`."""
    try:
        return bool(json.loads(line)["update"] <= last_update)
    except (ValueError, KeyError, TypeError):
        return False
