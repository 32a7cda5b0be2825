"""What the workers of the service do with a batch. Tasks are sent to worker processes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from nmt.config import SearchConfig
from nmt.errors import NmtError
from nmt.pages.attention import attention_in, page_data
from nmt.pages.page import page
from nmt.translate.engines import Engine, PyTorchEngine
from nmt.translate.formats import Rescored
from nmt.translate.requests import Encoded, Hypothesis
from nmt.translate.rescoring import Line


class Task(Protocol):
    """Work for the model with this name. Tasks that are equal can share a batch."""

    @property
    def model(self) -> str: ...

    def __call__(self, engine: Engine, payloads: Sequence[Any]) -> Sequence[Any]:
        """Returns a result for each payload."""


@dataclass(frozen=True)
class Translate:
    """Translates sentences."""

    model: str
    search: SearchConfig
    log_probs: bool

    def __call__(self, engine: Engine, payloads: Sequence[Encoded]) -> list[list[Hypothesis]]:
        """Returns the translations of each sentence."""
        for line in payloads:
            engine.check(line, self.search)
        return engine.search(payloads, self.search, log_probs=self.log_probs)


@dataclass(frozen=True)
class Score:
    """Scores pairs."""

    model: str

    def __call__(self, engine: Engine, payloads: Sequence[Line]) -> list[Rescored]:
        """Returns what was found for each pair."""
        return [rescored for line in payloads for rescored in engine.score([line])]


@dataclass(frozen=True)
class Alternatives:
    """Finds other continuations of a prefix."""

    model: str
    count: int

    def __call__(self, engine: Engine, payloads: Sequence[Encoded]) -> list[list[Hypothesis]]:
        """Returns translations that continue the prefix of each sentence with different pieces."""
        for line in payloads:
            engine.check(line, SearchConfig())
        return [engine.alternatives(line, self.count) for line in payloads]


@dataclass(frozen=True)
class Draw:
    """Draws the attention weights of sentence pairs."""

    model: str

    def __call__(self, engine: Engine, payloads: Sequence[tuple[str, str]]) -> list[str]:
        """Returns the page of each pair."""
        if not isinstance(engine, PyTorchEngine):
            raise NmtError("attention weights need --engine pytorch")
        drawn = [attention_in(engine.translator, source, target) for source, target in payloads]
        return [page("attention", f"Attention of {self.model}", page_data(found)) for found in drawn]
