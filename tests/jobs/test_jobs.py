"""Long and slow translation jobs: lines that arrive one by one, interrupted jobs, and workers that die."""

import json
import os
import re
import select
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import forks
import numpy as np
import pytest
import tasks
import torch
from checkpoints import CONFIG, saved, small_checkpoint
from commands import failed, run, write
from conftest import invented_pairs
from forks import At
from hypothesis import given, settings
from hypothesis import strategies as st
from tasks import Doubling, row_as_number

from nmt.config import JobConfig
from nmt.console import Progress
from nmt.errors import NmtError, StoppedError
from nmt.jobs.run import JobFolder, Run, job_folder
from nmt.jobs.source import ArrivingChunks, Files, make_plan
from nmt.jobs.stream import Execution, Result
from nmt.text.corpus import read_rows

Words = list[str | Path]  # of a command
OPTIONS = ["--batch-tokens=64", "--precision=fp32", "--device=cpu"]  # small batches, so that a job has many
GENERATE = ["--max-length-offset=3", *OPTIONS]


# Lines that arrive one by one


@pytest.mark.parametrize(("workers", "end", "code"), [(1, "close", 0), (1, "signal", 130), (2, "signal", 130)])
def test_a_line_is_answered_at_once_until_a_signal_comes(tmp_path: Path, workers: int, end: str, code: int) -> None:
    """A fork of a process whose OpenMP has started threads would wait for them forever.

    Written as two arguments, --workers makes `forks` start the fork server as a new program.
    """
    model = saved(small_checkpoint(0, replace(CONFIG, d_model=512)), tmp_path / "model.safetensors")
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    threads = {"before": partial(torch.set_num_threads, 2), "env": {"OMP_NUM_THREADS": "2"}}
    words = ["--workers", str(workers), "--max-length-offset=0"]
    command = forks.start("generate", model, *words, **threads, **pipes)
    for _ in range(2):
        command.stdin.write(b"some words\n")
        assert select.select([command.stdout], [], [], 120)[0], "no answer"
        assert command.stdout.readline().endswith(b"\n")
    if end == "close":
        command.stdin.close()
    else:
        command.send(signal.SIGINT)
    assert "Fatal" not in tasks.read_to_end(command.stderr)  # all processes have ended
    command.wait(code)


def test_a_chunk_of_a_pipe_holds_what_has_arrived() -> None:
    have_arrived, release = threading.Event(), threading.Event()

    def units() -> Iterator[int]:
        yield from range(5)
        have_arrived.set()
        assert release.wait(120)
        yield 5
        raise NmtError("the input is bad")

    chunks = ArrivingChunks(units(), 4)
    assert have_arrived.wait(120)
    assert chunks.take(wait=True) == (1, [0, 1, 2, 3], 0)
    assert chunks.take(wait=False) == (5, [4], 0)
    assert chunks.take(wait=False) == (6, [], 0)
    release.set()
    assert chunks.take(wait=True) == (6, [5], 0)
    for _ in range(2):
        with pytest.raises(NmtError, match="the input is bad"):
            chunks.take(wait=True)


# Jobs that are interrupted


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.en"
    path.write_text("".join(f"{source}\n" for source, _ in invented_pairs(60, seed=7)) + "\n")
    return path


def finished_shards(kept: Path) -> int:
    return sum(path.name.isdecimal() for path in kept.glob("shards/*"))


@pytest.fixture
def command(trained: Path, source: Path, tmp_path: Path) -> Words:
    """Returns a command with 7 shards, which writes a different line for each line of the source."""
    files = [trained / "run" / "best.safetensors", "--source", source, "--target", source]
    return ["rescore", *files, *OPTIONS, "--shard-lines=10", "--output", tmp_path / "out"]


@pytest.fixture
def expected(command: Words, tmp_path: Path) -> bytes:
    """Returns what an undisturbed job writes. Other shards make other batches, which may round differently."""
    run(*command[:-1], tmp_path / "undisturbed")
    return (tmp_path / "undisturbed").read_bytes()


ADD, REPLACE = "nmt.jobs.run.JobFolder.add", "pathlib.Path.replace"


def test_a_job_that_is_killed_anywhere_resumes(command: Words, expected: bytes, tmp_path: Path) -> None:
    kept = tmp_path / "out.unfinished"
    for death, shards in (
        (At(REPLACE, matching="manifest.json"), 0),
        (At(REPLACE, matching="shards/", call=3), 2),
        (At(ADD, call=2, after=True), 4),
        (At("nmt.jobs.run.JobFolder.results"), 7),  # when the output is put together
        (At(REPLACE, matching="/.out.partial"), 7),
    ):
        forks.run(*command, before=death, code=-signal.SIGKILL)
        assert finished_shards(kept) == shards
        assert not (tmp_path / "out").exists()
    forks.run(*command, before=At("nmt.jobs.run._remove_work"), code=-signal.SIGKILL)
    for _ in range(2):  # what has been left does not keep the same command from making the output again
        assert (tmp_path / "out").read_bytes() == expected
        run(*command)
    assert not kept.exists()


@pytest.mark.parametrize(("number", "workers"), [(signal.SIGTERM, 1), (signal.SIGINT, 1), (signal.SIGTERM, 2)])
def test_a_job_that_is_stopped_resumes_with_the_same_output(
    command: Words, expected: bytes, tmp_path: Path, number: signal.Signals, workers: int
) -> None:
    stop = At(ADD, call=2, after=True, do=number)
    process = forks.start(*command, f"--workers={workers}", before=stop, stderr=subprocess.PIPE)
    said = tasks.read_to_end(process.stderr)  # the workers have ended
    process.wait(75)
    kept = tmp_path / "out.unfinished"
    assert f"stopped after 20 lines, which are kept in {kept}; start the same command again to resume\n" in said
    assert "resuming after 20 of 61" in run(*command).stderr
    assert (tmp_path / "out").read_bytes() == expected
    assert not kept.exists()


@pytest.fixture
def interrupted(command: Words) -> Words:
    """Returns a command whose job was interrupted after its first shard."""
    return interrupt(*command)


def interrupt(*command: str | Path) -> Words:
    """Runs a command whose job gets SIGTERM after one shard. Returns the command."""
    forks.run(*command, before=At(ADD, after=True, do=signal.SIGTERM), code=75)
    return list(command)


@pytest.mark.parametrize("change, message", [
    (["--beam=2"], r"--beam was 4 and is now 2"),
    (["--output-format=jsonl"], r"--output-format was text and is now jsonl"),
    (["--prefixes={source}"], r"--prefixes was not given"),
    (["--input={other}"], r"--input was given"),
    (["{average}"], r"checkpoint 2 was not given"),
    (["--shard-lines=5"], r"--shard-lines was 10 and is now 5"),
    (["--sample"], r"--sample was off and is now on"),
])  # fmt: skip
def test_a_changed_job_is_not_resumed(
    trained: Path, source: Path, tmp_path: Path, change: list[str], message: str
) -> None:
    options = ["--input", source, *GENERATE, "--shard-lines=10", "--output", tmp_path / "out"]
    command = interrupt("generate", trained / "run" / "best.safetensors", *options)
    (tmp_path / "other").write_text("Ba.\n")
    paths = {"source": source, "other": tmp_path / "other", "average": trained / "run" / "average.safetensors"}
    said = failed(*command, *(flag.format(**paths) for flag in change))
    assert "out.unfinished belongs to an unfinished job" in said
    assert re.search(message, said), said


def test_a_job_whose_user_module_was_edited_is_not_resumed(trained: Path, source: Path, tmp_path: Path) -> None:
    module = tmp_path / "mine.py"
    module.write_text("")
    options = ["--input", source, *GENERATE, "--shard-lines=10", "--user-module", module, "--output", tmp_path / "out"]
    command = interrupt("generate", trained / "run" / "best.safetensors", *options)
    module.write_text("x = 1\n")
    assert re.search(r"--user-module was SHA-256 \w+… and is now SHA-256", failed(*command))


def test_a_job_whose_input_was_edited_is_not_resumed_but_a_copy_of_the_input_is(
    interrupted: Words, expected: bytes, source: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copy(source, tmp_path / "copy"))
    source.write_bytes(source.read_bytes().replace(b"\n", b" Ba.\n", 1))
    assert re.search(r"--source was SHA-256 \w+… and is now SHA-256", failed(*interrupted))
    run(*[copy if argument == source else argument for argument in interrupted])
    assert (tmp_path / "out").read_bytes() == expected


@pytest.mark.parametrize("damage", [
    lambda whole: whole[:-5],
    lambda whole: b"{" + whole,
    lambda whole: whole[:-5] + b"12345",
])  # fmt: skip
def test_a_damaged_shard_is_made_anew(
    interrupted: Words, expected: bytes, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    shard = tmp_path / "out.unfinished" / "shards" / "00000000"
    shard.write_bytes(damage(shard.read_bytes()))
    assert re.search(r"00000000 is damaged \(.*\) and was removed; the same command", failed(*interrupted))
    run(*interrupted)
    assert (tmp_path / "out").read_bytes() == expected


def test_a_full_disk_in_the_end_keeps_the_shards(interrupted: Words, expected: bytes, tmp_path: Path) -> None:
    run(*interrupted, "--shard=1/1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nmt.files._sync", Mock(side_effect=OSError(28, "No space left on device")))
        said = failed(*interrupted)
    assert "/out cannot be written (No space left on device); correct that and start the same command again" in said
    assert finished_shards(tmp_path / "out.unfinished") == 7
    run(*interrupted)
    assert (tmp_path / "out").read_bytes() == expected


@pytest.mark.parametrize("old, new", [(b'"offsets": [[0', b'"offsets": [[1'), (b"}", b""), (b"{", b"[")])
def test_a_damaged_description_of_a_job_is_an_error(interrupted: Words, tmp_path: Path, old: bytes, new: bytes) -> None:
    path = tmp_path / "out.unfinished" / "manifest.json"
    path.write_bytes(path.read_bytes().replace(old, new, 1))
    said = failed(*interrupted)
    assert "manifest.json is damaged" in said
    assert said.endswith("out.unfinished and start again")


def test_a_folder_that_no_job_made_is_left_alone(command: Words, tmp_path: Path) -> None:
    mine = tmp_path / "out.unfinished" / "data" / "thesis.tex"
    mine.parent.mkdir(parents=True)
    mine.write_text("years of work")
    assert "out.unfinished was not made by this command; move it elsewhere" in failed(*command)
    assert mine.read_text() == "years of work"
    mine.parent.rename(mine.parent.parent / "mine")
    assert "out.unfinished/mine was not made by this command; move it elsewhere" in failed(*command)


def test_names_that_no_shard_has_are_ignored_and_kept(interrupted: Words, tmp_path: Path) -> None:
    shards = tmp_path / "out.unfinished" / "shards"
    (shards / "99999999").write_text("x")
    (shards / "notes.txt").write_text("mine")
    for _ in range(2):  # what is left does not keep a later job out
        run(*interrupted)
        assert [path.name for path in shards.iterdir()] == ["notes.txt"]


def test_an_input_that_is_edited_during_the_job_is_an_error(interrupted: Words, source: Path) -> None:
    whole = source.read_bytes()
    edit = At(ADD, do=partial(source.write_bytes, whole.upper() * 2))
    said = forks.run(*interrupted, before=edit, code=1).errors
    assert "source.en has changed since the job began; restore it and start the same command" in said
    source.write_bytes(whole)
    run(*interrupted, "--batch-tokens=128")  # the speed may change


def test_a_result_of_another_job_is_made_anew(interrupted: Words, expected: bytes, tmp_path: Path) -> None:
    """A worker of an earlier job that nobody ended may write a result late."""
    other = [tmp_path / "other" if argument == tmp_path / "out" else argument for argument in interrupted]
    interrupt(*other, "--normalize")
    late = tmp_path / "out.unfinished" / "shards" / "00000000"
    late.write_bytes((tmp_path / "other.unfinished" / "shards" / "00000000").read_bytes())
    assert "00000000 is damaged (it belongs to another job) and was removed" in failed(*interrupted)
    run(*interrupted)
    assert (tmp_path / "out").read_bytes() == expected


@pytest.mark.parametrize("step", ["_remove_work", "files.remove_partial_files"])
def test_a_signal_after_the_output_is_complete_changes_nothing(interrupted: Words, tmp_path: Path, step: str) -> None:
    said = forks.run(*interrupted, before=At(f"nmt.jobs.run.{step}", do=signal.SIGTERM)).errors
    assert "rescore: 51 lines in" in said
    assert "61 lines, " in said
    assert (tmp_path / "out").exists()
    assert not (tmp_path / "out.unfinished").exists()


def opened(source: Path, dest: Path, shard_rows: int = 10) -> AbstractContextManager[JobFolder]:
    files = Files([[str(source)]], ["--input"])
    return job_folder(str(dest), files, JobConfig(), shard_rows, {"a": (1, 2)})


def test_two_processes_do_not_write_one_output(source: Path, tmp_path: Path) -> None:
    with opened(source, tmp_path / "out") as folder:
        folder.add(folder.plan.shards[0], Result([]))
        with pytest.raises(NmtError, match="is in use by another process"), opened(source, tmp_path / "out"):
            pass
    assert (tmp_path / "out.unfinished").exists()


@settings(max_examples=40)
@given(st.data())
def test_finished_shards_survive_any_death(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Whatever order shards finish in, resuming gives all shards once and in order."""
    folder = tmp_path_factory.mktemp("job")
    source = folder / "source"
    source.write_text("x\n" * data.draw(st.integers(1, 30)))
    dest, shard_rows = folder / "out", data.draw(st.integers(1, 8))
    with pytest.raises(StoppedError), opened(source, dest, shard_rows) as job:
        results = [Result([f"shard {i} ä\n", {"n": i}], {"x": np.arange(i)}) for i in range(len(job.plan.shards))]
        order = data.draw(st.permutations(range(len(results))))
        for index in order[: data.draw(st.integers(1, len(order)))]:
            job.add(job.plan.shards[index], results[index])
        raise SystemExit(143)
    with opened(source, dest, shard_rows) as job:
        for shard in job.todo():
            job.add(shard, results[shard.number])
        for (_, kept), expected in zip(job.results(), results, strict=True):
            assert kept.values == expected.values
            assert np.array_equal(kept.arrays["x"], expected.arrays["x"])
        job.finish()
    assert not (folder / "out.unfinished").exists()


# Parts of a job in several processes


def test_parts_of_a_job_are_merged(command: Words, expected: bytes, tmp_path: Path) -> None:
    said = failed(*command, "--merge")
    assert "out.unfinished holds no job to merge; do its parts first, with --shard 1/N to N/N" in said
    run(*command, "--shard=9/9")  # there are 7 shards
    assert "7 of the 7 shards of" in failed(*command, "--merge")
    assert "2/2: 3 of 7 shards to do" in run(*command, "--shard=2/2").stderr
    assert not (tmp_path / "out").exists()
    said = failed(*command, "--merge")
    assert "4 of the 7 shards of" in said
    assert "are missing (lines 1-10, lines 21-30, lines 41-50, line 61); run the --shard that failed again" in said
    assert "--shard-lines was 10 and is now 5" in failed(*command, "--shard=1/2", "--shard-lines=5")
    run(*command, "--shard=1/2")
    assert "0 of 7 shards to do" in run(*command, "--shard=1/2").stderr
    run(*command, "--merge")
    assert (tmp_path / "out").read_bytes() == expected
    assert not (tmp_path / "out.unfinished").exists()


def test_parts_are_merged_with_the_shards_that_they_had(
    command: Words, source: Path, expected: bytes, tmp_path: Path
) -> None:
    """Without --shard-lines, and although the file looks changed, which makes a new plan."""
    run(*command, "--shard=1/1")
    os.utime(source, (1, 1))
    run(*(word for word in command if not str(word).startswith("--shard-lines")), "--merge")
    assert (tmp_path / "out").read_bytes() == expected


def rewrite(path: Path, content: bytes, time: int) -> None:
    path.write_bytes(content)
    os.utime(path, ns=(time, time))


def test_what_was_read_of_a_changed_input_is_not_kept(
    interrupted: Words, source: Path, expected: bytes, tmp_path: Path
) -> None:
    whole, time = source.read_bytes(), os.stat(source).st_mtime_ns
    edit = At("nmt.jobs.source.Files.read", do=partial(rewrite, source, whole.upper(), time + 10**9))
    assert "has changed since the job began" in forks.run(*interrupted, before=edit, code=1).errors
    rewrite(source, whole, time)
    run(*interrupted)
    assert (tmp_path / "out").read_bytes() == expected


def test_parts_of_a_job_may_begin_at_the_same_time(command: Words, expected: bytes, tmp_path: Path) -> None:
    """The first part prepares the job, and goes on when the second one has said that it waits for that."""
    reports = tasks.Reports()
    wait = partial(tasks.report_and_wait, reports.port)
    first = forks.start(*command, "--shard=1/2", before=At("nmt.jobs.run._opened", do=wait))
    preparing, _ = reports.next()
    says = At("nmt.console.info", matching="waiting for another process, which prepares", after=True, do=wait)
    second = forks.start(*command, "--shard=2/2", before=says)
    waiting, _ = reports.next()
    preparing.close()
    waiting.close()
    first.wait(0)
    second.wait(0)
    merged = run(*command, "--merge").stderr
    assert (tmp_path / "out").read_bytes() == expected
    assert merged.strip().split("\n")[-1] == run(*command[:-1], tmp_path / "whole").stderr.strip().split("\n")[-1]


@pytest.mark.parametrize("flag, message", [
    *((f"--shard={part}", f"--shard must be I/N with I from 1 to N, such as 3/8, but is {part!r}")
      for part in ("0/2", "3/2", "1", "1/2/3", "a/b", "-1/2", "²/3")),
    *((flag, f"{flag.split('=')[0]} needs files as input and as --output; give the names of files")
      for flag in ("--shard=1/2", "--merge", "--cluster=auto", "--shard-lines=5")),
])  # fmt: skip
def test_wrong_parts_and_parts_without_files_are_refused(trained: Path, flag: str, message: str) -> None:
    assert message in failed("generate", trained / "run" / "best.safetensors", flag)


# Plans


@given(st.data())
def test_shards_hold_all_rows_in_order(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("plan")
    segments, expected = [], []
    lines = st.lists(st.text("äb \r,", max_size=4), max_size=12)
    for index in range(data.draw(st.integers(1, 3))):
        column = data.draw(lines)
        paths = []
        for side in "ab":
            text = "".join(f"{line}{side}\n" for line in column).encode()
            name = f"{index}{side}{data.draw(st.sampled_from(['', '.gz']))}"
            paths.append(str(write(folder / name, text[:-1] if data.draw(st.booleans()) else text)))
        segments.append(paths)
        expected += list(read_rows(*paths))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nmt.jobs.source._BLOCK", data.draw(st.sampled_from([1, 3, 100])))
        most = data.draw(st.sampled_from([1, 10]))
        patch.setattr("nmt.jobs.source.MOST_SHARDS", most)
        plan = make_plan(segments, data.draw(st.integers(1, 5)))
    assert len(plan.shards) <= max(most, len(segments))
    files = Files(segments)
    assert [row for shard in plan.shards for row in files.read(shard)] == expected
    for shard in data.draw(st.permutations(plan.shards)):
        assert files.read(shard) == expected[shard.first - 1 : shard.first - 1 + shard.rows]
    assert plan.rows == len(expected)


def test_an_input_that_shrinks_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_text("a\n" * 10)
    plan = make_plan([[str(path)]], 5)
    path.write_text("a\n" * 3)
    with pytest.raises(NmtError, match="input has changed while it was read; start the same command again"):
        Files(plan.paths).read(plan.shards[0])
    path.write_text("a\n" * 6 + "\udcff\n" + "a\n" * 3, errors="surrogateescape")
    with pytest.raises(NmtError, match="input, line 7"):
        Files(plan.paths).read(plan.shards[1])


def test_several_inputs_are_translated_one_after_the_other(trained: Path, source: Path, tmp_path: Path) -> None:
    lines = source.read_bytes().split(b"\n", 7)
    (tmp_path / "a").write_bytes(b"\n".join(lines[:7]) + b"\n")
    write(tmp_path / "b.gz", lines[7])
    command = ["generate", trained / "run" / "best.safetensors", "--output-format=jsonl", *GENERATE]
    inputs = ["--input", tmp_path / "a", "--input", tmp_path / "b.gz"]
    job = [*command, *inputs, "--output", tmp_path / "out", "--shard-lines=4"]
    forks.run(*job, before=At(REPLACE, matching="shards/", call=4), code=-signal.SIGKILL)
    assert "resuming after 11 of 61" in run(*job).stderr  # the first input has 7 lines
    for output in (run(*command, *inputs).stdout, (tmp_path / "out").read_bytes()):
        records = [json.loads(line) for line in output.splitlines()]
        assert [record["source"] for record in records] == source.read_text().splitlines()
        assert all(record["hypotheses"] for record in records)
    said = failed(*command, *inputs, "--prefixes", source)
    assert "--prefixes and --constraints go with one --input, but 2 were given" in said


# Workers that die


def doubled(job: Doubling, folder: Path, *earlier_files: Path) -> None:
    """Runs the job on other files, and on the numbers from 1 to 20, in shards of 6."""
    job.deaths.touch()
    (folder / "numbers").write_text("".join(f"{n}\n" for n in range(1, 21)))
    files = Files([[str(path)] for path in (*earlier_files, folder / "numbers")], ["--input"], row_as_number)
    execution = Execution(JobConfig(shard_lines=6), 2)
    with Progress("double", None, "number") as progress:
        Run(job, files, str(folder / "out"), {}, execution, progress).write("{}\n".format)


def test_a_missing_input_is_noticed_before_the_first_is_read(source: Path, tmp_path: Path) -> None:
    for other, said in (
        (tmp_path / "missing", "does not exist; check the path"),
        (tmp_path, "is a folder; give files"),
    ):
        out = tmp_path / "out"
        assert (
            failed("generate", "no-model", "--input", source, "--input", other, "--output", out)
            == f"error: {other} {said}"
        )
        assert not out.exists()


def test_the_batch_of_a_worker_that_dies_is_done_again(tmp_path: Path) -> None:
    doubled(Doubling(tmp_path / "deaths", survives=2), tmp_path)
    assert (tmp_path / "out").read_text() == "".join(f"{2 * n}\n" for n in range(1, 21))
    assert (tmp_path / "deaths").read_text() == "xx"


@pytest.mark.parametrize("device, lines, shards", [("cpu", 3003, 1), ("cuda", 3003, 12), ("cuda", 30_000, 59)])
def test_the_workers_of_a_gpu_share_short_inputs(tmp_path: Path, device: str, lines: int, shards: int) -> None:
    (tmp_path / "numbers").write_text(f"{10:099d}\n" * lines)
    execution = Execution(JobConfig(shard="1/1"), 1)  # which keeps the folder of the job
    job, files = (
        Doubling(tmp_path / "deaths", 0, device=device),
        Files([[str(tmp_path / "numbers")]], ["--input"], row_as_number),
    )
    with Progress("double", None, "number") as progress:
        Run(job, files, str(tmp_path / "out"), {}, execution, progress).write("{}\n".format)
    assert finished_shards(tmp_path / "out.unfinished") == shards


@pytest.mark.usefixtures("printing")
def test_lines_that_kill_three_workers_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "before").write_text("10\n" * 7)
    job, lines = Doubling(tmp_path / "deaths", survives=3), f"lines 1-6 of {tmp_path / 'numbers'}"
    with pytest.raises(NmtError) as error:
        doubled(job, tmp_path, tmp_path / "before")
    said = str(error.value)
    assert said.startswith(f"1 of 6 shards failed ({lines}: 3 worker processes died on lines 3, 4, perhaps because")
    assert said.endswith("out.unfinished, and the same command does only these again")
    assert f"warning: {lines} failed" in capsys.readouterr().err
    assert finished_shards(tmp_path / "out.unfinished") == 5
    doubled(job, tmp_path, tmp_path / "before")
    assert (tmp_path / "out").read_text() == "20\n" * 7 + "".join(f"{2 * n}\n" for n in range(1, 21))
