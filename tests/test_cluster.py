"""Jobs on a local Ray cluster: the same bytes as from one process, whatever dies meanwhile."""

import gzip
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from commands import failed, run
from conftest import invented_pairs
from rich.console import Console
from test_jobs import Doubling, finished_shards

from nmt import console
from nmt.config import JobConfig
from nmt.decoding.output import JobOutput
from nmt.errors import NmtError
from nmt.jobs.folder import job_folder
from nmt.jobs.manifest import Preparation
from nmt.jobs.ray_connection import connected
from nmt.jobs.ray_worker import RayWorker, Shipped

pytestmark = pytest.mark.xdist_group("cluster")  # two clusters at once would kill each other's workers
MEMORY = 80 * 2**20
# A machine that does not answer for a second is dead.
QUICK = {"health_check_initial_delay_ms": 500, "health_check_period_ms": 500, "health_check_timeout_ms": 500}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Yields a cluster of two nodes on this machine, each with room for one worker."""
    # Ray reads these when it is imported, in this process and in those of the cluster. Workers import this module.
    paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": paths}.items():
            patch.setenv(name, value)
        cluster_utils = pytest.importorskip("ray.cluster_utils", reason="needs the extra ray")
        yield from nodes_of(cluster_utils)


def nodes_of(cluster_utils: Any) -> Iterator[Any]:
    head = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": MEMORY}
    found = cluster_utils.Cluster(
        initialize_head=True, head_node_args=head | {"_system_config": QUICK | {"health_check_failure_threshold": 4}}
    )
    add_node(found)
    yield found
    found.shutdown()


def add_node(cluster: Any) -> Any:
    return cluster.add_node(num_cpus=1, object_store_memory=MEMORY)


@dataclass(frozen=True)
class Command:
    """A job of each kind: the command without its output, the flag of the output, and what it writes alone."""

    arguments: list[str]
    flag: str
    expected: dict[str, bytes]

    def check(self, output: Path) -> None:
        assert content(output) == self.expected


def content(output: Path) -> dict[str, bytes]:
    """Returns the bytes of a file or of all files of a data folder; meta.json also records --dest and --workers."""
    if output.is_file():
        return {"": output.read_bytes()}
    return {path.name: path.read_bytes() for path in output.iterdir() if path.name != "meta.json"}


@pytest.fixture(scope="module")
def commands(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Command]:
    folder = tmp_path_factory.mktemp("commands")
    for name, pairs in (("small", 40), ("large", 12_000)):
        for lang, lines in zip(("en", "de"), zip(*invented_pairs(pairs, seed=5), strict=True), strict=True):
            (folder / f"{name}.{lang}").write_text("".join(f"{line}\n" for line in lines))
    model, small = str(trained / "run" / "best.pt"), folder / "small"
    generate = ["generate", model, f"--input={small}.en", "--max-length-offset=3", "--device=cpu", "--shard-lines=4"]
    rescore = ["rescore", model, f"--source={small}.en", f"--target={small}.de", "--device=cpu", "--shard-lines=4"]
    preprocess = ["preprocess", "--source-lang=en", "--target-lang=de", f"--train={folder / 'large'}"]
    preprocess += [f"--valid={small}", "--vocab-size=330", "--subword-sample=300", "--shard-lines=50"]
    found = {}
    for name, arguments, flag in (
        ("generate", [*generate, "--output-format=jsonl"], "--output"),
        ("sample", [*generate, "--sample", "--samples=2"], "--output"),
        ("rescore", rescore, "--output"),
        ("preprocess", preprocess, "--dest"),
    ):
        run(*arguments, flag, folder / name)
        found[name] = Command(arguments, flag, content(folder / name))
    return found


@pytest.mark.parametrize("name", ["generate", "sample", "rescore", "preprocess"])
@pytest.mark.parametrize("nodes", [2, 3])
def test_a_cluster_writes_the_same_bytes_as_one_process(
    cluster: Any, commands: dict[str, Command], tmp_path: Path, name: str, nodes: int
) -> None:
    if nodes == 3 and len(cluster.list_all_nodes()) == 2:
        add_node(cluster)
    said = run(*commands[name].arguments, commands[name].flag, tmp_path / "out", "--cluster", cluster.address).stderr
    assert "worker" in said
    commands[name].check(tmp_path / "out")
    assert not (tmp_path / "out.unfinished").exists()


def test_machines_without_the_files_get_them_from_the_driver(
    cluster: Any, commands: dict[str, Command], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nmt.jobs.folder.identity", lambda _: "the folder of another machine")
    for name in ("rescore", "preprocess"):
        command = commands[name]
        run(*command.arguments, command.flag, tmp_path / name, "--cluster", cluster.address)
        command.check(tmp_path / name)


def test_models_of_an_ensemble_may_have_the_same_name(
    cluster: Any, commands: dict[str, Command], trained: Path, tmp_path: Path
) -> None:
    average = tmp_path / "best.pt"
    average.write_bytes((trained / "run" / "average.pt").read_bytes())
    name, model, *options = commands["rescore"].arguments
    for output, cluster_options in (("alone", []), ("out", ["--cluster", cluster.address])):
        run(name, average, model, *options, "--output", tmp_path / output, *cluster_options)
    assert content(tmp_path / "out") == content(tmp_path / "alone")


def test_a_machine_with_other_input_gets_the_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "stderr", Console())  # a worker redirects it
    (tmp_path / "numbers").write_text("1\n2\n")
    preparation = Preparation(segments=[[str(tmp_path / "numbers")]], columns=["--input"], shard_rows=1, settings={})
    with job_folder(str(tmp_path / "out"), "--output", preparation, JobConfig()) as folder:
        shipped = Shipped(Doubling(tmp_path, 0), folder.path, folder.identity, folder.plan)
        assert RayWorker().load(shipped)
        (tmp_path / "numbers").write_text("3\n4\n5\n")
        assert not RayWorker().load(shipped)


def test_a_cluster_with_another_version_of_ray_is_one_sentence(
    commands: dict[str, Command], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def init(**_: object) -> None:
        raise RuntimeError("Version mismatch: The cluster was started with:\n    Ray: 1.0")

    monkeypatch.setattr("ray.init", init)
    said = failed(*commands["rescore"].arguments, "--output", tmp_path / "out", "--cluster=auto")
    assert "--cluster auto cannot be used (Version mismatch: The cluster was started with: Ray: 1.0)" in said


def test_the_driver_decompresses_input(cluster: Any, commands: dict[str, Command], tmp_path: Path) -> None:
    command = commands["rescore"]
    arguments = []
    for argument in command.arguments:
        flag, _, path = argument.partition("=")
        if flag in ("--source", "--target"):
            compressed = tmp_path / f"{Path(path).name}.gz"
            compressed.write_bytes(gzip.compress(Path(path).read_bytes()))
            argument = f"{flag}={compressed}"
        arguments.append(argument)
    run(*arguments, command.flag, tmp_path / "out", "--cluster", cluster.address)
    command.check(tmp_path / "out")


# What dies


def shards_of(output: Path) -> int:
    return finished_shards(Path(f"{output}.unfinished"))


def has_grown(output: Path, shards: int) -> bool:
    return shards_of(output) > shards


@contextmanager
def meanwhile(act: Callable[[], Any]) -> Iterator[None]:
    """Does something in another thread during the block; fails if that fails."""
    errors: list[BaseException] = []

    def catch() -> None:
        try:
            act()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=catch)
    thread.start()
    yield
    thread.join()
    assert not errors, errors


def wait_for(condition: Callable[[], object], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def workers() -> list[int]:
    """Returns the process ids of the workers of this machine."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdecimal() and (process / "cmdline").read_bytes().startswith(b"ray::RayWorker"):
                found.append(int(process.name))
        except OSError:  # it has ended
            pass
    return found


def test_ten_killed_workers_change_nothing(cluster: Any, commands: dict[str, Command], tmp_path: Path) -> None:
    output = tmp_path / "out"
    killed = []

    def kill_ten() -> None:
        while len(killed) < 10:
            wait_for(partial(has_grown, output, shards_of(output) + 5))
            wait_for(workers)
            for worker in workers()[:1]:
                os.kill(worker, signal.SIGKILL)
                killed.append(worker)

    command = commands["preprocess"]
    with meanwhile(kill_ten):
        run(*command.arguments, command.flag, output, "--cluster", cluster.address)
    assert len(killed) == 10
    command.check(output)


def test_a_machine_may_die_and_another_one_may_join(cluster: Any, commands: dict[str, Command], tmp_path: Path) -> None:
    command, output = commands["preprocess"], tmp_path / "out"
    arguments = [*command.arguments, command.flag, str(output), "--cluster", cluster.address]
    driver = subprocess.Popen([sys.executable, "-m", "nmt", *arguments], stderr=subprocess.PIPE, text=True)
    wait_for(partial(has_grown, output, 20))
    cluster.remove_node(cluster.worker_nodes.copy().pop(), allow_graceful=False)
    add_node(cluster)
    said = driver.communicate(timeout=120)[1]
    assert driver.returncode == 0, said
    command.check(output)


def test_a_driver_that_is_killed_three_times_goes_on(
    cluster: Any, commands: dict[str, Command], tmp_path: Path
) -> None:
    command, output = commands["preprocess"], tmp_path / "out"
    arguments = [*command.arguments, command.flag, str(output), "--cluster", cluster.address]
    done = 0
    for number in (signal.SIGKILL, signal.SIGKILL, signal.SIGKILL, signal.SIGTERM):
        driver = subprocess.Popen([sys.executable, "-m", "nmt", *arguments], stderr=subprocess.PIPE, text=True)
        wait_for(partial(has_grown, output, done + 10))
        driver.send_signal(number)
        said = driver.communicate(timeout=60)[1]
        done = shards_of(output)
    assert driver.returncode == 75, said
    assert "which are kept in" in said
    assert f"resuming after {50 * done:,} of 12,000 pairs" in run(*arguments).stderr
    command.check(output)


def test_a_shard_that_kills_three_workers_is_reported_and_the_rest_goes_on(
    cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "numbers").write_text("".join(f"{n}\n" for n in range(1, 21)))
    (tmp_path / "deaths").touch()
    options = JobConfig(cluster=cluster.address)

    def double() -> None:
        with connected(options), console.Progress("double", None, "number") as progress:
            JobOutput(
                job=Doubling(tmp_path / "deaths", survives=3),
                segments=[[str(tmp_path / "numbers")]],
                columns=["--input"],
                output=str(tmp_path / "out"),
                settings={},
                shard_rows=6,
                options=options,
                workers=None,
                progress=progress,
            ).write()

    with pytest.raises(NmtError, match=r"1 of 4 shards failed \(lines 1-6: 3 workers died on it, the last one on"):
        double()
    assert "warning: lines 1-6 failed" in capsys.readouterr().err
    assert shards_of(tmp_path / "out") == 3
    double()
    assert (tmp_path / "out").read_text() == "".join(f"{2 * n}\n" for n in range(1, 21))


# What is wrong from the start


def test_another_version_on_a_machine_is_one_sentence(
    cluster: Any, commands: dict[str, Command], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nmt.jobs.ray_driver.__version__", "99.0")
    said = failed(*commands["rescore"].arguments, "--output", tmp_path / "out", "--cluster", cluster.address)
    assert "of nmt, but this machine has 99.0; install the same version on all machines" in said


def test_a_wrong_line_is_one_sentence_of_the_worker(cluster: Any, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs").write_text("a\tb\n" * 9 + "no tab\n")
    arguments = ["rescore", trained / "run" / "best.pt", "--input", tmp_path / "pairs", "--output", tmp_path / "out"]
    said = failed(*arguments, "--shard-lines=4", "--cluster", cluster.address)
    assert said.endswith("pairs, line 10 has 0 tabs; give source, a tab, target")


@pytest.mark.parametrize("address, message", [
    ("localhost:1", "--cluster localhost:1 cannot be reached"),
    ("nowhere", "--cluster must be auto or HOST:PORT, such as 10.0.0.1:6379, but is 'nowhere'"),
    ("", "--cluster is empty; give auto or the address of a cluster's head"),
])  # fmt: skip
def test_a_wrong_address_is_one_sentence(
    commands: dict[str, Command], tmp_path: Path, address: str, message: str
) -> None:
    said = failed(*commands["rescore"].arguments, "--output", tmp_path / "out", f"--cluster={address}")
    assert message in said


def test_without_ray_the_extra_is_named(
    commands: dict[str, Command], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    said = failed(*commands["rescore"].arguments, "--output", tmp_path / "out", "--cluster=auto")
    assert "--cluster needs the package ray" in said and "install it with pip install '.[ray]'" in said


def test_nothing_imports_ray_without_a_cluster() -> None:
    commands = "import nmt.cli.app, nmt.decoding.output, nmt.data.preprocess, sys"
    subprocess.run([sys.executable, "-c", f"{commands}; assert 'ray' not in sys.modules"], check=True)
