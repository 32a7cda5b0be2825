"""If the network between two machines fails, training ends on both. Network namespaces stand for the machines."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from test_distributed import ENVIRONMENT, command, data, wait_for  # noqa: F401 (data is a fixture)

NAMESPACES = ("nmt-test-a", "nmt-test-b")
LINKS = ("nmt-veth-a", "nmt-veth-b")
ADDRESSES = ("10.77.41.1", "10.77.41.2")


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def remove_namespaces() -> None:
    for namespace in NAMESPACES:
        with suppress(subprocess.CalledProcessError):
            ip("netns", "delete", namespace)


@pytest.fixture
def machines() -> Iterator[None]:
    """Makes two namespaces that reach each other through a pair of virtual Ethernet devices."""
    if not shutil.which("ip"):
        pytest.skip("there is no ip command to make network namespaces with")
    remove_namespaces()
    try:
        for namespace in NAMESPACES:
            ip("netns", "add", namespace)
            ip("-n", namespace, "link", "set", "lo", "up")
        ip("link", "add", LINKS[0], "netns", NAMESPACES[0], "type", "veth", "peer", LINKS[1], "netns", NAMESPACES[1])
        for namespace, link, address in zip(NAMESPACES, LINKS, ADDRESSES, strict=True):
            ip("-n", namespace, "addr", "add", f"{address}/24", "dev", link)
            ip("-n", namespace, "link", "set", link, "up")
    except subprocess.CalledProcessError as error:
        remove_namespaces()
        pytest.skip(f"network namespaces cannot be made here: {error.stderr.decode().strip()}")
    yield
    remove_namespaces()


def start(machine: int, train: list[str]) -> subprocess.Popen[str]:
    """Starts torchrun on one of the machines, with one rank of the training."""
    torchrun = ["--nnodes=2", f"--node-rank={machine}", f"--master-addr={ADDRESSES[0]}", "--master-port=29541"]
    return subprocess.Popen(
        ["ip", "netns", "exec", NAMESPACES[machine], train[0], "-m", "torch.distributed.run", *torchrun, *train[1:]],
        env={**ENVIRONMENT, "GLOO_SOCKET_IFNAME": LINKS[machine]},
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.usefixtures("machines")
def test_a_network_failure_ends_training_on_both_machines(data: Path, tmp_path: Path) -> None:  # noqa: F811
    train = command(data, tmp_path / "run", "--max-updates=100000", "--rank-timeout=5")
    sides = [start(machine, train) for machine in (0, 1)]
    wait_for((tmp_path / "run" / "state-00000010.pt").exists, sides[0])
    ip("-n", NAMESPACES[0], "link", "set", LINKS[0], "down")
    cut = time.monotonic()
    logs = [side.communicate(timeout=60)[1] for side in sides]
    assert time.monotonic() - cut < 45
    assert all(side.returncode for side in sides)
    assert "error: rank 0 lost the connection to rank 1 and waited up to 5 s for it" in logs[0], logs[0]
    assert "error: rank 1 lost the connection to the machine that started the run" in logs[1], logs[1]
