"""Does shards on a Ray cluster.

The driver is the process of the command. It starts workers (Ray actors) as long as the machines have room for them,
sends them rows, keeps two shards in flight for each so that no worker waits, and gives their results to the caller.
Ray starts a worker that dies anew and repeats its shards. The driver steps in where Ray gives up, or a machine dies.
"""

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from nmt import __version__, console
from nmt.config import JobConfig
from nmt.errors import NmtError
from nmt.jobs.folder import JobFolder
from nmt.jobs.local import ATTEMPTS, Outcome
from nmt.jobs.plan import Reader, Shard
from nmt.jobs.ray_connection import reason
from nmt.jobs.ray_worker import RayWorker
from nmt.jobs.work import Job

_IN_FLIGHT = 2  # shards of each worker
_LOOK_SECONDS = 1.0  # between two looks at the machines of the cluster


@dataclass
class _Worker:
    """A worker as the driver sees it.

    Attributes:
        shards: those in flight, by Ray's reference to the call.
        machine: the id of its machine; empty until it has loaded the model.
    """

    actor: Any
    shards: dict[Any, Shard] = field(default_factory=dict)
    machine: str = ""


class _Driver:
    def __init__(
        self, job: Job, segments: Sequence[Sequence[str]], todo: Sequence[Shard], options: JobConfig, most: int | None
    ) -> None:
        import ray

        self._ray, self._most = ray, most
        self._reader, self._todo = Reader(segments), deque(todo)
        self._suspects: set[int] = set()  # the numbers of shards that are repeated alone
        self._is_alone = options.cluster == "auto"  # if there is one machine, it is this one
        self._needs = {"CPU": options.worker_cores, **({"GPU": 1} if job.device == "cuda" else {})}
        actor = ray.remote(RayWorker).options(
            num_cpus=options.worker_cores,
            num_gpus=self._needs.get("GPU", 0),
            max_restarts=-1,
            max_task_retries=ATTEMPTS - 1,
        )
        models = [ray.put(np.fromfile(path, np.uint8)) for path in job.models]
        # Lists keep Ray from unpickling what they hold before the worker has compared the versions.
        self._start_worker = partial(actor.remote, __version__, [ray.put(job)], models)
        self._hosts: dict[str, str] = {}  # the names of the machines by id
        self._workers: list[_Worker] = []
        self._by_task: dict[Any, _Worker] = {}

    @property
    def state(self) -> str:
        """The machines and workers for the progress bar."""
        machines = [worker.machine for worker in self._workers if worker.machine]
        return f"{console.counted(len(machines), 'worker')} on {console.counted(len(set(machines)), 'machine')}"

    def run(self) -> Iterator[Outcome]:
        """Yields what becomes of each shard.

        Raises:
            NmtError: the input is wrong, or a worker cannot load the model.
        """
        while self._todo or any(worker.shards for worker in self._workers):
            self._follow_machines()
            self._hand_out()
            for task in self._ray.wait(list(self._by_task), timeout=_LOOK_SECONDS)[0]:
                yield from self._take(task)

    def stop(self) -> None:
        """Ends all workers."""
        while self._workers:
            self._remove(self._workers[0])

    def _follow_machines(self) -> None:
        """Removes the workers of machines that have died, and starts as many as there is room for."""
        machines = [machine for machine in self._ray.nodes() if machine["Alive"]]
        alive = {machine["NodeID"]: machine["NodeManagerHostname"] for machine in machines}
        self._hosts |= alive
        for worker in [worker for worker in self._workers if worker.machine and worker.machine not in alive]:
            self._remove(worker)
        room = self._room([machine["Resources"] for machine in machines])
        shards = len(self._todo) + sum(len(worker.shards) for worker in self._workers)
        for _ in range(min(room, self._most or room, shards) - len(self._workers)):
            worker = _Worker(self._start_worker())
            self._workers.append(worker)
            self._by_task[worker.actor.load.remote()] = worker

    def _room(self, machines: Sequence[dict[str, float]]) -> int:
        """Returns how many workers fit on machines with these resources, but at least one, for which Ray then waits."""
        room = sum(int(min(has.get(name, 0) // amount for name, amount in self._needs.items())) for has in machines)
        if not room and self._is_alone and len(machines) == 1:
            raise NmtError(f"this machine has no room for a worker with --worker-cores {self._needs['CPU']}; lower it")
        if not room:
            needs = " and ".join(f"{amount} {name}" for name, amount in self._needs.items())
            console.warn_once(f"no machine of the cluster has {needs} for a worker; waiting for one")
        return max(room, 1)

    def _hand_out(self) -> None:
        for depth in range(1 if self._suspects else _IN_FLIGHT):
            for worker in self._workers:
                if self._todo and worker.machine and len(worker.shards) <= depth:
                    shard = self._todo.popleft()
                    file = self._reader.segments[shard.segment][0]
                    task = worker.actor.do.remote(shard, file, self._reader.read(shard))
                    worker.shards[task] = shard
                    self._by_task[task] = worker

    def _take(self, task: Any) -> Iterator[Outcome]:
        """Handles a call that has ended."""
        worker = self._by_task[task]
        try:
            done = self._ray.get(task)
        except self._ray.exceptions.RayError as error:
            yield from self._fail(worker, worker.shards.get(task), self._why(error))
            return
        del self._by_task[task]
        shard = worker.shards.pop(task, None)
        worker.machine = done.machine  # Ray may have started the worker anew on another one
        if done.messages:
            console.info(done.messages.rstrip("\n"))
        if shard:
            self._suspects.discard(shard.number)
            yield Outcome(shard, done.result)

    def _why(self, error: Exception) -> str:
        """Returns why a call has failed. Raises the NmtError of a worker."""
        if isinstance(error, self._ray.exceptions.RayTaskError):
            if isinstance(error.cause, NmtError):
                raise error.cause from None
            return f"{type(error.cause).__name__}: {error.cause}"
        if isinstance(error, self._ray.exceptions.ActorUnavailableError):  # Ray repeated the call as often as it may
            return f"{ATTEMPTS} workers died on it, perhaps because memory ran out"
        return reason(error)

    def _fail(self, worker: _Worker, shard: Shard | None, why: str) -> Iterator[Outcome]:
        """Handles a call that has failed. The worker may be unusable, so another one takes its place.

        Any shard in flight may be the cause. So each one is repeated alone, and is reported if it fails again.
        """
        if not shard:
            raise NmtError(
                f"a worker could not load the model ({why}); check that nmt {__version__} is installed on all machines "
                f"and that they have enough memory"
            )
        was_alone = shard.number in self._suspects
        self._suspects |= {shard.number for shard in worker.shards.values()}
        self._remove(worker)
        if was_alone:
            self._suspects.remove(shard.number)
            self._todo.remove(shard)
            yield Outcome(shard, None, f"{why}, on machine {self._hosts.get(worker.machine, worker.machine)}")

    def _remove(self, worker: _Worker) -> None:
        """Ends a worker. Other workers will do its shards."""
        with suppress(self._ray.exceptions.RayError):
            self._ray.kill(worker.actor)
        self._workers.remove(worker)
        self._by_task = {task: other for task, other in self._by_task.items() if other is not worker}
        self._todo.extendleft(reversed(worker.shards.values()))


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
        NmtError: the input is wrong, or a worker cannot load the model.
    """
    what = progress.description
    driver = _Driver(job, folder.plan.paths, todo, options, workers)
    try:
        for outcome in driver.run():
            progress.describe(f"{what}, {driver.state}")
            progress.advance(outcome.shard.rows)
            yield outcome
    finally:
        driver.stop()
