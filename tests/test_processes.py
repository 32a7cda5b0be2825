"""Worker processes give results in order, and a signal ends them without leaving processes behind."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import forks
import pytest
import tasks
from commands import needs_forks
from tasks import Place, Reports

from nmt import resources
from nmt.config import EngineConfig, RuntimeConfig, SearchConfig
from nmt.decoding.rescoring import RescoringJob
from nmt.decoding.translation import TranslationJob
from nmt.errors import NmtError
from nmt.model import runtime
from nmt.processes import origins
from nmt.processes.origins import CAN_FORK, Forked, OriginDied, Spawned
from nmt.processes.pool import WorkerDied, in_order, worker_pool


def test_a_worker_that_dies_is_an_error() -> None:
    with pytest.raises(NmtError, match=r"a worker process died, .* fewer --workers"):
        list(in_order(tasks.runs, [(os._exit, 9)] * 10, 2))


@pytest.mark.parametrize("workers", [1, 2])
def test_errors_of_workers_and_of_the_input_are_raised(workers: int) -> None:
    with pytest.raises(NmtError, match="chunk 0 is bad"):
        list(in_order(tasks.runs, [(tasks.fail, i) for i in range(10)], workers))

    def chunks() -> Any:
        yield (os.getpid,)
        raise NmtError("the input is bad")

    with pytest.raises(NmtError, match="the input is bad"):
        list(in_order(tasks.runs, chunks(), workers))


def test_few_chunks_are_read_ahead() -> None:
    taken = []

    def chunks() -> Any:
        for i in range(100):
            taken.append(i)
            yield abs, -i

    results = in_order(tasks.runs, chunks(), 2)
    assert [next(results) for _ in range(10)] == list(range(10))
    assert len(taken) <= 20
    results.close()


def places_of(workers: int, submit: Callable[[Any], Any], reports: Reports) -> list[Place]:
    """Returns the places of the workers, each of which gets a task."""
    futures = [submit((tasks.place_of_each, reports.port)) for _ in range(workers)]
    waiting = [reports.next()[0] for _ in futures]
    for connection in waiting:
        connection.close()
    return [future.result() for future in futures]


def test_workers_are_numbered_and_do_not_receive_ctrl_c() -> None:
    with worker_pool(Spawned(tasks.runs), 3) as submit:
        places = places_of(3, submit, Reports())
    assert {place.worker for place in places} == {0, 1, 2}
    assert {place.parent for place in places} == {os.getpid()}


# Workers that are forked from one process


@needs_forks
def test_workers_are_forked_from_a_process_that_loads_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origins, "_ENDING_SECONDS", 120)  # the process may be slow to end its workers
    with worker_pool(Forked(tasks.loads), 2) as submit:
        places = [submit((tasks.place,)).result(), *places_of(2, submit, Reports()), submit((tasks.place,)).result()]
    loaders, processes = {place.loader for place in places}, {place.process for place in places}
    assert {place.worker for place in places} == {0, 1} and len(processes) == 2
    assert {place.parent for place in places} == loaders and len(loaders) == 1 and os.getpid() not in loaders
    assert not any(Path(f"/proc/{process}").exists() for process in processes | loaders)


@needs_forks
def test_workers_and_the_process_that_loads_are_replaced_if_they_die(tmp_path: Path) -> None:
    with worker_pool(Forked(tasks.loads), 1, attempts=2) as submit:
        first = submit((tasks.place,)).result()
        with pytest.raises(NmtError, match="a worker process died"):
            submit((os._exit, 1)).result()
        second = submit((tasks.place,)).result()
        assert second.process != first.process and second.loader == first.loader
        with pytest.raises(NmtError, match="a worker process died"):
            submit((tasks.kill_loader,)).result()
        (tmp_path / "once").touch()
        assert submit((tasks.kill_loader_once, tmp_path / "once")).result().loader != first.loader


@needs_forks
def test_an_idle_worker_that_died_is_replaced_without_losing_an_attempt() -> None:
    with worker_pool(Forked(tasks.loads), 1) as submit:
        worker = submit((os.getpid,)).result()
        end = os.pidfd_open(worker)
        os.kill(worker, signal.SIGKILL)
        assert select.select([end], [], [], 120)[0], "the worker does not end"
        os.close(end)
        assert submit((os.getpid,)).result() != worker


@needs_forks
def test_an_error_in_loading_is_raised_until_loading_succeeds(tmp_path: Path) -> None:
    with worker_pool(Forked(partial(tasks.loads_file, tmp_path / "model")), 2) as submit:
        for future in [submit((abs, -4)) for _ in range(3)]:
            with pytest.raises(NmtError, match="model is missing") as found:
                future.result()
            assert len(found.value.__notes__) == 1
        (tmp_path / "model").touch()
        assert submit((abs, -4)).result() == 4


@needs_forks
def test_the_end_does_not_wait_for_loading_and_nothing_starts_after_it() -> None:
    reports = Reports()
    origin = Forked(partial(tasks.never_end, reports.port))
    with worker_pool(origin, 2) as submit:
        future = submit((abs, -4))
        connection, _ = reports.next()
    assert isinstance(future.exception(), WorkerDied)
    assert connection.recv(1) == b"", "the process has not ended"
    with pytest.raises(OriginDied):
        origin.start(0)


@pytest.mark.parametrize(("kind", "target", "number", "code"), [
    ("spawned", "command", signal.SIGKILL, -signal.SIGKILL),
    ("spawned", "command", signal.SIGTERM, 143),
    pytest.param("forked", "command", signal.SIGKILL, -signal.SIGKILL, marks=needs_forks),
    pytest.param("forked", "command", signal.SIGTERM, 143, marks=needs_forks),
    pytest.param("forked", "loader", signal.SIGKILL, 0, marks=needs_forks),
    pytest.param("loading", "command", signal.SIGKILL, -signal.SIGKILL, marks=needs_forks),
    pytest.param("loading", "command", signal.SIGTERM, 143, marks=needs_forks),
])  # fmt: skip
def test_busy_workers_end_with_their_parents(kind: str, target: str, number: signal.Signals, code: int) -> None:
    reports = Reports()
    make_origin, processes = {
        "spawned": (partial(Spawned, tasks.runs), 2),
        "forked": (partial(Forked, partial(tasks.loads, reports.port)), 3),
        "loading": (partial(Forked, partial(tasks.never_end, reports.port)), 1),
    }[kind]
    command = forks.start(instead=partial(tasks.keep_workers_busy, make_origin, reports.port))
    found = [reports.next() for _ in range(processes)]
    os.kill(command.pid if target == "command" else found[0][1], number)  # the process that loads reports first
    command.wait(code)
    for connection, _ in found:
        assert connection.recv(1) == b"", "a process has not ended"


@pytest.mark.parametrize(
    ("engine", "device", "expected"),
    [("pytorch", "cpu", CAN_FORK), ("pytorch", "cuda", False), ("ctranslate2", "cpu", False)],
)
def test_only_models_of_pytorch_on_a_cpu_are_loaded_before_a_fork(
    engine: Any, device: Any, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "_gpus", lambda: 1)
    config = RuntimeConfig(device=device)
    job = TranslationJob(("model.safetensors",), config, SearchConfig(), EngineConfig(engine=engine))
    assert job.shares_memory == expected
    assert RescoringJob(("model.safetensors",), config).shares_memory == (CAN_FORK and device == "cpu")


SIGNAL_AT_TORCH = """
import signal, sys
from nmt.__main__ import main

number = int(sys.argv.pop())

class SignalAtTorch:
    def find_spec(self, name, *_):
        if name == "torch":
            signal.raise_signal(number)

sys.meta_path.insert(0, SignalAtTorch())
main()
"""


@pytest.mark.parametrize(("arguments", "number", "code"), [
    (["train", "nowhere", "--arch=transformer_tiny", "--save-dir=run"], signal.SIGTERM, 75),
    (["train", "nowhere", "--arch=transformer_tiny", "--save-dir=run"], signal.SIGUSR1, 75),
    (["generate", "nowhere"], signal.SIGINT, -signal.SIGINT),
    (["generate", "nowhere"], signal.SIGTERM, -signal.SIGTERM),
    (["generate", "nowhere", "--output-format=text"], signal.SIGTERM, -signal.SIGTERM),
    (["generate", "nowhere", "--input=a", "--output=b"], signal.SIGTERM, 75),
    (["rescore", "nowhere", "--output", "b"], signal.SIGTERM, 75),
])  # fmt: skip
def test_a_signal_during_imports_ends_the_command(arguments: list[str], number: signal.Signals, code: int) -> None:
    """The signal arrives when Python starts to import torch."""
    done = subprocess.run(
        [sys.executable, "-c", SIGNAL_AT_TORCH, *arguments, str(int(number))], capture_output=True, text=True
    )
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert ("start the same command again" in done.stderr) == (code == 75)


# The machine


def test_spinning_is_limited_unless_the_user_sets_how_threads_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    resources.limit_spinning()
    assert "GOMP_SPINCOUNT" not in os.environ
    monkeypatch.delenv("OMP_WAIT_POLICY")
    resources.limit_spinning()
    assert int(os.environ["GOMP_SPINCOUNT"]) > 0


@pytest.mark.parametrize(("groups", "files", "expected"), [
    ("0::/a/b", {"cpu.max": "max 100000", "a/cpu.max": "250000 100000", "a/b/cpu.max": "400000 100000"}, 2),
    ("0::/a", {"a/cpu.max": "50000 100000"}, 1),
    ("3:cpu,cpuacct:/c\n0::/", {"cpu/c/cpu.cfs_quota_us": "300000", "cpu/c/cpu.cfs_period_us": "100000"}, 3),
    ("3:cpu:/c\n1:memory:/", {"cpu/c/cpu.cfs_quota_us": "-1", "cpu/c/cpu.cfs_period_us": "100000"}, 64),
    ("0::/elsewhere", {}, 64),
])  # fmt: skip
def test_usable_cores_respect_the_limits_of_control_groups(
    groups: str, files: dict[str, str], expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    (tmp_path / "cgroup").write_text(f"{groups}\n")
    monkeypatch.setattr(resources, "_CONTROL_GROUPS", tmp_path)
    monkeypatch.setattr(resources, "_OWN_GROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    assert resources.usable_cores() == expected
