"""The workers that compute for the service, and what they do with a batch."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from nmt import console
from nmt.config import EngineConfig, RuntimeConfig, SearchConfig
from nmt.errors import NmtError
from nmt.files import digest_of
from nmt.jobs.pool import worker_pool
from nmt.pages.attention import attention_in, page_data
from nmt.resources import sharing_cores
from nmt.serving.errors import ChangedModelError
from nmt.text.directions import Direction
from nmt.translate.encoding import EncodedSentence, in_batches
from nmt.translate.job import Engine, load_engine
from nmt.translate.pairs import EncodedPair, Score
from nmt.translate.pytorch_engine import PyTorchEngine
from nmt.translate.running_search import RunningSearch
from nmt.translate.units import Translation


@dataclass(frozen=True)
class Operation:
    """What a worker does with a batch. Requests with equal operations can share a batch.

    Attributes:
        function: gets the engine, the batch and the options, and returns a result for each element of the batch.
        model: the name of the model.
    """

    function: Callable[..., list[Any]]
    model: str
    options: tuple[Any, ...] = ()


def translate(
    engine: Engine, sentences: Sequence[EncodedSentence], search: SearchConfig, log_probs: bool
) -> list[list[Translation]]:
    """Returns the translations of each sentence."""
    return in_batches(  # of padded sentences, while the scheduler counts them without padding
        lambda batch: engine.translate(batch, search, log_probs=log_probs),
        sentences,
        [sentence.width for sentence in sentences],
        search.tokens_at_once(engine.device),
    )


class Advanced(NamedTuple):
    """What some steps of a running search give: the translations of sentences that are done, and the others' keys."""

    done: dict[Hashable, list[Translation]]
    running: list[Hashable]


def score(engine: Engine, pairs: Sequence[EncodedPair]) -> list[list[Score]]:
    """Returns the scores of the given translations of each line."""
    return engine.score(pairs)


def alternatives(
    engine: Engine, sentences: Sequence[EncodedSentence], count: int, search: SearchConfig
) -> list[list[Translation]]:
    """Returns, for each sentence, translations that continue its prefix with different pieces."""
    return [engine.alternatives(sentence, count, search) for sentence in sentences]


def attention(engine: Engine, pairs: Sequence[tuple[str, str, Direction | None]]) -> list[dict[str, Any]]:
    """Returns what the page draws for each sentence pair of a direction: attention weights."""
    if not isinstance(engine, PyTorchEngine):
        raise NmtError("attention weights need --engine pytorch")
    return [page_data(attention_in(engine, *pair)) for pair in pairs]


# Steps of search between two moments at which sentences can join. Fewer shorten the wait, but need more messages.
_STEPS = 2
# How often a batch is tried if the worker process that works on it dies.
_ATTEMPTS = 2
# An operation and what it is applied to: a batch; or for some steps of a running search, the sentences that join
# it, by key. None only loads the models.
Work = tuple[Operation | None, Sequence[Any] | Mapping[Hashable, EncodedSentence]]
# The path and the SHA-256 of each checkpoint that is served, by name.
ModelFiles = Mapping[str, tuple[str, str]]
Submit = Callable[[Work], "Future[Any]"]


@contextmanager
def started(models: ModelFiles, engine: EngineConfig, runtime: RuntimeConfig, workers: int) -> Iterator[list[Submit]]:
    """Yields a function for each worker that submits `Work` to it, after all workers have loaded the models."""
    with ExitStack() as pools:
        if workers > 1:
            pools.enter_context(sharing_cores(workers))
        # Even a single worker is a process of its own: a thread would share the interpreter with the event loop.
        tasks = [partial(_ModelWorker, models, engine, runtime, process) for process in range(workers)]
        submits = [pools.enter_context(worker_pool(task, 1, _ATTEMPTS, preload=__name__)) for task in tasks]
        for loaded in [submit((None, ())) for submit in submits]:
            loaded.result()
        yield submits


class _ModelWorker:
    """Applies operations, and keeps the searches that sentences can join. Uses the GPU with its number, or shares."""

    def __init__(self, models: ModelFiles, config: EngineConfig, runtime: RuntimeConfig, process: int, _: int) -> None:
        self._engines, self._searches = dict[str, Engine](), dict[Operation, RunningSearch]()
        for name, (path, digest) in models.items():
            if digest_of(path) != digest:
                console.warn(f"{path} has changed since nmt serve started; start it again")
                raise ChangedModelError(f"the file of the model {name} has changed; the server must be started again")
            self._engines[name] = load_engine([path], config, runtime, process)
            self._engines[name].session().__enter__()  # until the worker ends

    def __call__(self, work: Work) -> Any:
        operation, payloads = work
        if operation is None:
            return None
        engine = self._engines[operation.model]
        if not isinstance(payloads, Mapping):
            return operation.function(engine, payloads, *operation.options)
        assert isinstance(engine, PyTorchEngine)
        search = self._searches.pop(operation, None)  # so that one that fails is not kept
        search = search or RunningSearch(engine, *operation.options)
        done = search.advance(payloads, _STEPS)
        if search.keys:
            self._searches[operation] = search
        return Advanced(done, search.keys)
