"""The workers that compute for the service, and what they do with a batch."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

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
from nmt.translate.translator import RunningSearch


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
class Advance:
    """Makes some steps of the running search of an operation. The payloads are sentences that join it, with keys."""

    operation: Translate


class Progress(NamedTuple):
    """What `Advance` gives: the translations of the sentences that are done, by key, and the keys of the others."""

    done: dict[Hashable, list[Hypothesis]]
    running: list[Hashable]


@dataclass(frozen=True)
class Each:
    """Does some work for each payload alone: it calls a function with the engine, the payload and the arguments."""

    model: str
    work: Callable[..., Any]
    arguments: tuple[Any, ...] = ()

    def __call__(self, engine: Engine, payloads: Sequence[Any]) -> list[Any]:
        """Returns the result for each payload."""
        return [self.work(engine, payload, *self.arguments) for payload in payloads]


def score(engine: Engine, line: EncodedPair) -> list[Rescored]:
    """Returns what was found for a pair."""
    return engine.score([line])[0]


def alternatives(engine: Engine, line: EncodedRequest, count: int, search: SearchConfig) -> list[Hypothesis]:
    """Returns translations that continue the prefix of a sentence with different pieces."""
    return engine.alternatives(line, count, search)


def attention(engine: Engine, pair: tuple[str, str]) -> dict[str, Any]:
    """Returns what the page draws for a sentence pair."""
    if not isinstance(engine, PyTorchEngine):
        raise NmtError("attention weights need --engine pytorch")
    return page_data(attention_in(engine, *pair))


# What a worker does with a batch. `model` is the name of the model. Requests with equal operations can share a batch.
Operation = Translate | Advance | Each
# Steps of search between two moments at which sentences can join. Fewer shorten the wait, but need more messages.
_STEPS = 2
# How often a batch is tried if the worker process that works on it dies.
_ATTEMPTS = 2
# An operation and what it is applied to. None only loads the models.
Work = tuple[Operation | None, Sequence[Any]]


# The path and the SHA-256 of each checkpoint that is served, by name.
ModelFiles = Mapping[str, tuple[str, str]]
Submit = Callable[[Work], "Future[Any]"]


@contextmanager
def started(models: ModelFiles, engine: EngineConfig, runtime: RuntimeConfig, workers: int) -> Iterator[list[Submit]]:
    """Yields a function for each worker that submits `Work` to it, after all workers have loaded the models."""
    if workers > 1:
        share_cores(workers)
    with ExitStack() as pools:
        # Even a single worker is a process of its own: a thread would share the interpreter with the event loop.
        made = [partial(_made, models, engine, runtime, number) for number in range(workers)]
        contexts = [worker_pool(make, 1, _ATTEMPTS, preload="nmt.serving.workers") for make in made]
        submits = list(map(pools.enter_context, contexts))
        for loaded in [submit((None, ())) for submit in submits]:
            loaded.result()
        yield submits


def _made(
    models: ModelFiles,
    config: EngineConfig,
    runtime: RuntimeConfig,
    number: int,
    _: int,  # the pool has only this worker
) -> "_Worker":
    """Makes worker `number`, which uses the GPU with its number, or shares one if there are fewer."""
    engines = {}
    for name, (path, digest) in models.items():
        if digest_of(path) != digest:
            raise NmtError(f"{path} has changed since nmt serve started; start it again")
        engines[name] = load_engine([path], config, runtime, number)
        engines[name].session().__enter__()  # until the worker ends
    return _Worker(engines)


class _Worker:
    """Applies operations, and keeps the searches that sentences can join."""

    def __init__(self, engines: dict[str, Engine]) -> None:
        self._engines, self._searches = engines, dict[Translate, RunningSearch]()

    def __call__(self, work: Work) -> Any:
        operation, payloads = work
        if operation is None:
            return None
        if not isinstance(operation, Advance):
            return operation(self._engines[operation.model], payloads)
        task = operation.operation
        engine = self._engines[task.model]
        assert isinstance(engine, PyTorchEngine)
        search = self._searches.pop(task, None) or RunningSearch(engine, task.search)  # one that fails is not kept
        done = search.advance(dict(payloads), _STEPS)
        if search.keys:
            self._searches[task] = search
        return Progress(done, search.keys)
