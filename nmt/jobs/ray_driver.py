"""Does shards on a Ray cluster.

The driver is the process of the command. It starts workers (Ray actors) as long as the cluster has room for them, loads
a model in each, and keeps two shards in flight for each, so that no worker waits. Workers that see the same files as
the driver read shards and write results themselves. The driver does that for the others, and for compressed files,
which are read from the beginning. If a worker dies, other workers do its shards.
"""

import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from nmt import __version__, console
from nmt.config import JobConfig
from nmt.errors import NmtError
from nmt.jobs.folder import JobFolder
from nmt.jobs.local import ATTEMPTS, Outcome
from nmt.jobs.plan import Reader, Shard
from nmt.jobs.ray_connection import reason
from nmt.jobs.ray_worker import Done, RayWorker, Shipped
from nmt.jobs.work import Job
from nmt.signals import STOPPING, not_ignored

_IN_FLIGHT = 2  # shards of each worker
_POLL_SECONDS = 0.2
_LOOK_SECONDS = 1.0  # between two looks at the machines of the cluster


class _Call(NamedTuple):
    """A call of a method of a worker.

    Attributes:
        then: takes the value that the method returned.
        shard: the shard that the worker does.
    """

    task: Any
    then: Callable[[Any], Outcome | None]
    shard: Shard | None = None


@dataclass
class _Worker:
    """A worker as the driver sees it.

    Attributes:
        calls: the calls that it works on, oldest first.
        host: the name of its machine; empty until it has said so.
        has_files: whether it reads and writes files itself; None until it has loaded.
    """

    actor: Any
    calls: list[_Call] = field(default_factory=list)
    host: str = ""
    has_files: bool | None = None


class _Driver:
    def __init__(
        self, job: Job, folder: JobFolder, todo: Sequence[Shard], options: JobConfig, most: int | None
    ) -> None:
        import ray

        self._ray = ray
        self._todo = deque(todo)
        self._reader = Reader(folder.plan.paths)
        gpus = 1 if job.device == "cuda" else 0
        cores = options.worker_cores
        self._is_alone = options.cluster == "auto"  # if there is one machine, it is this one
        self._needs = {"CPU": cores, **({"GPU": 1} if gpus else {})}
        self._most = most
        # Methods run in the worker one after the other. What restarts and retries is decided here, not by Ray.
        self._actor = ray.remote(RayWorker).options(num_cpus=cores, num_gpus=gpus, max_restarts=0, max_task_retries=0)
        self._shipped = ray.put(Shipped(job, folder.path, folder.identity, folder.plan))
        self._models = [ray.put(np.fromfile(path, np.uint8)) for path in job.models]
        self._workers: list[_Worker] = []
        self._by_task: dict[Any, _Worker] = {}
        self._attempts = Counter[int]()
        self._deaths_while_loading = 0
        self._looked = 0.0

    @property
    def state(self) -> str:
        """The machines and workers for the progress bar."""
        loaded = [worker for worker in self._workers if worker.has_files is not None]
        machines = len({worker.host for worker in loaded})
        return f"{console.counted(len(loaded), 'worker')} on {console.counted(machines, 'machine')}"

    def run(self) -> Iterator[Outcome]:
        """Yields what becomes of each shard.

        Raises:
            SystemExit: a signal asked the process to end.
            NmtError: the input is wrong, or no worker can load the model.
        """
        with _noted_signals() as noted:
            while self._todo or any(call.shard for worker in self._workers for call in worker.calls):
                _end_if(noted)
                self._add_workers()
                self._hand_out()
                if not self._by_task:
                    time.sleep(_POLL_SECONDS)
                    continue
                # Ray would swallow an exception of a signal handler here, so the handler only takes a note.
                for task in self._ray.wait(list(self._by_task), timeout=_POLL_SECONDS)[0]:
                    yield from self._take(task)
            _end_if(noted)

    def stop(self) -> None:
        """Ends all workers."""
        for worker in self._workers:
            with suppress(self._ray.exceptions.RayError):
                self._ray.kill(worker.actor)

    def _add_workers(self) -> None:
        """Starts as many workers as the machines have room for, but not more than there are shards."""
        if time.monotonic() - self._looked < _LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        rooms = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        room = sum(int(min(has.get(name, 0) // amount for name, amount in self._needs.items())) for has in rooms)
        if not room and self._is_alone and len(rooms) == 1:
            raise NmtError(f"this machine has no room for a worker with --worker-cores {self._needs['CPU']}; lower it")
        if not room:
            needs = " and ".join(f"{amount} {name}" for name, amount in self._needs.items())
            console.warn_once(f"no machine of the cluster has {needs} for a worker; waiting for one")
        shards = len(self._todo) + sum(len(worker.calls) for worker in self._workers)
        for _ in range(min(room, self._most or room, shards) - len(self._workers)):
            worker = _Worker(self._actor.remote())
            self._workers.append(worker)
            self._call(worker, worker.actor.greet.remote(), partial(self._load, worker))

    def _hand_out(self) -> None:
        for depth in range(_IN_FLIGHT):
            for worker in self._workers:
                if self._todo and worker.has_files is not None and len(worker.calls) <= depth:
                    shard = self._todo.popleft()
                    rows = None if worker.has_files and self._is_plain(shard) else self._reader.read(shard)
                    self._call(worker, worker.actor.do.remote(shard, rows), partial(_outcome, shard), shard)

    def _is_plain(self, shard: Shard) -> bool:
        """Returns whether a worker can begin to read in the middle of the files."""
        return not any(path.endswith(".gz") for path in self._reader.segments[shard.segment])

    def _call(
        self, worker: _Worker, task: Any, then: Callable[[Any], Outcome | None], shard: Shard | None = None
    ) -> None:
        worker.calls.append(_Call(task, then, shard))
        self._by_task[task] = worker

    def _load(self, worker: _Worker, greeting: tuple[str, str]) -> None:
        """Lets a worker load the model if it has the same version."""
        version, worker.host = greeting
        if version != __version__:
            raise NmtError(
                f"{worker.host} has version {version} of nmt, but this machine has {__version__}; "
                f"install the same version on all machines"
            )
        self._call(worker, worker.actor.load.remote(self._shipped, *self._models), partial(self._loaded, worker))

    def _loaded(self, worker: _Worker, has_files: bool) -> None:
        worker.has_files = has_files
        self._deaths_while_loading = 0

    def _take(self, task: Any) -> Iterator[Outcome]:
        """Handles a call that has ended."""
        worker = self._by_task[task]
        try:
            value = self._ray.get(task)
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, NmtError):
                raise error.cause from None
            yield from self._remove(worker, f"{type(error.cause).__name__}: {error.cause}")
            return
        except self._ray.exceptions.RayError as error:
            yield from self._remove(worker, reason(error), was_machine="node has died" in str(error))
            return
        del self._by_task[task]
        call = next(call for call in worker.calls if call.task == task)
        worker.calls.remove(call)
        if outcome := call.then(value):
            yield outcome

    def _remove(self, worker: _Worker, why: str, was_machine: bool = False) -> Iterator[Outcome]:
        """Removes a worker that has died or is unusable. The shard it worked on is blamed, unless its machine died."""
        with suppress(self._ray.exceptions.RayError):
            self._ray.kill(worker.actor)
        self._workers.remove(worker)
        self._looked = 0.0
        for call in worker.calls:
            del self._by_task[call.task]
        shards = [call.shard for call in worker.calls if call.shard]
        self._todo.extendleft(reversed(shards))
        if was_machine:
            return
        if not shards:
            self._deaths_while_loading += 1
            if self._deaths_while_loading == ATTEMPTS:
                raise NmtError(
                    f"{ATTEMPTS} workers ended before they had loaded the model ({why}); check that nmt {__version__} "
                    f"is installed on all machines and that they have enough memory"
                )
            return
        self._attempts[shards[0].number] += 1
        if self._attempts[shards[0].number] == ATTEMPTS:
            self._todo.popleft()
            yield Outcome(shards[0], None, f"{ATTEMPTS} workers died on it, the last one on {worker.host} ({why})")


def _outcome(shard: Shard, done: Done) -> Outcome:
    """Returns what became of a shard after showing the warnings of its worker."""
    if done.messages:
        console.info(done.messages.rstrip("\n"))
    return Outcome(shard, done.result)


@contextmanager
def _noted_signals() -> Iterator[list[int]]:
    """Yields a list to which signals that ask the process to end are appended. A second one ends it at once."""
    noted: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in (not_ignored(STOPPING) if is_main else ())}

    def note(caught: int, _: FrameType | None) -> None:
        noted.append(caught)
        for number in before:
            signal.signal(number, signal.SIG_DFL)

    for number in before:
        signal.signal(number, note)
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end_if(noted: list[int]) -> None:
    if noted:
        raise SystemExit(128 + noted[0])


def do_on_cluster(
    job: Job,
    folder: JobFolder,
    todo: Sequence[Shard],
    options: JobConfig,
    workers: int | None,
    progress: console.Progress,
) -> Generator[Outcome, None, None]:
    """Yields what becomes of each shard. This process must be `connected`.

    Args:
        workers: how many workers there are at most.

    Raises:
        SystemExit: a signal asked the process to end.
        NmtError: the input is wrong, or no worker can load the model.
    """
    what = progress.description
    driver = _Driver(job, folder, todo, options, workers)
    try:
        for outcome in driver.run():
            progress.describe(f"{what}, {driver.state}")
            progress.advance(outcome.shard.rows)
            yield outcome
    finally:
        driver.stop()
