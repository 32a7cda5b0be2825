"""Long and slow translation jobs: lines that arrive one by one, interrupted jobs, and workers that die."""

import errno
import gzip
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints import CONFIG, small_codec
from commands import failed, needs_forks, run
from conftest import invented_pairs
from hypothesis import given
from hypothesis import strategies as st

from nmt.checkpoint import Checkpoint, new_model, save_checkpoint
from nmt.config import JobConfig
from nmt.console import Progress
from nmt.decoding.output import JobOutput
from nmt.errors import Interrupted, NmtError
from nmt.jobs.folder import JobFolder, job_folder
from nmt.jobs.manifest import Preparation
from nmt.jobs.plan import File, Plan, Reader, Shard, make_plan
from nmt.jobs.results import Result
from nmt.jobs.work import Batch, Finished, result_of_lines
from nmt.processes.origins import CAN_FORK
from nmt.text.corpus import read_rows
from nmt.text.windows import windows_of

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
# Small batches, so that a job has many.
OPTIONS = ["--batch-tokens=64", "--max-length-offset=3", "--precision=fp32", "--device=cpu"]


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

    windows = windows_of([__file__, pipe], records(), 4)
    taken = windows.take(wait=True)
    while taken and taken.first_number + len(taken.records) < 6:
        taken = windows.take(wait=False)
    assert windows.take(wait=False) == (6, [])
    release.append(1)
    assert windows.take(wait=True) == (6, [5])
    for _ in range(2):
        with pytest.raises(NmtError, match="the input is bad"):
            windows.take(wait=True)


# Jobs that are interrupted


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.en"
    path.write_text("".join(f"{source}\n" for source, _ in invented_pairs(60, seed=7)) + "\n")
    return path


def finished_shards(kept: Path) -> int:
    try:
        return sum(path.name.isdecimal() for path in (kept / "shards").iterdir())
    except FileNotFoundError:
        return 0


@pytest.mark.parametrize("command", ["generate", "rescore"])
@pytest.mark.parametrize("workers", [1, 2])
def test_an_interrupted_job_resumes_with_the_same_output(
    trained: Path, source: Path, tmp_path: Path, command: str, workers: int
) -> None:
    arguments = [command, trained / "run" / "best.pt", "--output", tmp_path / "out", "--device=cpu", "--shard-lines=3"]
    if command == "generate":
        arguments += ["--input", source, *OPTIONS]
    else:
        arguments += ["--source", source, "--target", source, "--batch-tokens=64"]
    run(*arguments)
    expected = (tmp_path / "out").read_bytes()
    (tmp_path / "out").unlink()
    kept = tmp_path / "out.unfinished"
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        before = finished_shards(kept)
        process = start(*arguments, f"--workers={workers}")
        while process.poll() is None and finished_shards(kept) <= before:
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
    """Returns a command whose job was interrupted after its first shard."""
    command = ["generate", trained / "run" / "best.pt", "--input", source, "--output", tmp_path / "out", *OPTIONS]
    command.append("--shard-lines=10")
    interrupt_after(1, command)
    return command


def interrupt_after(shards: int, command: Sequence[str | Path]) -> None:
    """Runs a command whose job gets SIGTERM after so many shards."""

    def mark_and_stop(folder: JobFolder, shard: Shard) -> None:
        mark(folder, shard)
        if folder.rows_done >= 10 * shards:
            raise SystemExit(128 + signal.SIGTERM)

    mark = JobFolder.mark
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JobFolder, "mark", mark_and_stop)
        said = run(*command, code=75).stderr
    assert f"stopped after {10 * shards} lines, which are kept in" in said
    assert said.count("start the same command again to resume") == 1


@pytest.mark.parametrize("change, message", [
    (["--beam=2"], r"whose --beam is 4, but now it is 2"),
    (["--output-format=jsonl"], r"whose --output-format is text, but now it is jsonl"),
    (["--prefixes={source}"], r"whose --prefixes is not given, but now it is SHA-256"),
    (["--input={other}"], r"whose --input is SHA-256 \w+…, but now it is not given"),
    (["{average}"], r"whose checkpoint 2 is not given"),
    (["--shard-lines=5"], r"whose --shard-lines is 10, but now it is 5"),
])  # fmt: skip
def test_a_changed_job_is_not_resumed(
    interrupted: list[str | Path], trained: Path, source: Path, tmp_path: Path, change: list[str], message: str
) -> None:
    (tmp_path / "other").write_text("Ba.\n")
    paths = {"source": source, "other": tmp_path / "other", "average": trained / "run" / "average.pt"}
    said = failed(*interrupted, *(flag.format(**paths) for flag in change))
    assert "out.unfinished belongs to an unfinished job" in said
    assert re.search(message, said), said


def test_a_job_whose_input_was_edited_is_not_resumed_but_a_copy_is(interrupted: list[str | Path], source: Path) -> None:
    whole = source.read_bytes()
    source.write_bytes(whole.replace(b"\n", b" Ba.\n", 1))
    assert re.search(r"whose --input is SHA-256 \w+…, but now it is SHA-256", failed(*interrupted))
    source.write_bytes(whole)
    os.utime(source, (0, 0))
    run(*interrupted)


def test_a_faster_batch_size_may_be_given_to_a_job_that_goes_on(interrupted: list[str | Path]) -> None:
    run(*interrupted, "--batch-tokens=128")


@pytest.mark.parametrize("damage", ["cut", "changed", "header"])
def test_a_damaged_shard_is_made_anew(interrupted: list[str | Path], tmp_path: Path, damage: str) -> None:
    shard = tmp_path / "out.unfinished" / "shards" / "00000000"
    whole = shard.read_bytes()
    if damage == "cut":
        shard.write_bytes(whole[:-5])
    elif damage == "changed":
        shard.write_bytes(whole[:-5] + b"12345")
        said = failed(*interrupted)
        assert "00000000 is damaged (its SHA-256 is another one) and was removed; the same command, without" in said
    else:
        shard.write_bytes(b"{" + whole)
    run(*interrupted)
    assert len((tmp_path / "out").read_bytes().split(b"\n")) == 62


def test_a_full_disk_in_the_end_keeps_the_shards(
    interrupted: list[str | Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("nmt.files._sync_folder", full)
        said = failed(*interrupted)
    assert "/out cannot be written (No space left on device); correct that and start the same command again" in said
    assert finished_shards(tmp_path / "out.unfinished") == 7
    run(*interrupted)
    assert (tmp_path / "out").read_bytes() == run(*interrupted[:4], *OPTIONS).stdout


@pytest.mark.parametrize("name", ["manifest.json", "offsets.npy"])
def test_a_damaged_description_of_a_job_is_an_error(interrupted: list[str | Path], tmp_path: Path, name: str) -> None:
    path = tmp_path / "out.unfinished" / name
    path.write_bytes(path.read_bytes()[:-9])
    said = failed(*interrupted)
    assert f"{name} is damaged" in said
    assert said.endswith("out.unfinished and start again")


def test_a_folder_that_no_job_made_is_left_alone(trained: Path, source: Path, tmp_path: Path) -> None:
    mine = tmp_path / "out.unfinished" / "data" / "thesis.tex"
    mine.parent.mkdir(parents=True)
    mine.write_text("years of work")
    command = ["generate", trained / "run" / "best.pt", "--input", source, "--output", tmp_path / "out", *OPTIONS]
    assert "out.unfinished was not made by this command; move it elsewhere" in failed(*command)
    assert mine.read_text() == "years of work"
    mine.parent.rename(mine.parent.parent / "mine")
    assert "out.unfinished/mine was not made by this command; move it elsewhere" in failed(*command)


def test_names_that_no_shard_has_are_ignored_and_kept(interrupted: list[str | Path], tmp_path: Path) -> None:
    shards = tmp_path / "out.unfinished" / "shards"
    (shards / "99999999").write_text("x")
    (shards / "notes.txt").write_text("mine")
    for _ in range(2):  # what is left does not keep a later job out
        run(*interrupted)
        assert [path.name for path in shards.iterdir()] == ["notes.txt"]


def test_a_result_of_another_job_is_made_anew(interrupted: list[str | Path], tmp_path: Path) -> None:
    """A worker of an earlier job that nobody ended may write a result late."""
    other = [tmp_path / "other" if argument == tmp_path / "out" else argument for argument in interrupted]
    interrupt_after(1, [*other, "--beam=1"])
    late = tmp_path / "out.unfinished" / "shards" / "00000000"
    late.write_bytes((tmp_path / "other.unfinished" / "shards" / "00000000").read_bytes())
    run(*interrupted)
    assert (tmp_path / "out").read_bytes() == run(*interrupted[:4], *OPTIONS).stdout


def test_merging_too_early_keeps_what_was_prepared(trained: Path, source: Path, tmp_path: Path) -> None:
    command = ["generate", trained / "run" / "best.pt", "--input", source, "--output", tmp_path / "out", *OPTIONS]
    run(*command, "--shard-lines=10", "--shard=9/9")  # there are 7 shards
    assert "7 of the 7 shards of" in failed(*command, "--shard-lines=10", "--merge")
    assert (tmp_path / "out.unfinished" / "manifest.json").exists()


def test_a_changed_offset_is_damage(interrupted: list[str | Path], tmp_path: Path) -> None:
    path = tmp_path / "out.unfinished" / "offsets.npy"
    offsets = np.load(path)
    np.save(path, offsets + (offsets > 0))
    assert "offsets.npy is damaged (its SHA-256 is another one); delete" in failed(*interrupted)


def test_a_job_goes_on_with_an_input_that_was_renamed(
    interrupted: list[str | Path], source: Path, tmp_path: Path
) -> None:
    expected = run(*interrupted[:4], *OPTIONS).stdout
    (tmp_path / "renamed").write_bytes(source.read_bytes())
    source.write_bytes(b"".join(reversed(source.read_bytes().splitlines(keepends=True))))
    renamed = [tmp_path / "renamed" if argument == source else argument for argument in interrupted]
    run(*renamed)
    assert (tmp_path / "out").read_bytes() == expected


def test_an_input_that_is_edited_during_the_job_is_an_error(
    interrupted: list[str | Path], source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = source.read_bytes()

    def edit(folder: JobFolder, shard: Shard, result: Result) -> None:
        source.write_bytes(whole.upper() * 2)
        add(folder, shard, result)

    add = JobFolder.add
    with monkeypatch.context() as patch:
        patch.setattr(JobFolder, "add", edit)
        assert "source.en has changed since the job began; restore it and start the same command" in failed(
            *interrupted
        )
    source.write_bytes(whole)
    run(*interrupted)


@pytest.mark.parametrize("step", ["remove_results", "remove_partial_files"])
def test_a_signal_after_the_output_is_complete_changes_nothing(
    interrupted: list[str | Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def stop_once(_: Path) -> None:
        monkeypatch.undo()
        raise SystemExit(143)

    monkeypatch.setattr(f"nmt.jobs.folder.{step}", stop_once)
    run(*interrupted)
    assert (tmp_path / "out").exists()
    assert not (tmp_path / "out.unfinished").exists()


def preparation(source: Path, shard_rows: int = 10) -> Preparation:
    return Preparation(segments=[[str(source)]], columns=["--input"], shard_rows=shard_rows, settings={"a": (1, 2)})


def test_two_processes_do_not_write_one_output(source: Path, tmp_path: Path) -> None:
    dest = str(tmp_path / "out")
    with (
        job_folder(dest, "--output", preparation(source), JobConfig()) as folder,
        pytest.raises(NmtError, match="is in use by another process"),
    ):
        folder.add(folder.plan[0], Result(b"", {}))
        with job_folder(dest, "--output", preparation(source), JobConfig()):
            pass
    assert (tmp_path / "out.unfinished").exists()


def test_a_job_that_fails_before_a_shard_is_finished_leaves_nothing(source: Path, tmp_path: Path) -> None:
    with (
        pytest.raises(NmtError, match="bad"),
        job_folder(str(tmp_path / "out"), "--output", preparation(source), JobConfig()),
    ):
        raise NmtError("bad")
    assert {path.name for path in tmp_path.iterdir()} == {"source.en"}


@given(st.data())
def test_finished_shards_survive_any_death(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Whatever order shards finish in and wherever a file is cut, resuming gives all shards once and in order."""
    folder = tmp_path_factory.mktemp("job")
    source = folder / "source"
    source.write_text("x\n" * data.draw(st.integers(1, 30)))
    dest, begin = str(folder / "out"), preparation(source, data.draw(st.integers(1, 8)))
    with pytest.raises(Interrupted), job_folder(dest, "--output", begin, JobConfig()) as job:
        plan = job.plan
        order = data.draw(st.permutations(range(len(plan))))
        for number in order[: data.draw(st.integers(1, len(order)))]:
            job.add(plan[number], Result(f"shard {number} ä\n".encode(), {"n": number}))
        raise SystemExit(143)
    cut = folder / "out.unfinished" / "shards" / f"{order[0]:08}"
    os.truncate(cut, data.draw(st.integers(0, cut.stat().st_size)))
    with job_folder(dest, "--output", begin, JobConfig()) as job:
        for shard in job.todo():
            job.add(shard, Result(f"shard {shard.number} ä\n".encode(), {"n": shard.number}))
        found = list(job.results())
        assert [shard.number for shard, _ in found] == [result.summary["n"] for _, result in found]
        assert [result.content.decode() for _, result in found] == [f"shard {i} ä\n" for i in range(len(plan))]
        job.finish()
    assert not (folder / "out.unfinished").exists()


# Parts of a job in several processes


def test_parts_of_a_job_are_merged(trained: Path, source: Path, tmp_path: Path) -> None:
    command = ["generate", trained / "run" / "best.pt", "--input", source, *OPTIONS]
    run(*command, "--output", tmp_path / "whole")
    command += ["--output", tmp_path / "out", "--shard-lines=10"]
    assert "out.unfinished holds no job to merge; do its parts first, with --shard 1/N to N/N" in failed(
        *command, "--merge"
    )
    said = run(*command, "--shard=1/2").stderr
    assert "1/2: 4 of 7 shards to do" in said
    assert not (tmp_path / "out").exists()
    said = failed(*command, "--merge")
    assert "3 of the 7 shards of" in said
    assert "are missing (lines 11-20, lines 31-40, lines 51-60); run the --shard that failed again" in said
    assert "whose --beam is 4, but now it is 2" in failed(*command, "--shard=2/2", "--beam=2")
    run(*command, "--shard=2/2")
    assert "0 of 7 shards to do" in run(*command, "--shard=2/2").stderr
    run(*command, "--merge")
    assert (tmp_path / "out").read_bytes() == (tmp_path / "whole").read_bytes()
    assert not (tmp_path / "out.unfinished").exists()


def test_parts_of_a_job_may_begin_at_the_same_time(trained: Path, source: Path, tmp_path: Path) -> None:
    command = ["rescore", trained / "run" / "best.pt", "--source", source, "--target", source, "--shard-lines=10"]
    command += ["--output", tmp_path / "out", "--device=cpu"]
    processes = [start(*command, f"--shard={i}/3") for i in (1, 2, 3)]
    assert [process.wait(120) for process in processes] == [0, 0, 0]
    merged = run(*command, "--merge").stderr
    whole = run(*command[:-3], f"--output={tmp_path / 'whole'}", "--device=cpu").stderr
    assert (tmp_path / "out").read_bytes() == (tmp_path / "whole").read_bytes()
    assert merged.strip().split("\n")[-1] == whole.strip().split("\n")[-1]


@pytest.mark.parametrize("value", ["0/2", "3/2", "1", "1/2/3", "a/b", "-1/2", "²/3", ""])
def test_a_wrong_part_is_refused(trained: Path, value: str) -> None:
    said = failed("generate", trained / "run" / "best.pt", f"--shard={value}")
    assert f"--shard must be I/N with I from 1 to N, such as 3/8, but is {value!r}" in said


@pytest.mark.parametrize("flag", ["--shard=1/2", "--merge", "--cluster=auto", "--shard-lines=5"])
def test_parts_need_files(trained: Path, flag: str) -> None:
    said = failed("generate", trained / "run" / "best.pt", flag)
    assert f"{flag.split('=')[0]} needs files as input and as --output; give the names of files" in said


# Plans


@given(st.data())
def test_shards_hold_all_rows_in_order(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("plan")
    segments, expected = [], []
    lines = st.lists(st.text("äb \r,", max_size=4), max_size=12)
    for number in range(data.draw(st.integers(1, 3))):
        column = data.draw(lines)
        paths = []
        for side in "ab":
            text = "".join(f"{line}{side}\n" for line in column)
            text = text[:-1] if data.draw(st.booleans()) else text
            is_compressed = data.draw(st.booleans())
            path = folder / f"{number}{side}{'.gz' * is_compressed}"
            path.write_bytes(gzip.compress(text.encode()) if is_compressed else text.encode())
            paths.append(str(path))
        segments.append(paths)
        expected += list(read_rows(*paths))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nmt.jobs.plan._BLOCK", data.draw(st.sampled_from([1, 3, 100])))
        plan = make_plan(segments, data.draw(st.integers(1, 5)), most=data.draw(st.sampled_from([1, 10])))
    reader = Reader(segments)
    assert [row for number in range(len(plan)) for row in reader.read(plan[number])] == expected
    for number in data.draw(st.permutations(range(len(plan)))):
        shard = plan[number]
        assert reader.read(shard) == expected[shard.first - 1 : shard.first - 1 + shard.rows]
    assert plan.rows == len(expected)


def test_an_input_that_shrinks_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_text("a\n" * 10)
    plan = make_plan([[str(path)]], 5)
    path.write_text("a\n" * 3)
    with pytest.raises(NmtError, match="input has changed while it was read; start the same command again"):
        Reader(plan.paths).read(plan[0])


def test_a_billion_lines_need_little_memory() -> None:
    rows, files = 10**9, 10_000
    plan = Plan(((File("input", rows, (0, 0), ""),),), rows // files, np.zeros((files, 1), np.int64))
    assert sum(plan[number].rows for number in range(len(plan))) == rows
    assert plan[files - 1].first == rows - rows // files + 1


def test_several_inputs_are_translated_one_after_the_other(trained: Path, source: Path, tmp_path: Path) -> None:
    lines = source.read_bytes().split(b"\n", 7)
    (tmp_path / "a").write_bytes(b"\n".join(lines[:7]) + b"\n")
    (tmp_path / "b.gz").write_bytes(gzip.compress(lines[7]))
    command = ["generate", trained / "run" / "best.pt", *OPTIONS]
    inputs = ["--input", tmp_path / "a", "--input", tmp_path / "b.gz"]
    expected = run(*command, "--input", source).stdout
    assert run(*command, *inputs).stdout == expected
    run(*command, *inputs, "--output", tmp_path / "out", "--shard-lines=4")
    assert (tmp_path / "out").read_bytes() == expected
    assert "--prefixes and --constraints go with one --input, but 2 were given" in failed(
        *command, *inputs, "--prefixes", source
    )


# Workers that die


@dataclass(frozen=True)
class Doubling:
    """A job that doubles numbers. Number 3 kills its worker until the file `deaths` has `survives` letters."""

    deaths: Path
    survives: int
    models: tuple[str, ...] = ()
    device: str = "cpu"
    shares_memory: bool = CAN_FORK

    def with_models(self, paths: tuple[str, ...]) -> "Doubling":
        return replace(self, models=paths)

    def load(self, _: int) -> "DoublingEngine":
        return DoublingEngine(self)

    def codec(self) -> Any:
        return None

    def record(self, row: tuple[str, ...], _: Any) -> int:
        return int(row[0])

    def batched(self, _: Any, records: Sequence[int], first_number: int) -> Iterator[Batch]:
        for i in range(0, len(records), 2):
            pair = records[i : i + 2]
            yield Batch(range(first_number + i, first_number + i + len(pair)), pair, pair)

    def output(self, _: int, result: int) -> tuple[str, dict[str, float]]:
        return f"{result}\n", {"sum": result}

    def result(self, finished: Sequence[Finished]) -> Result:
        return result_of_lines(self, finished)


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


def doubled(job: Doubling, folder: Path, *before: Path) -> None:
    """Runs the job on other files, and on the numbers from 1 to 20, in shards of 6."""
    (folder / "numbers").write_text("".join(f"{n}\n" for n in range(1, 21)))
    with Progress("double", None, "number") as progress:
        JobOutput(
            job=job,
            segments=[[str(path)] for path in (*before, folder / "numbers")],
            columns=["--input"],
            output=str(folder / "out"),
            settings={},
            shard_rows=6,
            options=JobConfig(),
            workers=2,
            progress=progress,
        ).write()


@pytest.mark.parametrize("shares_memory", [False, pytest.param(True, marks=needs_forks)])
def test_the_batch_of_a_worker_that_dies_is_done_again(shares_memory: bool, tmp_path: Path) -> None:
    (tmp_path / "deaths").touch()
    doubled(Doubling(tmp_path / "deaths", survives=2, shares_memory=shares_memory), tmp_path)
    assert (tmp_path / "out").read_text() == "".join(f"{2 * n}\n" for n in range(1, 21))
    assert (tmp_path / "deaths").read_text() == "xx"


def test_lines_that_kill_three_workers_are_named_and_the_rest_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "deaths").touch()
    job = Doubling(tmp_path / "deaths", survives=3)
    with pytest.raises(NmtError) as found:
        doubled(job, tmp_path)
    said = str(found.value)
    assert said.startswith("1 of 4 shards failed (lines 1-6: 3 worker processes died on lines 3, 4, perhaps because")
    assert said.endswith("out.unfinished, and the same command does only these again")
    assert "warning: lines 1-6 failed" in capsys.readouterr().err
    assert finished_shards(tmp_path / "out.unfinished") == 3
    doubled(job, tmp_path)
    assert (tmp_path / "out").read_text() == "".join(f"{2 * n}\n" for n in range(1, 21))


def test_lines_that_kill_workers_are_those_of_their_file(tmp_path: Path) -> None:
    (tmp_path / "deaths").touch()
    (tmp_path / "before").write_text("10\n" * 7)
    numbers = tmp_path / "numbers"
    with pytest.raises(NmtError, match=rf"\(lines 1-6 of {numbers}: 3 worker processes died on lines 3, 4,"):
        doubled(Doubling(tmp_path / "deaths", survives=3), tmp_path, tmp_path / "before")


def test_shards_of_several_files_are_named_with_their_file(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("x\n" * 5)
    plan = make_plan([[str(tmp_path / "a")], [str(tmp_path / "b")]], 3)
    assert [plan.named(plan[i]) for i in range(4)] == [
        f"lines {lines} of {tmp_path / name}" for name in ("a", "b") for lines in ("1-3", "4-5")
    ]


def test_workers_do_not_change_translations(trained: Path, source: Path) -> None:
    command = ["generate", trained / "run" / "best.pt", *OPTIONS]
    expected = run(*command, stdin=source.read_bytes()).stdout
    assert run(*command, "--workers=2", stdin=source.read_bytes()).stdout == expected


def test_workers_may_have_several_threads(tmp_path: Path) -> None:
    """A fork of a process whose OpenMP has started threads would wait for them forever."""
    torch.manual_seed(0)
    config = replace(CONFIG, d_model=512)
    save_checkpoint(
        Checkpoint(config, small_codec(), new_model(config, small_codec()).state_dict(), {}), tmp_path / "model.pt"
    )
    (tmp_path / "in").write_text("some words\n" * 3)
    command = ["generate", tmp_path / "model.pt", "--input", tmp_path / "in", "--workers=2", "--max-length-offset=0"]
    done = subprocess.run(
        [sys.executable, "-m", "nmt", *command],
        env={**os.environ, "OMP_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 3
