"""Jobs on a Ray cluster: a stand-in for Ray, whose workers and machines die when a test says so, and one real node."""

import gzip
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import forks
import pytest
from commands import run
from rich.console import Console
from tasks import Doubling, row_as_number
from test_jobs import finished_shards

from nmt import console
from nmt.config import JobConfig, RuntimeConfig
from nmt.errors import NmtError, StoppedError
from nmt.jobs.ray import Worker, on_cluster
from nmt.jobs.run import executing, job_folder
from nmt.jobs.source import Files
from nmt.jobs.stream import Execution
from nmt.translate.setup import placed

pytestmark = pytest.mark.usefixtures("printing")
Capture = pytest.CaptureFixture[str]


class RayError(Exception):
    def __init__(self, text: str = "", cause: Exception | None = None) -> None:
        super().__init__(text)
        self.cause = cause


class RayTaskError(RayError): ...


class UnavailableError(RayError): ...


DIED = UnavailableError()


class Call:
    def __init__(self, actor: Any, method: str, *arguments: Any) -> None:
        self.actor, self.shard = actor, (arguments[0].first - 1) // 2 if arguments[0] else None
        self.run = lambda worker: getattr(worker, method)(*arguments)


class FakeRay:
    """Stands in for the package ray. Each `wait` ends the oldest call whose worker is on a machine.

    Attributes:
        machines: the resources of each machine.
        errors: how calls end, by number of the shard, or None for the call that loads the model.
        events: what happens at the n-th `wait`.
        ended: for each call that ended, the shards that its worker had in flight, oldest first.
    """

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError, ActorUnavailableError=UnavailableError)
    put = staticmethod(lambda value: value)

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.machines = {"a": {"CPU": 1}}
        self.errors: dict[int | None, list[Exception]] = {}
        self.events: dict[int, Callable[[], object]] = {}
        self.actors: list[Any] = []
        self.ended: list[list[int | None]] = []
        self._waits, self._machine, self._private = 0, "", Mock()
        patch.setitem(sys.modules, "ray", self)  # type: ignore[arg-type]
        patch.setitem(sys.modules, "ray._private.worker", self._private.worker)
        patch.setattr(console, "stderr", Console(stderr=True, soft_wrap=True))
        console.warn_once.cache_clear()

    def remote(self, cls: Any) -> Any:
        return SimpleNamespace(options=lambda **options: SimpleNamespace(remote=partial(self._start, cls, options)))

    def _start(self, cls: Any, options: dict[str, int], *arguments: Any) -> Any:
        assert (options["max_restarts"], options["max_task_retries"]) == (-1, 2)
        actor = Mock(**options, machine="", worker=None, is_dead=False, console=Console(), new=partial(cls, *arguments))
        actor.do.remote = partial(Call, actor, "do")
        self.actors.append(actor)
        return actor

    def nodes(self) -> list[dict[str, Any]]:
        return [
            {"NodeID": name, "NodeManagerHostname": f"host-{name}", "Alive": name != "dead", "Resources": resources}
            for name, resources in {"dead": {"CPU": 9}, **self.machines}.items()
        ]

    def wait(self, calls: list[Call], timeout: float) -> tuple[list[Call], list[Call]]:
        self._waits += 1
        assert calls and timeout and self._waits < 99, "the driver waits for ever"
        self.events.pop(self._waits, lambda: None)()
        for call in calls:
            call.actor.machine = call.actor.machine or self._free_machine(call.actor.num_cpus)
            if call.actor.machine in self.machines:
                self.ended.append([other.shard for other in calls if other.actor is call.actor])
                return [call], [other for other in calls if other is not call]
        return [], calls

    def _free_machine(self, cores: int) -> str:
        used = [actor.machine for actor in self.actors if not actor.is_dead]
        return next((n for n, has in self.machines.items() if (used.count(n) + 1) * cores <= has["CPU"]), "")

    def get(self, call: Any) -> Any:
        if not isinstance(call, Call):  # what `put` was given
            return call
        if self.errors.get(call.shard):
            raise self.errors[call.shard].pop()
        actor, self._machine = call.actor, call.actor.machine
        actor.worker = actor.worker or actor.new()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(console, "stderr", actor.console)  # a process of its own has its own
            try:
                return call.run(actor.worker)
            except Exception as error:
                raise RayTaskError(cause=error) from error

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(get_node_id=lambda: self._machine)

    def kill(self, actor: Any) -> None:
        actor.is_dead = True
        raise RayError("it was dead before")


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Any:
    return FakeRay(monkeypatch)


def double(
    folder: Path, *, rows: int = 2, workers: int | None = None, survives: int = 0, device: str = "cpu", **options: Any
) -> list[str]:
    """Doubles the numbers from 1 to 20 on a cluster. Returns the descriptions of the progress."""
    (folder / "deaths").touch()
    (folder / "numbers").write_text("".join(f"{n}\n" for n in range(1, 21)))
    source = Files([[str(folder / "numbers")]], ["--input"], row_as_number)
    descriptions = list[str]()

    class Recorded(console.Progress):
        def advance(self, amount: int) -> None:
            descriptions.append(self.description)
            super().advance(amount)

    config, progress = JobConfig(**{"cluster": "head:1", **options}), Recorded("double", None, "number")
    open_job = partial(job_folder, str(folder / "out"), source, config)
    with open_job(shard_rows=rows, settings={}) as job, progress:
        doubling = Doubling(folder / "deaths", survives, device=device)
        job.finish_shards(doubling, Execution(config, workers, partial(on_cluster, config)), progress)
        numbers = [value for _, shard_result in job.results() for value in shard_result.values]
        job.finish()
    assert progress.completed == 20
    assert numbers == [2 * n for n in range(1, 21)]
    return descriptions


@pytest.mark.parametrize("workers, cores, rows, expected", [(None, 1, 2, 5), (3, 1, 2, 3), (9, 2, 2, 2), (9, 1, 9, 3)])
def test_workers_follow_the_room_the_bound_and_the_shards(
    ray: FakeRay, tmp_path: Path, workers: int | None, cores: int, rows: int, expected: int
) -> None:
    ray.machines = {"a": {"CPU": 2}, "b": {"CPU": 3}}
    descriptions = double(tmp_path, workers=workers, rows=rows, worker_cores=cores)
    assert descriptions[-1] == f"double, {expected} workers on 2 machines"
    assert len(ray.actors) == expected and all(actor.is_dead for actor in ray.actors)
    assert max(map(len, ray.ended)) == 2


def test_machines_that_join_get_workers(ray: FakeRay, tmp_path: Path) -> None:
    ray.events[6] = lambda: ray.machines.update(b={"CPU": 1})
    descriptions = double(tmp_path)
    assert descriptions[0] == "double, 1 worker on 1 machine" and descriptions[-1] == "double, 2 workers on 2 machines"


def test_deaths_of_machines_are_not_blamed_on_a_shard(ray: FakeRay, tmp_path: Path) -> None:
    for n in range(1, 5):
        ray.events[2 * n] = partial(setattr, ray, "machines", {f"{n}": {"CPU": 1}})
    double(tmp_path)
    assert len(ray.actors) == 5


def test_a_process_that_ray_starts_anew_loads_the_model(ray: FakeRay, tmp_path: Path) -> None:
    ray.machines["b"] = {"CPU": 1}
    ray.events = {4: lambda: vars(ray.actors[0]).update(worker=None, machine="b"), 6: lambda: ray.machines.pop("a")}
    double(tmp_path, workers=1)
    assert len(ray.actors) == 1


def test_a_process_that_ray_starts_anew_gets_the_room_of_an_idle_worker(ray: FakeRay, tmp_path: Path) -> None:
    """There are three workers and room for two, since a machine died before it had one of them."""
    ray.machines = {name: {"CPU": 1} for name in "abc"}

    def die() -> None:
        del ray.machines["c"]
        ray.actors[0].machine, ray.actors[0].worker = "", None  # the third worker gets its room

    ray.events[3] = die
    double(tmp_path)


@pytest.mark.parametrize("error, message", [
    (DIED, "3 workers died on it, perhaps because memory ran out"),
    (RayTaskError(cause=ValueError("odd")), "ValueError: odd"),
    (RayError("it is lost\nmore"), "it is lost"),
])  # fmt: skip
def test_a_shard_that_fails_alone_too_is_reported_and_the_rest_goes_on(
    ray: FakeRay, tmp_path: Path, capsys: Capture, error: Exception, message: str
) -> None:
    ray.errors[1] = [error] * 2
    with pytest.raises(NmtError, match=rf"1 of 10 shards failed \(lines 3-4: {message}, on machine host-a"):
        double(tmp_path)
    assert f"warning: lines 3-4 failed: {message}" in capsys.readouterr().err
    assert finished_shards(tmp_path / "out.unfinished") == 9
    assert [shards for shards in ray.ended if shards[0] in (1, 2)] == [[1, 2], [1], [2]]
    assert [2, 3] not in ray.ended and [3, 4] in ray.ended
    double(tmp_path)


def test_warnings_appear_once(ray: FakeRay, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Doubling, "compute", lambda _, __, ns: console.warn(f"{ns} is odd") or [2 * n for n in ns])
    ray.errors[1] = [DIED]
    double(tmp_path)
    expected = [f"warning: [{n}, {n + 1}] is odd" for n in range(1, 21, 2)]
    assert [line for line in capsys.readouterr().err.splitlines() if "odd" in line] == expected


UNLOADED = r"could not load the model \({}\); check that nmt .* is installed on all machines and that they have"


@pytest.mark.parametrize("shard, error, message", [
    (1, RayTaskError(cause=NmtError("line 3 is bad")), r"^line 3 is bad$"),
    (None, DIED, UNLOADED.format("3 workers died on it, perhaps because memory ran out")),
    (None, RayError("It failed:\n  ModuleNotFoundError: nmt"), UNLOADED.format("ModuleNotFoundError: nmt")),
    (None, RuntimeError("odd"), UNLOADED.format("RuntimeError: odd")),
    (None, RuntimeError("CUDA out of memory"), r"model does not fit into the memory of .* \(CUDA out of memory\); use"),
    (None, MemoryError("8 GB"), r"the model does not fit into the memory of .* \(8 GB\)"),
    (None, None, r"has version .* of nmt, but the machine of the command has 99.0; install the same version on all"),
])  # fmt: skip
def test_what_ends_a_job_is_one_sentence(
    ray: FakeRay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shard: int | None, error: Any, message: str
) -> None:
    if not error:
        start = Worker.__init__
        monkeypatch.setattr(Worker, "__init__", lambda self, _, *others: start(self, "99.0", *others))
    elif isinstance(error, RayError):
        ray.errors[shard] = [error]
    else:
        monkeypatch.setattr(Doubling, "load", Mock(side_effect=error))
    with pytest.raises(NmtError, match=message):
        double(tmp_path)
    assert [actor.is_dead for actor in ray.actors] == [True]


def test_a_signal_ends_the_job_which_resumes(ray: FakeRay, tmp_path: Path) -> None:
    ray.events[5] = partial(signal.raise_signal, signal.SIGTERM)
    with pytest.raises(StoppedError, match="stopped after 6 lines, which are kept in"):
        double(tmp_path)
    assert ray.actors[0].is_dead
    double(tmp_path)
    assert [shards[0] for shards in ray.ended] == [None, 0, 1, 2, None, 3, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("cluster, machines", [("auto", "ab"), ("head:1", "a")])
def test_a_job_waits_for_a_machine(ray: FakeRay, tmp_path: Path, capsys: Capture, cluster: str, machines: str) -> None:
    ray.machines = {name: {"CPU": 1, "GPU": 3} for name in machines}
    ray.events[4] = lambda: ray.machines.update(c={"CPU": 4, "GPU": 1})
    descriptions = double(tmp_path, device="cuda", cluster=cluster, worker_cores=2)
    assert descriptions[-1] == "double, 1 worker on 1 machine"
    assert "no machine of the cluster has 2 CPU and 1 GPU for a worker; waiting for one" in capsys.readouterr().err
    assert [(actor.num_cpus, actor.num_gpus) for actor in ray.actors] == [(2, 1)]


def test_one_machine_without_room_is_an_error(ray: FakeRay, tmp_path: Path) -> None:
    with pytest.raises(NmtError, match="this machine has no room for a worker with --worker-cores 2; lower it"):
        double(tmp_path, cluster="auto", worker_cores=2)
    assert not ray.actors


# Connecting


def test_the_cluster_decides_the_device(ray: Any) -> None:
    ray.cluster_resources = lambda: {"GPU": 2}
    options = JobConfig(cluster="head:1")
    assert [placed(RuntimeConfig(device=name), options).device for name in ("auto", "cpu")] == ["cuda", "cpu"]
    ray.cluster_resources = lambda: {"CPU": 2}
    assert placed(RuntimeConfig(), options).device == "cpu"
    with pytest.raises(NmtError, match="--device is cuda, but the cluster has no GPU; give --device cpu"):
        placed(RuntimeConfig(device="cuda"), options)


def test_a_cluster_of_this_machine_is_started_if_there_is_none(ray: Any, capsys: Capture) -> None:
    def init(address: str, **_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if address == "auto":
            raise ConnectionError("there is none")

    ray.init, ray.shutdown = Mock(side_effect=init), Mock()
    previous_handler = signal.getsignal(signal.SIGTERM)
    with executing(JobConfig(cluster="auto")):
        assert signal.getsignal(signal.SIGTERM) == previous_handler
        assert [call.kwargs["address"] for call in ray.init.call_args_list] == ["auto", "local"]
        ray.shutdown.assert_not_called()
    ray.shutdown.assert_called_once()
    assert "no Ray cluster runs here; starting one of this machine" in capsys.readouterr().err


@pytest.mark.parametrize("address, errors, message", [
    ("auto", [RuntimeError("Version mismatch:\n   Ray: 1.0")], r"be used \(Version mismatch: Ray: 1.0\); check the"),
    ("auto", [ConnectionError(), Exception("no room\npages")], r"Ray could not be started here \(no room\); start a"),
    ("localhost:PORT", [ConnectionError("no answer")], r"cannot be used \(no answer\); check the address, and that"),
    ("localhost:1", [], "--cluster localhost:1 cannot be reached"),
    ("nowhere", [], "--cluster must be auto or HOST:PORT, such as 10.0.0.1:6379, but is 'nowhere'"),
    ("ray://head:10001", [], "--cluster must be auto or HOST:PORT"),
    ("", [], "--cluster is empty; give a value or leave it out"),
])  # fmt: skip
def test_a_cluster_that_cannot_be_used_is_one_sentence(ray: Any, address: str, errors: Any, message: str) -> None:
    ray.init = Mock(side_effect=errors)
    with socket.create_server(("localhost", 0)) as server, pytest.raises(NmtError, match=message):
        executing(JobConfig(cluster=address.replace("PORT", str(server.getsockname()[1])))).__enter__()


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(NmtError, match=r"--cluster needs the package ray \(.*\); install it with pip install '\.\[ra"):
        executing(JobConfig(cluster="auto")).__enter__()


# A real node

NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
HEAD = {**NODE, "include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
PATIENT = {  # a busy machine starts processes slowly, and loses requests to those that are not ready
    "RAY_agent_register_timeout_ms": "600000",
    "RAY_gcs_server_port_wait_time_s": "600",
    "RAY_gcs_server_request_timeout_seconds": "10",
    "RAY_worker_register_timeout_seconds": "600",
}


@contextmanager
def running_cluster(nodes: int) -> Iterator[Any]:
    """Yields a cluster of this machine. Each node has room for one worker, which can import test modules."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder:
        # Ray reads these when it is imported, in this process and in those of the cluster.
        paths = os.pathsep.join([str(forks.ROOT / "tests" / "helpers"), os.environ.get("PYTHONPATH", "")])
        variables = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", **PATIENT}
        for name, value in {**variables, "RAY_TMPDIR": folder, "PYTHONPATH": paths}.items():
            patch.setenv(name, value)
        cluster_utils = pytest.importorskip("ray.cluster_utils", reason="needs the extra ray")
        with pytest.MonkeyPatch.context() as starting:
            # Ray gives a node 30 seconds to start. With this clock, it looks 1,500 times, which takes minutes.
            slow = Mock(wraps=time, monotonic=partial(next, count(step=0.02)))
            starting.setattr("ray._private.node.time", slow)
            cluster = cluster_utils.Cluster(initialize_head=True, head_node_args=HEAD)
        try:
            for _ in range(nodes - 1):
                cluster.add_node(**NODE)
            yield cluster
        finally:
            cluster.shutdown()


@pytest.mark.nightly
def test_a_real_cluster_writes_the_same_bytes(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(trained)
    Path("other").mkdir()
    Path("run/average.safetensors").rename("other/best.safetensors")
    for name in ("test.en", "test.de"):
        Path(f"{name}.gz").write_bytes(gzip.compress(Path(name).read_bytes()))
    command = ["rescore", "other/best.safetensors", "run/best.safetensors", "--device=cpu"]
    command += ["--source=test.en.gz", "--target=test.de.gz", "--shard-lines=4"]
    with running_cluster(1) as cluster:
        run(*command, f"--output={tmp_path / 'out'}", "--cluster", cluster.address)
    run(*command, f"--output={tmp_path / 'alone'}")
    assert (tmp_path / "out").read_bytes() == (tmp_path / "alone").read_bytes()
    assert not (tmp_path / "out.unfinished").exists()
