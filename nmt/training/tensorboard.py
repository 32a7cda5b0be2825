"""Writes the metrics of a training as TensorBoard event files (--tensorboard)."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt import console
from nmt.errors import importing
from nmt.files import writing

FOLDER = "tensorboard"
_NO_METRICS = ("update", "epoch")


def require_tensorboard() -> None:
    """Checks that TensorBoard can be used.

    Raises:
        NmtError: its package is not installed.
    """
    with importing("tensorboard", "--tensorboard"):
        import torch.utils.tensorboard  # noqa: F401


@dataclass
class EventFiles:
    """The event files of a run folder, or nothing without --tensorboard.

    Attributes:
        folder: the run folder; None without --tensorboard.
    """

    folder: Path | None
    _writer: Any = None

    def open(self, resumed_after: int) -> None:
        """Begins an event file.

        Args:
            resumed_after: the update after which the training resumes. TensorBoard then ignores events of later updates
                from earlier files.

        Raises:
            NmtError: it cannot be written.
        """
        if self.folder is None:
            return
        from torch.utils.tensorboard import SummaryWriter

        path = self.folder / FOLDER
        with writing(path, "make room for it, or leave out --tensorboard"):
            self._writer = SummaryWriter(str(path), purge_step=resumed_after + 1)

    def add(self, kind: str, record: dict[str, Any]) -> None:
        """Adds the numbers of a record of metrics.jsonl, for example `train/loss`."""
        if self._writer is None:
            return
        with self._optional():
            for name, value in record.items():
                if isinstance(value, int | float) and name not in _NO_METRICS:
                    self._writer.add_scalar(f"{kind}/{name}", value, record["update"])
            self._writer.flush()

    def close(self) -> None:
        """Ends the event file, if one was begun."""
        if self._writer is not None:
            with self._optional():
                self._writer.close()

    @contextmanager
    def _optional(self) -> Iterator[None]:
        """Goes on without event files if they cannot be written, because metrics.jsonl has all metrics."""
        try:
            yield
        except OSError as error:
            self._writer = None
            reason = error.strerror or error
            console.warn(f"{self.folder}/{FOLDER} cannot be written ({reason}); training continues without it")
