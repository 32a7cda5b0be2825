"""If the network between two machines fails, training ends on both. Network namespaces stand for the machines."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from commands import SMALL, TRAIN

pytestmark = pytest.mark.nightly
MACHINES = (f"nmt-test-{os.getpid()}-a", f"nmt-test-{os.getpid()}-b")
# Only the machine itself sees its links, addresses and ports.
LINK = "nmt-link"
ADDRESSES = ("10.77.41.1", "10.77.41.2")


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture
def machines() -> Iterator[None]:
    """Makes two namespaces that reach each other through a pair of virtual Ethernet devices."""
    if not shutil.which("ip"):
        pytest.skip("there is no ip command to make network namespaces with")
    try:
        for machine in MACHINES:
            ip("netns", "add", machine)
        ip("link", "add", LINK, "netns", MACHINES[0], "type", "veth", "peer", LINK, "netns", MACHINES[1])
        for machine, address in zip(MACHINES, ADDRESSES, strict=True):
            ip("-n", machine, "addr", "add", f"{address}/24", "dev", LINK)
            for link in ("lo", LINK):
                ip("-n", machine, "link", "set", link, "up")
        yield
    except subprocess.CalledProcessError as error:
        pytest.skip(f"network namespaces cannot be made here: {error.stderr.decode().strip()}")
    finally:
        for machine in MACHINES:
            with suppress(subprocess.CalledProcessError):
                ip("netns", "delete", machine)


def start(rank: int, train: list[str]) -> subprocess.Popen[str]:
    """Starts torchrun on one of the machines, with one rank of the training."""
    torchrun = ["--nnodes=2", f"--node-rank={rank}", f"--master-addr={ADDRESSES[0]}", "--master-port=29541"]
    python = ["ip", "netns", "exec", MACHINES[rank], sys.executable]
    command = [*python, "-m", "torch.distributed.run", *torchrun, "-m", "nmt", *train]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": LINK}
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


@pytest.mark.usefixtures("machines")
def test_a_network_failure_ends_training_on_both_machines(trained: Path, tmp_path: Path) -> None:
    options = ["--valid-metric=nll", "--max-updates=100000", "--rank-timeout=5"]
    train = ["train", str(trained / "data"), f"--save-dir={tmp_path}/run", *TRAIN, *SMALL, *options]
    sides = [start(rank, train) for rank in (0, 1)]
    try:
        assert any("saved " in line for line in sides[0].stderr or ())
        ip("-n", MACHINES[0], "link", "set", LINK, "down")
        logs = [side.communicate(timeout=120)[1] for side in sides]
    finally:
        for side in sides:
            side.kill()
    assert all(side.returncode > 0 for side in sides)
    assert "error: rank 0 lost the connection to rank 1 and waited up to 5 s for it" in logs[0], logs[0]
    assert "error: rank 1 lost the connection to the machine that started the run" in logs[1], logs[1]
