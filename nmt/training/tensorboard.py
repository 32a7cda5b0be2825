"""Writes the metrics of a training as TensorBoard event files (--tensorboard)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt.errors import NmtError

FOLDER = "tensorboard"
_NO_METRICS = ("update", "epoch")


def require_tensorboard() -> None:
    """Checks that TensorBoard can be used.

    Raises:
        NmtError: its package is not installed.
    """
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError as error:
        raise NmtError(
            f"--tensorboard needs the package tensorboard ({error}); install it with pip install tensorboard"
        ) from error


@dataclass
class EventFiles:
    """The event files of a run folder, or nothing without --tensorboard.

    Attributes:
        folder: the run folder; None without --tensorboard.
        resumed_after: the update after which the training resumes. TensorBoard then ignores events of later updates
            from earlier files.
    """

    folder: Path | None
    resumed_after: int = 0
    _writer: Any = None

    def add(self, kind: str, record: dict[str, Any]) -> None:
        """Adds the numbers of a record of metrics.jsonl, for example `train/loss`."""
        if self.folder is None:
            return
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(self.folder / FOLDER), purge_step=self.resumed_after + 1)
        for name, value in record.items():
            if isinstance(value, int | float) and name not in _NO_METRICS:
                self._writer.add_scalar(f"{kind}/{name}", value, record["update"])
        self._writer.flush()

    def close(self) -> None:
        """Ends the event file, if one was begun."""
        if self._writer is not None:
            self._writer.close()
