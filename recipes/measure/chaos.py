"""Kills training at random moments and checks that it ends with the same results as an undisturbed run.

chaos.sh prepares the data and runs this script.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import torch

import nmt
from nmt.errors import INTERRUPTED_EXIT_CODE

UPDATES = 240
OPTIONS = [
    "--arch=transformer_tiny", "--batch-tokens=500", "--batch-groups=2", "--warmup-updates=100",
    f"--max-updates={UPDATES}", "--save-updates=10", "--valid-updates=60", "--log-updates=10", "--valid-metric=nll",
    "--save-minutes=0.02",
]  # fmt: skip
MAX_SECONDS_TO_KILL = 8.0  # counted from the start of the process, which takes a few seconds


@dataclass
class Report:
    """What happened so far.

    Attributes:
        during_write: kills while a file was being written.
        by_signal: kills by the name of the signal.
        runs: complete runs.
        losses: descriptions of all lost work.
    """

    kills: int = 0
    during_write: int = 0
    by_signal: dict[str, int] = field(default_factory=dict)
    runs: int = 0
    losses: list[str] = field(default_factory=list)


def command(data: str, folder: Path, gpus: int) -> list[str]:
    processes = ["--gpus", str(gpus), "--device", "cpu"]
    return [sys.executable, "-m", "nmt", "train", data, "--save-dir", str(folder), *OPTIONS, *processes]


def is_writing(folder: Path) -> bool:
    return any(folder.glob(".*.partial-*"))


def processes_of(process: subprocess.Popen[bytes]) -> list[int]:
    """Returns the ids of the process and of its ranks, if it has any."""
    ranks = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
    return [process.pid, *map(int, ranks)]


def wait_before_kill(process: subprocess.Popen[bytes], folder: Path, random: Random) -> bool:
    """Waits for a random time, and in half of the cases also until a file is being written.

    Returns:
        Whether the process is still running.
    """
    end = time.monotonic() + random.uniform(0, MAX_SECONDS_TO_KILL)
    during_write = random.random() < 0.5
    while time.monotonic() < end or (during_write and not is_writing(folder)):
        if process.poll() is not None:
            return False
        time.sleep(0.0005)
    if during_write:
        time.sleep(random.uniform(0, 0.02))
    return process.poll() is None


def kill(process: subprocess.Popen[bytes], folder: Path, random: Random, report: Report) -> None:
    """Sends SIGKILL or SIGTERM to a random one of the processes and counts the kill in the report."""
    victim = random.choice(processes_of(process))
    number = random.choice((signal.SIGKILL, signal.SIGTERM))
    os.kill(victim, number)
    if is_writing(folder):
        report.during_write += 1
    process.wait()
    report.kills += 1
    report.by_signal[number.name] = report.by_signal.get(number.name, 0) + 1


def train_with_kills(data: str, folder: Path, gpus: int, kills: int, random: Random, report: Report) -> None:
    """Trains until the run is complete. Kills and restarts training until the report counts `kills` kills."""
    while True:
        with (folder.parent / "log.txt").open("ab") as log:
            process = subprocess.Popen(command(data, folder, gpus), stdout=log, stderr=log)
            if report.kills < kills and wait_before_kill(process, folder, random):
                kill(process, folder, random, report)
                continue
            if process.wait() == 0:
                return
            if process.returncode != INTERRUPTED_EXIT_CODE:
                report.losses.append(f"a run ended with exit code {process.returncode}; see {log.name}")
                return


def weights(path: Path) -> dict[str, torch.Tensor]:
    return nmt.load_checkpoint(path).weights


def logged(folder: Path) -> list[tuple[str, int, float]]:
    """Returns kind, update and validation loss of all records that must be the same in both runs."""
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [
        (r["kind"], r["update"], r["nll"] if r["kind"] == "valid" else 0)
        for r in records
        if r["kind"] in ("train", "valid")
    ]


def losses(folder: Path, undisturbed: Path) -> list[str]:
    """Returns a description of everything that differs from the undisturbed run."""
    newest = f"snapshot-{UPDATES:08d}.safetensors"
    expected, got = weights(undisturbed / newest), weights(folder / newest)
    found = [f"{name} differs" for name in expected if not torch.equal(expected[name], got[name])]
    if logged(folder) != logged(undisturbed):
        found.append(f"{folder / 'metrics.jsonl'} records other updates than the undisturbed run")
    for path in folder.glob("*.safetensors"):
        try:
            nmt.load_checkpoint(path)
        except nmt.NmtError as error:
            found.append(str(error))
    if is_writing(folder):
        found.append(f"{folder} holds an unfinished file")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", help="data folder that nmt preprocess wrote")
    parser.add_argument("--folder", type=Path, required=True, help="folder for the runs")
    parser.add_argument("--kills", type=int, required=True, help="number of kills")
    parser.add_argument("--gpus", type=int, default=1, help="processes that train together, on the CPU")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    random = Random(options.seed)
    report = Report()
    undisturbed = options.folder / "undisturbed"
    disturbed = options.folder / "disturbed"
    for folder in (undisturbed, disturbed):
        shutil.rmtree(folder, ignore_errors=True)
    train_with_kills(options.data, undisturbed, options.gpus, 0, random, report)
    while report.kills < options.kills and not report.losses:
        shutil.rmtree(disturbed, ignore_errors=True)
        train_with_kills(options.data, disturbed, options.gpus, options.kills, random, report)
        report.runs += 1
        report.losses = report.losses or losses(disturbed, undisturbed)
        print(
            f"run {report.runs}: {report.kills} kills so far ({report.by_signal}), {report.during_write} of them while "
            f"a file was being written; losses: {len(report.losses)}"
        )
    print("\n".join(report.losses) or "nothing was lost: all runs ended with exactly the undisturbed run's weights")
    sys.exit(1 if report.losses else 0)


if __name__ == "__main__":
    main()
