"""Several processes train one model, and nothing is lost when they are stopped."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from commands import records
from conftest import invented_pairs

import nmt

MODEL = [
    "--arch=transformer_tiny", "--d-model=32", "--d-ff=64", "--heads=2", "--d-k=16", "--d-v=16", "--encoder-layers=1",
    "--decoder-layers=1", "--dropout=0.1",
]  # fmt: skip
TRAIN = [
    "--batch-tokens=800", "--batch-groups=2", "--warmup-updates=20", "--valid-updates=20", "--save-updates=10",
    "--log-updates=5", "--precision=fp32", "--device=cpu",
]  # fmt: skip
NMT = [sys.executable, "-m", "nmt"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("distributed")
    for seed, (name, size) in enumerate({"train": 300, "valid": 21}.items()):
        for lang, lines in zip(("en", "de"), zip(*invented_pairs(size, seed), strict=True), strict=True):
            (folder / f"{name}.{lang}").write_text("".join(f"{line}\n" for line in lines))
    options = ["--source-lang=en", "--target-lang=de", f"--train={folder}/train", f"--valid={folder}/valid"]
    subprocess.run(
        [*NMT, "preprocess", *options, f"--dest={folder}/data", "--vocab-size=330", "--workers=1"], check=True
    )
    return folder / "data"


def command(data: Path, run: Path, *extra: str) -> list[str]:
    return [*NMT, "train", str(data), "--save-dir", str(run), *MODEL, *TRAIN, *extra]


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(arguments, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)


def run(*arguments: str, code: int = 0) -> str:
    done = subprocess.run(arguments, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True, timeout=120)
    assert done.returncode == code, done.stderr
    return done.stderr


def weights(run_folder: Path, update: int) -> dict[str, torch.Tensor]:
    return nmt.load_checkpoint(run_folder / f"snapshot-{update:08d}.pt").weights  # type: ignore[no-any-return]


def difference(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> float:
    return max(float((first[name] - second[name]).abs().max()) for name in first)


@pytest.fixture(scope="module")
def uninterrupted(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the run folder of a training of 40 updates on two ranks."""
    folder = tmp_path_factory.mktemp("uninterrupted") / "run"
    run(*command(data, folder, "--gpus=2", "--max-updates=40"))
    return folder


def test_two_ranks_train_the_same_model_as_one(data: Path, tmp_path: Path) -> None:
    options = ["--max-updates=20", "--dropout=0", "--warmup-updates=400"]
    log = run(*command(data, tmp_path / "two", "--gpus=2", *options))
    assert "2 processes" in log
    assert log.count("parameters") == 1
    run(*command(data, tmp_path / "one", *options))
    one, two = (weights(tmp_path / name, 20) for name in ("one", "two"))
    # Sums over ranks round differently, and Adam amplifies the difference by a factor that depends on the CPU.
    assert difference(one, two) < 5e-5
    for kind, keys in (("train", ("loss", "nll", "gradient_norm")), ("valid", ("nll", "bleu"))):
        for first, second in zip(*(records(tmp_path / name, kind) for name in ("one", "two")), strict=True):
            assert [first[key] for key in keys] == pytest.approx([second[key] for key in keys], rel=1e-4)


def wait_for(found: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Waits for at most a minute until `found()`, while the process must keep running."""
    deadline = time.monotonic() + 60
    while not found():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def ranks_of(launcher: subprocess.Popen[str]) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(launcher.pid)], capture_output=True, text=True, check=True)
    return [int(line) for line in found.stdout.split()]


def test_a_signal_stops_all_ranks_and_nothing_is_lost(data: Path, uninterrupted: Path, tmp_path: Path) -> None:
    options = ["--gpus=2", "--max-updates=40"]
    for number, snapshot in ((signal.SIGTERM, 10), (signal.SIGUSR1, 20)):
        process = start(*command(data, tmp_path, *options))
        wait_for((tmp_path / f"snapshot-{snapshot:08d}.pt").exists, process)
        process.send_signal(number)
        log = process.communicate(timeout=60)[1]
        assert process.returncode == 75, log
        assert log.count("start the same command again to resume") == 1
        assert "Traceback" not in log
    assert "resumed from" in run(*command(data, tmp_path, *options))
    assert difference(weights(uninterrupted, 40), weights(tmp_path, 40)) == 0
    expected, found = (
        [(r["update"], r["nll"]) for r in records(folder, "valid")] for folder in (uninterrupted, tmp_path)
    )
    assert found == expected
    assert [r["update"] for r in records(tmp_path, "train")] == [5, 10, 15, 20, 25, 30, 35, 40]


def test_a_rank_that_is_killed_ends_the_run_and_nothing_is_lost(
    data: Path, uninterrupted: Path, tmp_path: Path
) -> None:
    options = ["--gpus=2", "--max-updates=40"]
    process = start(*command(data, tmp_path, *options))
    wait_for((tmp_path / "state-00000010.pt").exists, process)
    started = time.monotonic()
    os.kill(ranks_of(process)[-1], signal.SIGKILL)
    log = process.communicate(timeout=60)[1]
    assert time.monotonic() - started < 30
    assert process.returncode == 1
    assert log.count("error: ") == 1, log
    assert "was killed by SIGKILL" in log
    run(*command(data, tmp_path, *options))
    assert difference(weights(uninterrupted, 40), weights(tmp_path, 40)) == 0


def test_torchrun_restarts_from_the_newest_state(data: Path, uninterrupted: Path, tmp_path: Path) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1"]
    process = start(*torchrun, *command(data, tmp_path, "--max-updates=40")[1:])
    wait_for((tmp_path / "state-00000010.pt").exists, process)
    os.kill(ranks_of(process)[0], signal.SIGKILL)
    log = process.communicate(timeout=100)[1]
    assert process.returncode == 0, log
    assert "resumed from" in log
    assert difference(weights(uninterrupted, 40), weights(tmp_path, 40)) == 0


def test_a_rank_that_hangs_is_named_and_ends_the_run(data: Path, tmp_path: Path) -> None:
    process = start(*command(data, tmp_path, "--gpus=2", "--max-updates=100000", "--rank-timeout=3"))
    wait_for((tmp_path / "state-00000010.pt").exists, process)
    hanging = ranks_of(process)[-1]
    os.kill(hanging, signal.SIGSTOP)
    assert process.stderr is not None
    for line in process.stderr:
        if "error: " in line:
            assert "error: rank 0 lost the connection to rank 1 and waited up to 3 s for it" in line
            break
    os.kill(hanging, signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == 1


def test_ranks_end_with_their_launcher_and_one_rank_can_resume(data: Path, uninterrupted: Path, tmp_path: Path) -> None:
    process = start(*command(data, tmp_path, "--gpus=2", "--max-updates=100000"))
    wait_for((tmp_path / "state-00000010.pt").exists, process)
    process.kill()
    process.communicate(timeout=60)
    assert "resumed from" in run(*command(data, tmp_path, "--max-updates=40"))
    assert difference(weights(uninterrupted, 10), weights(tmp_path, 10)) == 0


def test_a_run_folder_that_disappears_ends_the_run(data: Path, tmp_path: Path) -> None:
    process = start(*command(data, tmp_path / "run", "--max-updates=100000"))
    wait_for((tmp_path / "run" / "state-00000010.pt").exists, process)
    shutil.rmtree(tmp_path / "run")
    log = process.communicate(timeout=60)[1]
    assert process.returncode == 1
    assert "cannot be written (No such file or directory)" in log.splitlines()[-1]


def test_if_data_disappears_for_one_rank_all_ranks_save_the_state_and_end(data: Path, tmp_path: Path) -> None:
    for number in (0, 1):
        shutil.copytree(data, tmp_path / f"data-{number}")
    train = shlex.join(command(tmp_path / "data-", tmp_path / "run", "--max-updates=100000"))
    each = train.replace("data-", "data-$RANK")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--no-python"]
    process = start(*torchrun, "bash", "-c", f"exec {each}")
    wait_for((tmp_path / "run" / "state-00000010.pt").exists, process)
    (tmp_path / "data-1").rename(tmp_path / "gone")
    log = process.communicate(timeout=60)[1]
    assert process.returncode == 1
    assert log.count("error: ") == 1, log
    update = max(int(path.stem.removeprefix("state-")) for path in (tmp_path / "run").glob("state-*.pt"))
    assert f"training stopped after update {update} with its state saved in {tmp_path}/run: {tmp_path}/data-1/" in log
    assert f"after update {update}" in run(*command(data, tmp_path / "run", "--gpus=2", f"--max-updates={update + 1}"))


def test_an_error_is_shown_once(data: Path, tmp_path: Path) -> None:
    log = run(*command(data, tmp_path, "--gpus=2", "--device-tokens=5"), code=1)
    assert log.count("error: --device-tokens 5 is too small for the longest training sentence, which needs") == 1
    assert "Traceback" not in log


def test_a_full_disk_ends_the_run_and_keeps_its_last_state(data: Path, uninterrupted: Path, tmp_path: Path) -> None:
    """Like a full disk, a limit on the size of files makes a write fail when a part has been written."""
    run(*command(data, tmp_path, "--max-updates=10"))
    limited = f"ulimit -f 50; exec {shlex.join(command(data, tmp_path, '--max-updates=40'))}"
    log = run("bash", "-c", limited, code=1)
    assert log.count("error: ") == 1
    assert "cannot be written (File too large); free some space" in log
    assert not list(tmp_path.glob(".*.partial-*"))
    assert "after update 10" in run(*command(data, tmp_path, "--max-updates=40", "--gpus=2"))
    # One rank began and two ranks finished, so dropout differs from the other run, but the updates are the same.
    assert [r["update"] for r in records(tmp_path, "train")] == [r["update"] for r in records(uninterrupted, "train")]
