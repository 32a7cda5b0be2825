"""Does shards on a Ray cluster.

The driver is the process of the command. It starts workers (Ray actors) as long as the cluster has room for them, loads
a model in each, and keeps two shards in flight for each, so that no worker waits. Workers that see the same files as
the driver read shards and write results themselves. The driver does that for the others, and for compressed files,
which are read from the beginning. If a worker dies, other ones
do its shards.
"""

import logging
import os
import signal
import socket
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nmt import __version__, console, resources
from nmt.config import JobConfig
from nmt.errors import NmtError
from nmt.jobs.folder import JobFolder, Result, identity, write_result
from nmt.jobs.local import ATTEMPTS, Outcome, records_of, work_on
from nmt.jobs.plan import Reader, Row, Shard
from nmt.jobs.work import Engine, Job
from nmt.signals import STOPPING, not_ignored
from nmt.text.windows import Window

_IN_FLIGHT = 2  # shards of each worker
_POLL_SECONDS = 0.2
_LOOK_SECONDS = 1.0  # between two looks at the machines of the cluster
_CONNECT_SECONDS = 5.0


# What runs in the workers


class _Shipped(NamedTuple):
    """What all workers get. `identity` is that of the folder on the driver's machine."""

    job: Job
    folder: Path
    identity: str | None
    segments: Sequence[Sequence[str]]


class _Done(NamedTuple):
    """What a worker returns for a shard: the result, unless it has written it itself, and its warnings."""

    result: Result | None
    messages: str


class _Actor:
    """A worker. The driver reports every NmtError of a method to the user."""

    _shipped: _Shipped
    _engine: Engine
    _reader: Reader
    _messages: StringIO

    def greet(self) -> tuple[str, str]:
        """Returns the version of nmt and the name of this machine."""
        return __version__, socket.gethostname()

    def load(self, shipped: _Shipped, *models: np.ndarray) -> bool:
        """Loads the model. Returns whether this machine has the files of the input and the folder of the job.

        Args:
            models: the content of the model's files, as bytes.
        """
        resources.limit_spinning()
        self._shipped, self._reader, self._messages = shipped, Reader(shipped.segments), StringIO()
        console.stderr.file = self._messages
        with tempfile.TemporaryDirectory(prefix="nmt-") as folder:
            paths = [Path(folder) / Path(path).name for path in shipped.job.models]
            for path, content in zip(paths, models, strict=True):
                content.tofile(path)
            try:
                self._engine = shipped.job.with_models(tuple(map(str, paths))).load(0)
            except Exception as error:
                if "memory" not in str(error):
                    raise
                raise NmtError(
                    f"the model does not fit into the memory of {socket.gethostname()} ({error}); use larger machines "
                    f"or more --worker-cores, so that fewer workers share a machine"
                ) from error
        self._engine.session().__enter__()  # until the process ends
        is_same = shipped.identity is not None and identity(shipped.folder) == shipped.identity
        return is_same and all(os.path.isfile(path) for paths in shipped.segments for path in paths)

    def do(self, shard: Shard, rows: list[Row] | None) -> _Done:
        """Does a shard. Without `rows`, the files are those of the driver: it reads the rows and writes the result."""
        job = self._shipped.job
        file = self._shipped.segments[shard.segment][0]
        records = records_of(job, shard, file, self._reader.read(shard) if rows is None else rows)
        result = job.result(list(work_on(job, self._engine, Window(shard.first, records))))
        if rows is None:
            write_result(self._shipped.folder, shard.number, result)
        messages = self._messages.getvalue()
        self._messages.seek(0)
        self._messages.truncate()
        return _Done(None if rows is None else result, messages)


# The driver


@contextmanager
def connected(options: JobConfig) -> Iterator[None]:
    """Connects this process to the cluster that --cluster names, if it does, until the block ends.

    Raises:
        NmtError: Ray is not installed, or the cluster cannot be reached.
    """
    if options.cluster is None:
        yield
        return
    handlers = {number: signal.getsignal(number) for number in STOPPING}
    ray = _connect(options.cluster)
    for number, handler in handlers.items():  # Ray has its own
        signal.signal(number, handler)
    try:
        yield
    finally:
        ray.shutdown()


def _connect(address: str) -> Any:
    """Returns the module ray after connecting it; `auto` starts a cluster of this machine if there is none."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address != "auto":
        _check_address(address)
    try:
        import ray
        import ray._private.worker as worker
    except ImportError as error:
        raise NmtError("--cluster needs Ray, which is not installed; install it with pip install 'nmt[ray]'") from error
    worker.print_to_stdstream = lambda *_, **__: None  # it prints to standard output when a worker dies
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
    try:
        ray.init(address=address, **quiet)
    except ConnectionError as error:
        if address != "auto":
            raise NmtError(f"--cluster {address} cannot be reached ({error}); check the address") from error
        console.info("no Ray cluster runs here; starting one of this machine")
        os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # nobody else can reach it
        try:
            ray.init(address="local", num_cpus=resources.usable_cores(), include_dashboard=False, **quiet)
        except Exception as failure:  # Ray raises a plain Exception, with pages of text
            raise NmtError(
                f"Ray could not be started here ({_reason(failure)}); start a cluster by ray start --head"
            ) from failure
    except ValueError as error:
        raise NmtError(f"--cluster {address} is not an address ({error}); give auto or HOST:PORT") from error
    return ray


def _check_address(address: str) -> None:
    """Raises NmtError if nothing listens at the address. Ray itself would try for a quarter of an hour."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        raise NmtError(f"--cluster must be auto or HOST:PORT, such as 10.0.0.1:6379, but is {address!r:.80}")
    try:
        socket.create_connection((host, int(port)), _CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise NmtError(
            f"--cluster {address} cannot be reached ({error}); check the address, and whether Ray runs there"
        ) from error


def has_gpus() -> bool:
    """Returns whether the cluster that this process is connected to has GPUs."""
    import ray

    return bool(ray.cluster_resources().get("GPU"))


@dataclass
class _Worker:
    """A worker as the driver sees it.

    Attributes:
        tasks: the calls that it works on, oldest first, each with its shard; None while it loads.
        host: the name of its machine; empty until it has said so.
        has_files: whether it reads and writes files itself; None until it has loaded.
    """

    actor: Any
    tasks: deque[tuple[Any, Shard | None]] = field(default_factory=deque)
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
        self._actor = ray.remote(_Actor).options(num_cpus=cores, num_gpus=gpus, max_restarts=0, max_task_retries=0)
        shipped = _Shipped(job, folder.path, identity(folder.path), folder.plan.paths)
        self._shipped = ray.put(shipped)
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
            while self._todo or any(shard for worker in self._workers for _, shard in worker.tasks):
                if noted:
                    raise SystemExit(128 + noted[0])
                self._add_workers()
                self._hand_out()
                if not self._by_task:
                    time.sleep(_POLL_SECONDS)
                    continue
                # Ray would swallow an exception of a signal handler here, so the handler only takes a note.
                for task in self._ray.wait(list(self._by_task), timeout=_POLL_SECONDS)[0]:
                    yield from self._take(task)

    def stop(self) -> None:
        """Ends all workers."""
        for worker in self._workers:
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
        shards = len(self._todo) + sum(len(worker.tasks) for worker in self._workers)
        for _ in range(min(room, self._most or room, shards) - len(self._workers)):
            worker = _Worker(self._actor.remote())
            self._workers.append(worker)
            self._call(worker, worker.actor.greet.remote(), None)

    def _hand_out(self) -> None:
        for depth in range(_IN_FLIGHT):
            for worker in self._workers:
                if self._todo and worker.has_files is not None and len(worker.tasks) <= depth:
                    shard = self._todo.popleft()
                    rows = None if worker.has_files and self._is_plain(shard) else self._reader.read(shard)
                    self._call(worker, worker.actor.do.remote(shard, rows), shard)

    def _is_plain(self, shard: Shard) -> bool:
        """Returns whether a worker can begin to read in the middle of the files."""
        return not any(path.endswith(".gz") for path in self._reader.segments[shard.segment])

    def _call(self, worker: _Worker, task: Any, shard: Shard | None) -> None:
        worker.tasks.append((task, shard))
        self._by_task[task] = worker

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
            yield from self._remove(worker, _reason(error), was_machine="node has died" in str(error))
            return
        del self._by_task[task]
        _, shard = next(found for found in worker.tasks if found[0] == task)
        worker.tasks.remove((task, shard))
        if shard is not None:
            if value.messages:
                console.info(value.messages.rstrip("\n"))
            yield Outcome(shard, value.result)
        elif worker.host:
            worker.has_files = value
            self._deaths_while_loading = 0
        else:
            self._start_loading(worker, *value)

    def _start_loading(self, worker: _Worker, version: str, host: str) -> None:
        """Lets a worker load the model if it has the same version."""
        if version != __version__:
            raise NmtError(
                f"{host} has version {version} of nmt, but this machine has {__version__}; "
                f"install the same version on all machines"
            )
        worker.host = host
        self._call(worker, worker.actor.load.remote(self._shipped, *self._models), None)

    def _remove(self, worker: _Worker, why: str, was_machine: bool = False) -> Iterator[Outcome]:
        """Removes a worker that has died or is unusable. The shard it worked on is blamed, unless its machine died."""
        with suppress(self._ray.exceptions.RayError):
            self._ray.kill(worker.actor)
        self._workers.remove(worker)
        self._looked = 0.0
        for task, _ in worker.tasks:
            del self._by_task[task]
        shards = [shard for _, shard in worker.tasks if shard is not None]
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


def _reason(error: Exception) -> str:
    """Returns the first sentence of an error of Ray that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    missing = next((line for line in lines if "ModuleNotFoundError" in line), None)
    return missing or lines[0] if lines else type(error).__name__


@contextmanager
def _noted_signals() -> Iterator[list[int]]:
    """Yields a list to which signals that ask the process to end are appended."""
    noted: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in (not_ignored(STOPPING) if is_main else ())}
    for number in before:
        signal.signal(number, lambda caught, _: noted.append(caught))
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
