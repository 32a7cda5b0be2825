"""The launchers of several ranks, torchrun and --gpus, restart them, pass signals on, and end as they do."""

import os
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import forks
import pytest
from commands import same_weights
from two_ranks import LAST, command

pytestmark = pytest.mark.xdist_group("launcher")  # so that the uninterrupted training runs once


@pytest.mark.nightly
def test_torchrun_restarts_from_the_newest_state(data: Path, uninterrupted: Path, tmp_path: Path) -> None:
    folder, killed = Path(shutil.copytree(uninterrupted, tmp_path / "run")), tmp_path / "killed"
    (folder / "state-00000020.safetensors").unlink()
    (tmp_path / "program.py").write_text(f"""
import os, signal
if os.environ["RANK"] == "0" and not os.path.exists({str(killed)!r}):
    os.close(os.open({str(killed)!r}, os.O_CREAT))
    os.kill(os.getpid(), signal.SIGKILL)
import nmt.__main__
nmt.__main__.main()
""")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1"]
    done = subprocess.run(
        [*torchrun, tmp_path / "program.py", *command(data, folder)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(forks.ROOT)},
        stderr=subprocess.PIPE,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert killed.exists()
    assert done.stderr.count("resumed from") == 1
    assert same_weights(uninterrupted / LAST, folder / LAST)


LAUNCHED = """
import os, signal, sys
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(75))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
if os.environ["RANK"] == "1":
    ENDING
os.write(1, b"ready\\n")  # at once, so that the lines of the ranks do not mix
signal.pause()
"""


@pytest.mark.parametrize("ending, number, code, said", [
    ("sys.exit(1)", None, 1, ""),
    ("sys.exit(75)", None, 75, ""),
    ("os.kill(os.getpid(), signal.SIGKILL)", None, 1, "error: rank 1 was killed by SIGKILL, perhaps because memory ran "
     "out; start the same command again to resume from the newest training state\n"),
    ("pass", signal.SIGUSR1, 75, ""),
    ("pass", signal.SIGTERM, 143, ""),
])  # fmt: skip
def test_the_launcher_ends_as_its_ranks_do(
    ending: str, number: signal.Signals | None, code: int, said: str, tmp_path: Path
) -> None:
    """The ranks are small programs. They save their state only after SIGUSR1, and rank 1 may end by itself."""
    (tmp_path / "nmt.py").write_text(LAUNCHED.replace("ENDING", ending))  # which `python -m nmt` runs
    launcher = forks.start(*command("data", tmp_path / "run", "--gpus=2"), cwd=tmp_path, stdout=subprocess.PIPE)
    if number:
        assert [launcher.stdout.readline() for _ in range(2)] == [b"ready\n"] * 2
        launcher.send(number)
    launcher.wait(code)
    # Without a network, torch warns that it cannot find the name of this machine.
    assert "".join(line for line in launcher.errors.splitlines(True) if "[c10d]" not in line) == said


def signal_when_ready(fifo: Path) -> None:
    with fifo.open("rb") as ready:
        assert [ready.readline() for _ in range(2)] == [b"ready\n"] * 2
    os.kill(os.getpid(), signal.SIGTERM)


def test_a_signal_that_comes_while_the_ranks_start_reaches_them(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "ready")
    program = LAUNCHED.replace("os.write(1,", "os.write(os.open('ready', os.O_WRONLY),").replace("ENDING", "pass")
    (tmp_path / "nmt.py").write_text(program)
    started = forks.At(
        "torch.distributed.elastic.multiprocessing.start_processes",
        do=partial(signal_when_ready, tmp_path / "ready"),
        after=True,
    )
    launcher = forks.start(*command("data", tmp_path / "run", "--gpus=2"), cwd=tmp_path, before=started)
    launcher.wait(143)
