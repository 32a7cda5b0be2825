"""Jobs on a Ray cluster of two nodes of this machine: the same bytes as from one process, whatever dies meanwhile."""

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import forks
import pytest
from commands import run
from test_cluster import NODE, double, running_cluster
from test_jobs import finished_shards

from nmt.config import JobConfig
from nmt.errors import NmtError
from nmt.jobs.run import executing

pytestmark = [pytest.mark.nightly, pytest.mark.xdist_group("cluster")]
ADD = "nmt.jobs.run.JobFolder.add"  # is called for each finished shard
GENERATE = "generate run/best.safetensors --input=valid.en --max-length-offset=3 --device=cpu --shard-lines=2"
PREPROCESS = "preprocess --source-lang=en --target-lang=de --train=train --valid=valid --vocab-size=330 --shard-lines=1"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with running_cluster(2) as ray_cluster:
        yield ray_cluster


@pytest.fixture(autouse=True)
def _in_folder(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(trained)


def raylet(node: Any) -> Any:
    """Returns the process of a node that starts its workers."""
    return node.all_processes["raylet"][0].process


def content(output: Path) -> dict[str, bytes]:
    """Returns the bytes of a file or of all files of a data folder; meta.json also records --dest and --workers."""
    files = [path for path in output.glob("*") if path.name != "meta.json"]
    return {path.name: path.read_bytes() for path in files} or {"": output.read_bytes()}


def check(command: list[str], folder: Path) -> None:
    """Checks that the command wrote to folder/out what one process writes."""
    run(*command, folder / "alone")
    assert content(folder / "out") == content(folder / "alone")
    assert not (folder / "out.unfinished").exists()


@pytest.mark.parametrize("command", [
    f"{GENERATE} --output-format=jsonl --output",
    f"{GENERATE} --sample --samples=2 --output",
    f"{PREPROCESS} --dest",
])  # fmt: skip
def test_a_cluster_writes_the_same_bytes_as_one_process(cluster: Any, tmp_path: Path, command: str) -> None:
    run(*command.split(), tmp_path / "out", "--cluster", cluster.address)
    check(command.split(), tmp_path)


def kill_often(raylets: list[int], killed: Path) -> None:
    """Makes this process kill a worker of these raylets after every twentieth shard."""
    for shards in range(20, 300, 20):
        forks.At(ADD, call=shards, do=partial(kill_worker, raylets, killed), after=True)()


def kill_worker(raylets: list[int], killed: Path) -> None:
    import psutil  # Ray brings it along

    children = [child for pid in raylets for child in psutil.Process(pid).children()]
    worker = next(child for child in children if child.name().startswith("ray::Worker"))
    worker.kill()
    with killed.open("a") as file:
        file.write(f"{worker.pid}\n")


@pytest.fixture
def preprocess(cluster: Any, tmp_path: Path) -> Iterator[list[str]]:
    """Returns a command. Checks its output after the test."""
    command = [*PREPROCESS.split(), "--dest"]
    yield [*command, str(tmp_path / "out"), "--cluster", cluster.address]
    check(command, tmp_path)


def test_ten_killed_workers_change_nothing(cluster: Any, preprocess: list[str], tmp_path: Path) -> None:
    raylets, killed = [raylet(node).pid for node in cluster.list_all_nodes()], tmp_path / "killed"
    forks.run(*preprocess, before=partial(kill_often, raylets, killed))
    assert len(set(killed.read_text().split())) >= 10


def test_a_machine_may_die_and_another_one_may_join(cluster: Any, preprocess: list[str]) -> None:
    (node,) = cluster.worker_nodes
    death = partial(os.kill, raylet(node).pid, signal.SIGKILL)
    command = forks.start(*preprocess, before=forks.At(ADD, call=20, do=death))
    raylet(node).wait(120)
    cluster.remove_node(node, allow_graceful=False)
    cluster.add_node(**NODE)
    command.wait(0)


def test_a_driver_that_is_killed_goes_on(preprocess: list[str]) -> None:
    for signum, code in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 75)):
        command = forks.run(*preprocess, code=code, before=forks.At(ADD, call=10, do=signum, after=True))
    assert "stopped after 20 lines, which are kept in" in command.errors
    assert "resuming after 20 of 300 pairs" in forks.run(*preprocess).errors


def test_a_shard_that_kills_its_workers_is_reported_and_the_rest_goes_on(cluster: Any, tmp_path: Path) -> None:
    options = {"cluster": cluster.address, "rows": 6, "survives": 6}
    with executing(JobConfig(cluster=cluster.address)):
        with pytest.raises(NmtError, match=r"1 of 4 shards failed \(lines 1-6: 3 workers died on it, perhaps because"):
            double(tmp_path, **options)
        assert (tmp_path / "deaths").read_text() == "xxxxxx" and finished_shards(tmp_path / "out.unfinished") == 3
        double(tmp_path, **options)
