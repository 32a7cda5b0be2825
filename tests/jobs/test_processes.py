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
from unittest.mock import DEFAULT, Mock

import forks
import pytest
import tasks
from commands import needs_linux
from tasks import Reports

from nmt import resources, signals
from nmt.errors import NmtError
from nmt.jobs import pool
from nmt.jobs.pool import WorkerDiedError, map_in_order, worker_pool
from nmt.signals import StopSignals, held


@pytest.mark.parametrize("chunk", [(os._exit, 9), (tasks.die_within_the_answer,)])
def test_a_worker_that_dies_is_an_error(chunk: Any) -> None:
    with pytest.raises(NmtError, match=r"a worker process died, .* fewer --workers"):
        list(map_in_order(tasks.runs, [chunk] * 10, 2, preload="tasks"))


@pytest.mark.parametrize("workers", [1, 2])
def test_errors_of_workers_and_of_the_input_are_raised(workers: int) -> None:
    with pytest.raises(NmtError, match="chunk 0 is bad"):
        list(map_in_order(tasks.runs, [(tasks.fail, i) for i in range(10)], workers, preload="tasks"))

    def chunks() -> Any:
        yield (os.getpid,)
        raise NmtError("the input is bad")

    with pytest.raises(NmtError, match="the input is bad"):
        list(map_in_order(tasks.runs, chunks(), workers, preload="tasks"))


def test_few_chunks_are_read_ahead() -> None:
    taken = []

    def chunks() -> Any:
        for i in range(100):
            taken.append(i)
            yield abs, -i

    results = map_in_order(tasks.runs, chunks(), 2, preload="tasks")
    assert [next(results) for _ in range(10)] == list(range(10))
    assert len(taken) <= 20
    results.close()


def pool_of(workers: int, make_task: Callable[[int], Any] = tasks.runs, attempts: int = 1) -> Any:
    return worker_pool(make_task, workers, attempts, preload="tasks")


def test_workers_are_numbered_and_do_not_receive_ctrl_c() -> None:
    reports = Reports()
    with pool_of(3, partial(tasks.tells_number, reports.port)) as submit:
        futures = [submit(None) for _ in range(3)]
        waiting, processes = zip(*(reports.next() for _ in futures), strict=True)
        for connection in waiting:
            connection.close()
        assert {future.result() for future in futures} == {0, 1, 2}
    assert len(set(processes)) == 3
    assert not any(Path(f"/proc/{process}").exists() for process in processes)


def kill(process: int) -> None:
    """Kills a process and waits for its end."""
    end = os.pidfd_open(process)
    os.kill(process, signal.SIGKILL)
    assert select.select([end], [], [], 120)[0], "the process does not end"
    os.close(end)


@needs_linux
def test_workers_and_the_fork_server_are_replaced_if_they_die() -> None:
    """An idle worker that died does not cost the only attempt."""
    with pool_of(1) as submit:
        first, server = submit((os.getpid,)).result(), submit((os.getppid,)).result()
        kill(first)
        second = submit((os.getpid,)).result()
        assert second != first
        kill(server)
        assert submit((os.getpid,)).result() == second
        for _ in range(2):  # the second worker dies, and then one of another fork server
            with pytest.raises(WorkerDiedError):
                submit((os._exit, 1)).result()
            assert submit((os.getppid,)).result() != server


def test_a_fork_server_that_dies_while_a_worker_starts_costs_one_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    endings = [EOFError, ConnectionResetError, DEFAULT]
    monkeypatch.setattr(pool, "_started", Mock(wraps=pool._started, side_effect=endings))
    with pool_of(1, attempts=2) as submit:
        with pytest.raises(WorkerDiedError):
            submit((abs, -4)).result()
        assert submit((abs, -4)).result() == 4


def test_an_error_in_loading_is_raised_until_loading_succeeds(tmp_path: Path) -> None:
    with pool_of(2, partial(tasks.runs_file, tmp_path / "model")) as submit:
        for future in [submit((abs, -4)) for _ in range(3)]:
            with pytest.raises(NmtError, match="model is missing") as error:
                future.result()
            assert len(error.value.__notes__) == 1
        (tmp_path / "model").touch()
        assert submit((abs, -4)).result() == 4


def test_the_end_does_not_wait_for_loading() -> None:
    reports = Reports()
    with pool_of(1, partial(tasks.never_loads, reports.port)) as submit:
        future = submit((abs, -4))
        connection, _ = reports.next()
    assert isinstance(future.exception(), WorkerDiedError)
    assert connection.recv(1) == b"", "the process has not ended"


def test_a_worker_has_the_environment_of_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fork server keeps that of its first pool."""
    for value in ("1", "2"):
        monkeypatch.setenv("NMT_TEST", value)
        with pool_of(1) as submit:
            assert submit((os.getenv, "NMT_TEST")).result() == value
            assert submit((os.getenv, "PYTHONSAFEPATH")).result() == os.getenv("PYTHONSAFEPATH")


WORKS = """
from nmt.jobs.pool import worker_pool
import tasks
print("begins")
with worker_pool(tasks.runs, 1, preload="tasks") as submit:
    print(submit((abs, -4)).result())
print(__name__, bool(globals().get("__file__")), getattr(__spec__, "name", None))
"""


@pytest.mark.parametrize(("arguments", "names"), [
    (["{folder}/program.py"], "True None"), (["{folder}"], "True __main__"),
    (["-P", "-m", "program"], "True program"), (["-P", "-c", WORKS], "False None"),
])  # fmt: skip
def test_workers_start_in_a_folder_with_modules_and_a_long_name_of_temporary_files(
    tmp_path: Path, arguments: list[str], names: str
) -> None:
    """Importing a module of the working folder, which belongs to the user, would end the workers.

    Nor do they run the program again, which is without `if __name__ == "__main__":`.
    """
    working_folder, temporary = tmp_path / "here", tmp_path / ("long" * 20) / ("long" * 20)
    working_folder.mkdir()
    temporary.mkdir(parents=True)
    for name in ("random", "socket", "tasks", "torch", "nmt"):
        (working_folder / f"{name}.py").write_text("raise SystemExit('a module of the user was imported')")
    for name in ("program", "__main__"):
        (tmp_path / f"{name}.py").write_text(WORKS)
    path = f"{forks.ROOT}:{forks.ROOT}/tests/helpers:{tmp_path}"
    environment = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": path}
    program = [sys.executable, *(each.format(folder=tmp_path) if each != WORKS else each for each in arguments)]
    done = subprocess.run(program, cwd=working_folder, env=environment, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (f"begins\n4\n__main__ {names}\n", "")


@pytest.mark.parametrize("make_task", [tasks.runs, "never loads"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 143)])
def test_busy_workers_end_with_their_parent(make_task: Any, number: signal.Signals, code: int) -> None:
    reports = Reports()
    make_task = partial(tasks.never_loads, reports.port) if make_task == "never loads" else make_task
    command = forks.start(instead=partial(tasks.keep_workers_busy, make_task, reports.port))
    worker_reports = [reports.next() for _ in range(2)]
    os.kill(command.pid, number)
    command.wait(code)
    for connection, _ in worker_reports:
        assert connection.recv(1) == b"", "a process has not ended"


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
    (["rescore", "nowhere", "--output", "-"], signal.SIGTERM, -signal.SIGTERM),
])  # fmt: skip
def test_a_signal_during_imports_ends_the_command(arguments: list[str], number: signal.Signals, code: int) -> None:
    """The signal arrives when Python starts to import torch."""
    program = [sys.executable, "-c", SIGNAL_AT_TORCH, *arguments, str(int(number))]
    done = subprocess.run(program, capture_output=True, text=True)
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


@pytest.mark.parametrize(("limit", "expected"), [("250000 100000", 2), ("50000 100000", 1), ("max 100000", 64)])
def test_usable_cores_respect_the_limit_of_a_container(
    limit: str, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpu.max").write_text(f"{limit}\n")
    monkeypatch.setattr(resources, "_CONTROL_GROUP", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    assert resources.usable_cores() == expected


def test_the_groups_around_that_of_the_process_limit_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own").write_text("12:cpu:/x\n0::/slurm/job_1/step_0\n")
    (tmp_path / "groups" / "slurm" / "job_1" / "step_0").mkdir(parents=True)
    (tmp_path / "groups" / "slurm" / "job_1" / "memory.max").write_text("12345\n")
    (tmp_path / "groups" / "slurm" / "job_1" / "step_0" / "memory.max").write_text("max\n")
    monkeypatch.setattr(resources, "_CONTROL_GROUP", tmp_path / "groups")
    monkeypatch.setattr(resources, "_OWN_GROUP", tmp_path / "own")
    assert resources.memory_bytes() == 12345


@pytest.mark.parametrize(("limit", "expected"), [("12345", 12345), ("max", None)])
def test_the_memory_of_a_container_is_limited(
    limit: str, expected: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = resources.memory_bytes()
    (tmp_path / "memory.max").write_text(f"{limit}\n")
    monkeypatch.setattr(resources, "_CONTROL_GROUP", tmp_path)
    assert resources.memory_bytes() == (expected or machine)


# Signals


def signal_twice(read_at_once: bool) -> None:
    """Sends two signals to this process, which must have noticed the first one before it receives the second."""
    reader, writer = os.pipe()
    signals._ONE_SIGNAL_SECONDS = 1e9 if read_at_once else -1  # type: ignore[assignment]
    with StopSignals(lambda: os.write(writer, b"noticed")) as stop:
        signal.raise_signal(signal.SIGTERM)
        os.read(reader, 7)
        assert stop.received
        signal.raise_signal(signal.SIGHUP)
        if not read_at_once:
            signal.pause()
    os._exit(0)


@pytest.mark.parametrize(("at_once", "code"), [(True, 0), (False, 128 + signal.SIGHUP)])
def test_a_second_signal_ends_the_process_unless_it_follows_at_once(at_once: bool, code: int) -> None:
    forks.start(instead=partial(signal_twice, at_once)).wait(code)


def test_signals_that_were_held_arrive_later_and_none_stays_blocked() -> None:
    arrived: list[int] = []
    previous_handler = signal.signal(signal.SIGUSR1, lambda signum, _: arrived.append(signum))
    try:
        with held():
            signal.raise_signal(signal.SIGUSR1)
            assert not arrived
        assert arrived == [signal.SIGUSR1]
        assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())
    finally:
        signal.signal(signal.SIGUSR1, previous_handler)
