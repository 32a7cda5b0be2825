"""Worker processes give results in order, and a signal ends them without leaving processes or files behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from commands import needs_forks
from conftest import invented_pairs

from nmt import resources
from nmt.config import EngineConfig, RuntimeConfig, SearchConfig
from nmt.decoding.rescoring import RescoringJob
from nmt.decoding.translation import TranslationJob
from nmt.errors import NmtError
from nmt.model import runtime
from nmt.processes.origins import CAN_FORK, Forked, OriginDied
from nmt.processes.pool import in_order, worker_pool

NMT = [sys.executable, "-m", "nmt"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
END_SECONDS = 2.0


def dies(_: int) -> Callable[[int], int]:
    return os._exit


def fails(_: int) -> Callable[[int], int]:
    def fail(chunk: int) -> int:
        raise NmtError(f"chunk {chunk} is bad")

    return fail


def doubles(_: int) -> Callable[[int], int]:
    return lambda chunk: 2 * chunk


def test_a_worker_that_dies_is_an_error() -> None:
    with pytest.raises(NmtError, match=r"a worker process died, .* fewer --workers"):
        list(in_order(dies, range(10), 2))


@pytest.mark.parametrize("workers", [1, 2])
def test_errors_of_workers_and_of_the_input_are_raised(workers: int) -> None:
    with pytest.raises(NmtError, match="chunk 0 is bad"):
        list(in_order(fails, range(10), workers))

    def chunks() -> Any:
        yield 1
        raise NmtError("the input is bad")

    with pytest.raises(NmtError, match="the input is bad"):
        list(in_order(doubles, chunks(), workers))


def test_few_chunks_are_read_ahead() -> None:
    taken = []

    def chunks() -> Any:
        for i in range(100):
            taken.append(i)
            yield i

    results = in_order(doubles, chunks(), 2)
    assert [next(results) for _ in range(10)] == list(range(0, 20, 2))
    assert len(taken) <= 20
    results.close()


def returns_its_number(worker: int) -> Callable[[int], int]:
    def work(_: int) -> int:
        time.sleep(0.5)  # so that every worker gets a chunk
        return worker

    return work


def test_workers_are_numbered() -> None:
    assert set(in_order(returns_its_number, range(8), 3)) == {0, 1, 2}


# Workers that are forked from one process


def reports_where_it_runs() -> Callable[[int], Callable[[Any], tuple[int, int, int, int]]]:
    """Returns what makes tasks that return the worker's number, its process, its parent, and who called this."""
    loader = os.getpid()

    def make_task(worker: int) -> Callable[[Any], tuple[int, int, int, int]]:
        def task(victim: str | Path) -> tuple[int, int, int, int]:
            if victim == "worker":
                os._exit(1)
            if isinstance(victim, Path) and victim.exists():  # a file that asks for one kill
                victim.unlink()
                victim = "server"
            if victim == "server":
                os.kill(os.getppid(), signal.SIGKILL)
                time.sleep(60)
            time.sleep(0.3)  # so that every worker gets a chunk
            return worker, os.getpid(), os.getppid(), loader

        return task

    return make_task


def needs_a_file(path: Path) -> Callable[[int], Callable[[int], int]]:
    if not path.exists():
        raise NmtError(f"{path} is missing")
    return doubles


def loads_for_a_minute() -> Callable[[int], Any]:
    time.sleep(60)
    return doubles


@needs_forks
def test_workers_are_forked_from_a_process_that_loads_once() -> None:
    with worker_pool(Forked(reports_where_it_runs), 2) as submit:
        found = [future.result() for future in [submit("") for _ in range(6)]]
    workers, processes, parents, loaders = map(set, zip(*found, strict=True))
    assert workers == {0, 1} and len(processes) == 2
    assert parents == loaders and len(loaders) == 1 and os.getpid() not in loaders
    assert not any(Path(f"/proc/{process}").exists() for process in processes | loaders)


@needs_forks
def test_workers_and_their_server_are_replaced_if_they_die(tmp_path: Path) -> None:
    with worker_pool(Forked(reports_where_it_runs), 1, attempts=2) as submit:
        first = submit("").result()
        with pytest.raises(NmtError, match="a worker process died"):
            submit("worker").result()
        second = submit("").result()
        assert second[1] != first[1] and second[3] == first[3]
        with pytest.raises(NmtError, match="a worker process died"):
            submit("server").result()
        (tmp_path / "kill the server once").touch()
        third = submit(tmp_path / "kill the server once").result()
        assert third[3] != first[3]


@needs_forks
def test_an_idle_worker_that_died_is_replaced_without_losing_an_attempt() -> None:
    with worker_pool(Forked(reports_where_it_runs), 1) as submit:
        first = submit("").result()
        os.kill(first[1], signal.SIGKILL)
        time.sleep(0.5)
        assert submit("").result()[1] != first[1]


@needs_forks
def test_an_error_in_loading_is_raised_until_loading_succeeds(tmp_path: Path) -> None:
    with worker_pool(Forked(partial(needs_a_file, tmp_path / "model")), 2) as submit:
        for future in [submit(chunk) for chunk in range(4)]:
            with pytest.raises(NmtError, match="model is missing") as found:
                future.result()
            assert len(found.value.__notes__) == 1
        (tmp_path / "model").touch()
        assert submit(4).result() == 8


@needs_forks
def test_the_end_does_not_wait_for_loading_and_nothing_starts_after_it() -> None:
    origin = Forked(loads_for_a_minute)
    started = time.monotonic()
    with worker_pool(origin, 2) as submit:
        submit(1)
        time.sleep(0.5)
    assert time.monotonic() - started < 30
    with pytest.raises(OriginDied):
        origin.start(0)


@needs_forks
@pytest.mark.parametrize(("target", "seconds"), [("command", 0), ("server", 0), ("command", 60)])
def test_forked_workers_end_if_their_parents_are_killed(target: str, seconds: int, tmp_path: Path) -> None:
    """With 60 seconds, the server is still loading."""
    script = tmp_path / "busy.py"
    script.write_text(
        "import os, time\n"
        "from nmt.processes.origins import Forked\n"
        "from nmt.processes.pool import worker_pool\n"
        "def load():\n"
        "    print(os.getpid(), flush=True)\n"
        f"    time.sleep({seconds})\n"
        "    return lambda worker: lambda chunk: print('busy', flush=True) or time.sleep(chunk)\n"
        "if __name__ == '__main__':\n"
        "    with worker_pool(Forked(load), 2) as submit:\n"
        "        for future in [submit(60), submit(60)]:\n"
        "            future.exception()\n"
    )
    process = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout
    server = int(process.stdout.readline())
    if not seconds:
        assert [process.stdout.readline() for _ in range(2)] == ["busy\n"] * 2
    os.kill(process.pid if target == "command" else server, signal.SIGKILL)
    process.wait(timeout=60)
    wait_for_the_end(process.pid)


@pytest.mark.parametrize(
    ("engine", "device", "expected"),
    [("pytorch", "cpu", CAN_FORK), ("pytorch", "cuda", False), ("ctranslate2", "cpu", False)],
)
def test_only_models_of_pytorch_on_a_cpu_are_loaded_before_a_fork(
    engine: Any, device: Any, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "_gpus", lambda: 1)
    config = RuntimeConfig(device=device)
    job = TranslationJob(("model.pt",), config, SearchConfig(), EngineConfig(engine=engine))
    assert job.shares_memory == expected
    assert RescoringJob(("model.pt",), config).shares_memory == (CAN_FORK and device == "cpu")


# Commands that are stopped


@pytest.fixture
def command(write_corpus: Callable[..., str], tmp_path: Path) -> list[str]:
    """Returns a preprocessing command that takes longer than any of these tests."""
    train, valid = write_corpus("large", invented_pairs(60_000)), write_corpus("valid", invented_pairs(5))
    options = ["--source-lang=en", "--target-lang=de", *[f"--train={train}"] * 10, f"--valid={valid}"]
    return [*NMT, "preprocess", *options, f"--dest={tmp_path}/out/data", "--vocab-size=330", "--subword-sample=500"]


@pytest.fixture
def started(command: list[str], tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Starts the command, waits until its workers are busy, and kills what is left of it in the end."""
    process = subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 60
    while not list((tmp_path / "out").glob("data.unfinished/manifest.json")) or len(alive(process.pid)) < 4:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    yield process
    for pid in alive(process.pid):
        os.kill(pid, signal.SIGKILL)


def alive(session: int) -> list[int]:
    """Returns the running processes of a session: the command, its workers and multiprocessing's resource tracker."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,sid=,stat="], capture_output=True, text=True, check=True)
    rows = [line.split() for line in listed.stdout.splitlines()]
    return [int(pid) for pid, sid, state in rows if int(sid) == session and not state.startswith("Z")]


def wait_for_the_end(session: int) -> None:
    deadline = time.monotonic() + END_SECONDS
    while alive(session) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert alive(session) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_ends_the_workers_and_leaves_no_files(
    started: subprocess.Popen[str], number: signal.Signals, tmp_path: Path
) -> None:
    started.send_signal(number)
    said = started.communicate(timeout=30)[1]
    assert started.returncode == 75
    assert "Traceback" not in said
    wait_for_the_end(started.pid)
    assert not (tmp_path / "out").exists()


def test_workers_end_if_their_parent_is_killed(started: subprocess.Popen[str]) -> None:
    started.kill()
    started.wait()
    wait_for_the_end(started.pid)


@pytest.mark.parametrize(
    ("arguments", "number", "code"),
    [
        (["train", "nowhere", "--arch=transformer_tiny", "--save-dir=run"], signal.SIGTERM, 75),
        (["train", "nowhere", "--arch=transformer_tiny", "--save-dir=run"], signal.SIGUSR1, 75),
        (["generate", "nowhere"], signal.SIGINT, -signal.SIGINT),
        (["generate", "nowhere"], signal.SIGTERM, -signal.SIGTERM),
        (["generate", "nowhere", "--output-format=text"], signal.SIGTERM, -signal.SIGTERM),
        (["generate", "nowhere", "--input=a", "--output=b"], signal.SIGTERM, 75),
        (["rescore", "nowhere", "--output", "b"], signal.SIGTERM, 75),
    ],
)
def test_a_signal_during_imports_ends_the_command(arguments: list[str], number: signal.Signals, code: int) -> None:
    """The signal arrives when Python starts to import torch."""
    program = """
        import os, signal, sys
        from nmt.__main__ import main

        number = int(sys.argv.pop())

        class SignalAtTorch:
            def find_spec(self, name, *_):
                if name == "torch":
                    signal.raise_signal(number)

        sys.meta_path.insert(0, SignalAtTorch())
        main()
    """
    lines = "\n".join(line[8:] for line in program.splitlines())
    done = subprocess.run([sys.executable, "-c", lines, *arguments, str(int(number))], capture_output=True, text=True)
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


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("0::/a/b", {"cpu.max": "max 100000", "a/cpu.max": "250000 100000", "a/b/cpu.max": "400000 100000"}, 2),
        ("0::/a", {"a/cpu.max": "50000 100000"}, 1),
        ("3:cpu,cpuacct:/c\n0::/", {"cpu/c/cpu.cfs_quota_us": "300000", "cpu/c/cpu.cfs_period_us": "100000"}, 3),
        ("3:cpu:/c\n1:memory:/", {"cpu/c/cpu.cfs_quota_us": "-1", "cpu/c/cpu.cfs_period_us": "100000"}, 64),
        ("0::/elsewhere", {}, 64),
    ],
)
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
