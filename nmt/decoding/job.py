"""What jobs that work with a model have in common."""

from dataclasses import dataclass, replace
from typing import Self

from nmt.checkpoint_file import read_codec
from nmt.config import RuntimeConfig
from nmt.text.codec import TextCodec


@dataclass(frozen=True)
class ModelJob:
    """The part of a `nmt.jobs.work.LineJob` that depends on its model alone.

    Attributes:
        models: the checkpoint of the model, or the checkpoints of an ensemble.
    """

    models: tuple[str, ...]
    runtime: RuntimeConfig

    @property
    def device(self) -> str:
        """`cuda` or `cpu`; `auto` if nothing depends on it."""
        return self.runtime.device

    def with_models(self, paths: tuple[str, ...]) -> Self:
        """Returns the same job with copies of its checkpoints."""
        return replace(self, models=paths)

    def codec(self) -> TextCodec:
        """Returns how the model's text is processed."""
        return read_codec(self.models[0])
