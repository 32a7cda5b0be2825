"""Computes the chunks of a job on a Ray cluster: the connection, the workers, and the driver."""

import logging
import os
import signal
import socket
import tempfile
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from nmt import __version__, console, resources
from nmt.config import JobConfig
from nmt.errors import NmtError, importing
from nmt.jobs.stream import ATTEMPTS, Chunk, Chunks, Execution, Job, Outcome, Processor, Result, compute
from nmt.signals import STOPPING

# Variables for Ray. Before it repeats a call that got no answer, it waits this long to hear whether the worker
# died or its machine. If it waited for one second, as by default, it would use up all attempts on a machine that
# has died, and a shard would seem to kill its workers.
_VARIABLES = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_timeout_ms_task_wait_for_death_info": "30000"}


@contextmanager
def connected(options: JobConfig, workers: int | None) -> Iterator[Execution]:
    """Connects this process to the cluster of --cluster until the block ends. Yields how jobs are computed there."""
    handlers = {stopping: signal.getsignal(stopping) for stopping in STOPPING}
    assert options.cluster is not None
    ray = _connect(options.cluster)
    for stopping, handler in handlers.items():  # Ray has its own
        signal.signal(stopping, handler)
    try:
        yield Execution(options, workers, partial(on_cluster, options))
    finally:
        ray.shutdown()


def _connect(address: str) -> Any:
    """Returns the module ray after connecting it; `auto` starts a cluster of this machine if there is none."""
    for name, value in _VARIABLES.items():
        os.environ.setdefault(name, value)
    if address != "auto":  # Ray itself would try an address that nothing listens at for a quarter of an hour
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or "/" in host:
            raise NmtError(f"--cluster must be auto or HOST:PORT, such as 10.0.0.1:6379, but is {address!r:.80}")
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
        except (OSError, OverflowError) as error:
            why = f"--cluster {address} cannot be reached ({error})"
            raise NmtError(f"{why}; check the address, and whether Ray runs there") from error
    with importing("ray", "--cluster", extra="ray"):
        import ray
        import ray._private.worker as worker
    worker.print_to_stdstream = lambda *_, **__: None  # it prints to standard output when a worker dies
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
    try:
        ray.init(address=address, **quiet)
        return ray
    except (ConnectionError, RuntimeError, ValueError) as error:
        if address != "auto" or not isinstance(error, ConnectionError):
            why = f"--cluster {address} cannot be used ({' '.join(str(error).split()):.300})"
            advice = "check the address, and that all machines have the same versions of Ray and Python"
            raise NmtError(f"{why}; {advice}") from error
    console.info("no Ray cluster runs here; starting one of this machine")
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # nobody else can reach it
    try:
        ray.init(address="local", num_cpus=resources.usable_cores(), include_dashboard=False, **quiet)
    except Exception as failure:  # Ray raises a plain Exception, with pages of text
        why = f"Ray could not be started here ({reason(failure)})"
        raise NmtError(f"{why}; start a cluster by ray start --head") from failure
    return ray


def has_gpus() -> bool:
    """Returns whether the cluster that this process is connected to has GPUs."""
    import ray

    return bool(ray.cluster_resources().get("GPU"))


def reason(error: Exception) -> str:
    """Returns the line of an error of Ray that names a missing module, or else its first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    missing = next((line for line in lines if "ModuleNotFoundError" in line), None)
    return missing or lines[0] if lines else type(error).__name__


class Worker:
    """A worker. If its process dies, Ray starts another one and repeats the calls that were in flight.

    The model is loaded by the first call, because Ray limits how often it repeats a call that kills its process,
    but not how often it repeats a constructor. The driver reports every NmtError of a method to the user.
    """

    def __init__(self, version: str, job: Sequence[Any], models: Sequence[Any]) -> None:
        self._version, self._references = version, (job, models)
        self._loaded: tuple[Job, Processor] | None = None

    def do(self, chunk: Chunk | None) -> tuple[str, str, Result | None]:
        """Does a chunk; without one, only loads the model. Returns warnings, the id of the machine, and the result."""
        import ray

        console.stderr.file = messages = StringIO()
        self._loaded = self._loaded or self._load()  # Ray may have started this process in place of one that died
        result = compute(*self._loaded, chunk).result if chunk else None
        return messages.getvalue(), ray.get_runtime_context().get_node_id(), result

    def _load(self) -> tuple[Job, Processor]:
        """Loads the processor of the job from copies of its files."""
        import ray

        if self._version != __version__:
            problem = f"{socket.gethostname()} has version {__version__} of nmt, but the machine of the command has"
            raise NmtError(f"{problem} {self._version}; install the same version on all machines")
        resources.limit_spinning()
        console.printing().__enter__()  # until the process ends
        (job,), models = map(ray.get, self._references)
        with tempfile.TemporaryDirectory(prefix="nmt-") as folder:
            # Models of an ensemble may have the same name in different folders.
            paths = [Path(folder) / f"{i}-{Path(path).name}" for i, path in enumerate(job.models)]
            for path, content in zip(paths, models, strict=True):
                content.tofile(path)
            try:
                processor = job.load(list(map(str, paths)), 0)
            except (RuntimeError, MemoryError) as error:
                if isinstance(error, RuntimeError) and "memory" not in str(error):
                    raise
                why = f"the model does not fit into the memory of {socket.gethostname()} ({error})"
                advice = "use larger machines or more --worker-cores, so that fewer workers share a machine"
                raise NmtError(f"{why}; {advice}") from error
        processor.session().__enter__()  # until the process ends
        return job, processor


@dataclass
class _Handle:
    """A worker as the driver sees it."""

    actor: Any
    chunks: dict[Any, Chunk] = field(default_factory=dict)
    machine: str = ""


class _Driver:
    def __init__(self, job: Job, chunks: Chunks, options: JobConfig, most: int | None) -> None:
        import ray

        self._ray, self._chunks, self._most = ray, chunks, most
        self._again: deque[Chunk] = deque()  # chunks of workers that were removed
        self._suspects: set[int] = set()  # the first units of chunks that are repeated alone
        self._is_alone = options.cluster == "auto"  # if there is one machine, it is this one
        self._needs = {"CPU": options.worker_cores, **({"GPU": 1} if job.device == "cuda" else {})}
        needs = {"num_cpus": options.worker_cores, "num_gpus": self._needs.get("GPU", 0)}
        actor = ray.remote(Worker).options(**needs, max_restarts=-1, max_task_retries=ATTEMPTS - 1)
        models = [ray.put(np.fromfile(path, np.uint8)) for path in job.models]
        # Lists keep Ray from unpickling what they hold before the worker has compared the versions.
        self._start_worker = partial(actor.remote, __version__, [ray.put(job)], models)
        self._hosts: dict[str, str] = {}  # the names of the machines by id
        self._workers: list[_Handle] = []
        self._by_task: dict[Any, _Handle] = {}

    @property
    def _left(self) -> int:
        """The number of chunks that no worker has."""
        return len(self._again) + self._chunks.left

    def run(self, progress: console.Progress) -> Generator[Outcome, None, None]:
        """Yields what becomes of each chunk. The progress bar shows the workers and machines."""
        what = progress.description
        try:
            while self._left or any(worker.chunks for worker in self._workers):
                self._follow_machines()
                for depth in range(1 if self._suspects else 2):  # chunks of each worker
                    for worker in self._workers:
                        if self._left and worker.machine and len(worker.chunks) <= depth:
                            chunk = self._again.popleft() if self._again else self._chunks.take(wait=True)
                            assert chunk
                            task = worker.actor.do.remote(chunk)
                            worker.chunks[task], self._by_task[task] = chunk, worker
                for task in self._ray.wait(list(self._by_task), timeout=1)[0]:
                    for outcome in self._take(task):
                        machines = [worker.machine for worker in self._workers if worker.machine]
                        workers, hosts = console.counted(len(machines), "worker"), len(set(machines))
                        progress.description = f"{what}, {workers} on {console.counted(hosts, 'machine')}"
                        progress.advance(len(outcome.chunk.units))
                        yield outcome
        finally:
            while self._workers:
                self._remove(self._workers[0])

    def _follow_machines(self) -> None:
        """Removes workers whose machines have died and idle ones beyond the room; starts as many as have room."""
        machines = [machine for machine in self._ray.nodes() if machine["Alive"]]
        self._hosts |= {machine["NodeID"]: machine["NodeManagerHostname"] for machine in machines}
        alive = {"", *(machine["NodeID"] for machine in machines)}
        for worker in [worker for worker in self._workers if worker.machine not in alive]:
            self._remove(worker)
        free = [machine["Resources"] for machine in machines]
        room = sum(int(min(each.get(name, 0) // need for name, need in self._needs.items())) for each in free)
        if not room and self._is_alone and len(machines) == 1:
            raise NmtError(f"this machine has no room for a worker with --worker-cores {self._needs['CPU']}; lower it")
        if not room:
            needs = " and ".join(f"{amount} {name}" for name, amount in self._needs.items())
            console.warn_once(f"no machine of the cluster has {needs} for a worker; waiting for one")
            room = 1  # for which Ray waits
        # A worker that Ray starts anew would wait for room that idle workers keep.
        idle = [worker for worker in self._workers if not worker.chunks]
        for worker in idle[: max(0, len(self._workers) - room)]:
            self._remove(worker)
        unfinished = self._left + sum(len(worker.chunks) for worker in self._workers)
        for _ in range(min(room, self._most or room, unfinished) - len(self._workers)):
            worker = _Handle(self._start_worker())
            self._workers.append(worker)
            self._by_task[worker.actor.do.remote(None)] = worker

    def _take(self, task: Any) -> Iterator[Outcome]:
        """Handles a call that has ended or failed.

        After a failure, the worker may be unusable, so another one takes its place. Any chunk in flight may be the
        cause. So each one is repeated alone, and is reported if it fails again.

        Raises:
            NmtError: a worker has raised it, or could not load the model.
        """
        worker = self._by_task[task]
        chunk = worker.chunks.get(task)
        try:
            messages, machine, result = self._ray.get(task)
        except self._ray.exceptions.RayError as error:
            why = reason(error)
            if isinstance(error, self._ray.exceptions.RayTaskError):
                if isinstance(error.cause, NmtError):
                    raise error.cause from None
                why = f"{type(error.cause).__name__}: {error.cause}"
            elif isinstance(error, self._ray.exceptions.ActorUnavailableError):  # Ray repeated it as often as it may
                why = f"{ATTEMPTS} workers died on it, perhaps because memory ran out"
            if not chunk:
                advice = f"check that nmt {__version__} is installed on all machines and that they have enough memory"
                raise NmtError(f"a worker could not load the model ({why}); {advice}") from None
            was_alone = chunk.first in self._suspects
            self._suspects |= {other.first for other in worker.chunks.values()}
            self._remove(worker)
            if was_alone:
                self._suspects.remove(chunk.first)
                self._again.remove(chunk)
                yield Outcome(chunk, None, f"{why}, on machine {self._hosts.get(worker.machine, worker.machine)}")
            return
        del self._by_task[task]
        worker.chunks.pop(task, None)
        worker.machine = machine  # Ray may have started the worker anew on another one
        if messages:
            console.info(messages.rstrip("\n"))
        if chunk:
            self._suspects.discard(chunk.first)
            yield Outcome(chunk, result)

    def _remove(self, worker: _Handle) -> None:
        """Ends a worker. Other workers will do its chunks."""
        with suppress(self._ray.exceptions.RayError):
            self._ray.kill(worker.actor)
        self._workers.remove(worker)
        self._by_task = {task: other for task, other in self._by_task.items() if other is not worker}
        self._again.extendleft(reversed(worker.chunks.values()))


def on_cluster(
    options: JobConfig, job: Job, chunks: Chunks, workers: int | None, progress: console.Progress
) -> Generator[Outcome, None, None]:
    """Computes shards on the cluster that this process is connected to; with the options, an `Executor`."""
    return _Driver(job, chunks, options, workers).run(progress)
