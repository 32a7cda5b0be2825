"""Long and slow translation jobs: lines that arrive one by one, interrupted jobs, and workers that die."""

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from commands import failed, run
from conftest import invented_pairs
from hypothesis import given
from hypothesis import strategies as st

from nmt.decoding.jobs import Batch, in_line_order
from nmt.decoding.jobs import run as run_job
from nmt.decoding.unfinished import unfinished
from nmt.errors import Interrupted, NmtError
from nmt.text.windows import Windows, windows_of

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
# Small batches, so that a job has many.
OPTIONS = ["--batch-tokens=64", "--max-length-offset=20", "--precision=fp32", "--device=cpu"]


def start(*arguments: str | Path, **pipes: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "nmt", *map(str, arguments)]
    return subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.PIPE, **pipes)


# Lines that arrive one by one


def test_a_line_is_answered_before_the_pipe_is_closed(trained: Path) -> None:
    process = start("generate", trained / "run" / "best.pt", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin and process.stdout
    for _ in range(2):
        process.stdin.write(b"Ba de ki.\n")
        process.stdin.flush()
        assert select.select([process.stdout], [], [], 60)[0], "no answer"
        assert process.stdout.readline().endswith(b"\n")
    process.stdin.close()
    assert process.wait(60) == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_a_signal_ends_a_command_that_waits_for_a_line(trained: Path, workers: int) -> None:
    command = ["generate", trained / "run" / "best.pt", f"--workers={workers}"]
    process = start(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin and process.stdout
    process.stdin.write(b"Ba de ki.\n")
    process.stdin.flush()
    assert process.stdout.readline().endswith(b"\n")
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    assert b"Fatal" not in process.stderr.read()  # type: ignore[union-attr]


def test_a_window_of_a_pipe_holds_what_has_arrived(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    release: list[int] = []

    def records() -> Iterator[int]:
        yield from range(5)
        while not release:
            time.sleep(0.01)
        yield 5
        raise NmtError("the input is bad")

    windows = windows_of(pipe, records(), 4)
    assert windows.take(wait=True)
    while windows.first_number < 6:
        windows.take(wait=False)
    assert windows.take(wait=False) == []
    release.append(1)
    assert windows.take(wait=True) == [5]
    for _ in range(2):
        with pytest.raises(NmtError, match="the input is bad"):
            windows.take(wait=True)


# Jobs that are interrupted


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.en"
    path.write_text("".join(f"{source}\n" for source, _ in invented_pairs(60, seed=7)) + "\n")
    return path


def size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


@pytest.mark.parametrize("command", ["generate", "rescore"])
@pytest.mark.parametrize("workers", [1, 2])
def test_an_interrupted_job_resumes_with_the_same_output(
    trained: Path, source: Path, tmp_path: Path, command: str, workers: int
) -> None:
    arguments = [command, trained / "run" / "best.pt", "--output", tmp_path / "out", "--device=cpu"]
    if command == "generate":
        arguments += ["--input", source, *OPTIONS]
    else:
        arguments += ["--source", source, "--target", source, "--batch-tokens=64"]
    run(*arguments)
    expected = (tmp_path / "out").read_bytes()
    (tmp_path / "out").unlink()
    kept = tmp_path / "out.unfinished"
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        before = size(kept)
        process = start(*arguments, f"--workers={workers}")
        while process.poll() is None and size(kept) <= before + 100:
            time.sleep(0.002)
        process.send_signal(number)
        said = process.communicate(timeout=60)[1].decode()
        assert process.returncode in (0, -signal.SIGKILL, 75), said  # 0 if the job was done before the signal came
        if process.returncode == 75:
            assert f"which are kept in {kept}; start the same command again to resume" in said
    run(*arguments)
    assert (tmp_path / "out").read_bytes() == expected
    assert not kept.exists()


@pytest.fixture
def interrupted(trained: Path, source: Path, tmp_path: Path) -> list[str | Path]:
    """Returns a command whose job was interrupted after its first batch."""
    command = ["generate", trained / "run" / "best.pt", "--input", source, "--output", tmp_path / "out", *OPTIONS]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nmt.decoding.unfinished.Unfinished.add", add_and_stop)
        assert run(*command, code=75).stderr.count("start the same command again to resume") == 1
    return command


def add_and_stop(lines: Any, numbers: Sequence[int], outputs: Sequence[str]) -> None:
    lines._out.write(json.dumps([numbers, outputs]) + "\n")
    raise SystemExit(128 + signal.SIGTERM)


@pytest.mark.parametrize("change, message", [
    (["--beam=2"], r"whose --beam is 4, but now it is 2"),
    (["--output-format=jsonl"], r"whose --output-format is text, but now it is jsonl"),
    (["--prefixes={source}"], r"whose --prefixes is not given, but now it is SHA-256"),
    (["--input={other}"], r"whose --input is SHA-256 \w+…, but now it is SHA-256"),
    (["{average}"], r"whose checkpoint 2 is not given"),
])  # fmt: skip
def test_a_changed_job_is_not_resumed(
    interrupted: list[str | Path], trained: Path, source: Path, tmp_path: Path, change: list[str], message: str
) -> None:
    (tmp_path / "other").write_text("Ba.\n")
    paths = {"source": source, "other": tmp_path / "other", "average": trained / "run" / "average.pt"}
    said = failed(*interrupted, *(flag.format(**paths) for flag in change))
    assert "out.unfinished belongs to an unfinished job" in said
    assert re.search(message, said), said


def test_a_damaged_unfinished_file_is_an_error_and_a_torn_line_is_not(
    interrupted: list[str | Path], tmp_path: Path
) -> None:
    kept = tmp_path / "out.unfinished"
    whole = kept.read_bytes()
    kept.write_bytes(whole + b'[[1, 2], ["half a li')
    run(*interrupted)
    kept.write_bytes(whole + b"\xff\n")
    assert failed(*interrupted).endswith("out.unfinished is damaged; delete it and start again")
    kept.write_bytes(b"[]\n" + whole)
    assert "is damaged" in failed(*interrupted)


def test_two_processes_do_not_write_one_output(tmp_path: Path) -> None:
    with (
        unfinished(str(tmp_path / "out"), {}),
        pytest.raises(NmtError, match="is in use by another process"),
        unfinished(str(tmp_path / "out"), {}),
    ):
        pass


@given(st.data())
def test_unfinished_lines_survive_any_cut(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Whatever order batches finish in and wherever the file is cut, resuming gives all lines once and in order."""
    path = tmp_path_factory.mktemp("job") / "out"
    order = data.draw(st.permutations(range(1, 13)))
    batches = [order[i : i + 3] for i in range(0, 12, 3)]
    texts = {n: f"line {n} ä\n\n" if n % 2 else "" for n in order}
    first = data.draw(st.integers(0, 4))
    with pytest.raises(Interrupted, match=f"stopped after {3 * first} lines"), unfinished(str(path), {"a": 1}) as lines:
        for numbers in batches[:first]:
            lines.add(numbers, [texts[n] for n in numbers])
        raise SystemExit(143)
    kept = path.with_name("out.unfinished")
    os.truncate(kept, data.draw(st.integers(0, kept.stat().st_size)))
    with unfinished(str(path), {"a": 1}) as lines:
        for numbers in batches:
            if not lines.is_done(numbers):
                lines.add(numbers, [texts[n] for n in numbers])
        assert list(lines.outputs()) == [texts[n] for n in sorted(order)]
    assert not kept.exists()


# Workers that die


@dataclass(frozen=True)
class Doubling:
    """A job that doubles numbers. Number 3 kills its worker until the file `deaths` has `survives` lines."""

    deaths: Path
    survives: int

    def load(self, _: int) -> "DoublingEngine":
        return DoublingEngine(self)

    def codec(self) -> Any:
        return None

    def batched(self, _: Any, records: Sequence[int], first_number: int) -> Iterator[Batch]:
        for i in range(0, len(records), 2):
            yield Batch([first_number + i, first_number + i + 1], list(records[i : i + 2]), list(records[i : i + 2]))


@dataclass(frozen=True)
class DoublingEngine:
    job: Doubling
    codec: Any = None

    def session(self) -> Any:
        return nullcontext()

    def __call__(self, batch: Sequence[int]) -> list[int]:
        if 3 in batch and len(self.job.deaths.read_text()) < self.job.survives:
            with self.job.deaths.open("a") as file:
                file.write("x")
            os._exit(9)
        return [2 * n for n in batch]


def test_the_batch_of_a_worker_that_dies_is_done_again(tmp_path: Path) -> None:
    (tmp_path / "deaths").touch()
    job = Doubling(tmp_path / "deaths", survives=2)
    finished = run_job(job, Windows(iter(range(20)), 6), workers=2)
    assert list(in_line_order((f.numbers, f.results) for f in finished)) == list(range(0, 40, 2))
    assert (tmp_path / "deaths").read_text() == "xx"


def test_lines_that_kill_three_workers_are_named(tmp_path: Path) -> None:
    (tmp_path / "deaths").touch()
    job = Doubling(tmp_path / "deaths", survives=99)
    with pytest.raises(NmtError, match="3 worker processes died on lines 3, 4, perhaps because memory ran out"):
        list(run_job(job, Windows(iter(range(20)), 6), workers=2))
    assert (tmp_path / "deaths").read_text() == "xxx"


def test_workers_do_not_change_translations(trained: Path, source: Path) -> None:
    command = ["generate", trained / "run" / "best.pt", *OPTIONS]
    expected = run(*command, stdin=source.read_bytes()).stdout
    assert run(*command, "--workers=2", stdin=source.read_bytes()).stdout == expected
