"""The workers that compute for the service, and what they do with a batch."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from nmt.config import EngineConfig, RuntimeConfig, SearchConfig
from nmt.errors import NmtError
from nmt.files import digest_of
from nmt.jobs.pool import worker_pool
from nmt.pages.attention import attention_in, page_data
from nmt.resources import share_cores
from nmt.translate.engines import Engine, PyTorchEngine, load_engine
from nmt.translate.formats import Rescored
from nmt.translate.requests import EncodedRequest, Hypothesis
from nmt.translate.rescoring import EncodedPair


@dataclass(frozen=True)
class Translate:
    """Translates sentences."""

    model: str
    search: SearchConfig
    log_probs: bool

    def __call__(self, engine: Engine, payloads: Sequence[EncodedRequest]) -> list[list[Hypothesis]]:
        """Returns the translations of each sentence."""
        return engine.search(payloads, self.search, log_probs=self.log_probs)


@dataclass(frozen=True)
class Score:
    """Scores pairs."""

    model: str

    def __call__(self, engine: Engine, payloads: Sequence[EncodedPair]) -> list[Rescored]:
        """Returns what was found for each pair."""
        return [rescored for line in payloads for rescored in engine.score([line])]


@dataclass(frozen=True)
class Alternatives:
    """Finds other continuations of a prefix."""

    model: str
    count: int

    def __call__(self, engine: Engine, payloads: Sequence[EncodedRequest]) -> list[list[Hypothesis]]:
        """Returns translations that continue the prefix of each sentence with different pieces."""
        return [engine.alternatives(line, self.count) for line in payloads]


@dataclass(frozen=True)
class Attention:
    """Computes the attention weights of sentence pairs."""

    model: str

    def __call__(self, engine: Engine, payloads: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        """Returns what the page draws for each pair."""
        if not isinstance(engine, PyTorchEngine):
            raise NmtError("attention weights need --engine pytorch")
        return [page_data(attention_in(engine, *payload)) for payload in payloads]


# What a worker does with a batch. `model` is the name of the model. Requests with equal operations can share a batch.
Operation = Translate | Score | Alternatives | Attention
# How often a batch is tried if the worker process that works on it dies.
_ATTEMPTS = 2
# An operation and what it is applied to. None only loads the models.
Work = tuple[Operation | None, Sequence[Any]]


@dataclass(frozen=True)
class ModelFile:
    """A checkpoint that is served."""

    name: str
    path: str
    digest: str


@contextmanager
def started(
    models: Sequence[ModelFile], engine: EngineConfig, runtime: RuntimeConfig, workers: int
) -> Iterator[Callable[[Any], "Future[Any]"]]:
    """Yields a function that submits `Work`, after all workers have loaded the models."""
    make_work = partial(_working, models, engine, runtime)
    if workers > 1:
        share_cores(workers)
        pool = worker_pool(make_work, workers, _ATTEMPTS, preload="nmt.serving.workers")
    else:
        pool = _thread(make_work)
    with pool as submit:
        for loaded in [submit((None, ())) for _ in range(workers)]:
            loaded.result()
        yield submit


@contextmanager
def _thread(make_work: Callable[[int], Callable[[Work], Any]]) -> Iterator[Callable[[Any], "Future[Any]"]]:
    """Yields a function that submits `Work` to a thread of this process."""
    with ThreadPoolExecutor(1, "nmt-worker") as thread:
        work = thread.submit(make_work, 0).result()
        yield lambda work_to_do: thread.submit(work, work_to_do)


def _working(
    models: Sequence[ModelFile], config: EngineConfig, runtime: RuntimeConfig, number: int
) -> Callable[[Work], Sequence[Any]]:
    """Loads the models, and returns the function that applies operations in worker `number`.

    If there are several GPUs, the worker uses the one with its number.
    """
    engines = {}
    for model in models:
        if digest_of(model.path) != model.digest:
            raise NmtError(f"{model.path} has changed since nmt serve started; start it again")
        engines[model.name] = load_engine([model.path], config, runtime, number)
        engines[model.name].session().__enter__()  # until the worker ends

    def work(work_to_do: Work) -> Sequence[Any]:
        operation, payloads = work_to_do
        return operation(engines[operation.model], payloads) if operation else []

    return work
