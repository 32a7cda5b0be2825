"""Translates a file on a small Ray cluster of this machine while nodes and workers are killed and added.

The translation is compared with one that nothing disturbed. See translate_cluster.sh.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

os.environ |= {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}  # read when ray is imported

from process_memory import with_descendants
from ray.cluster_utils import Cluster

NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
# A node that does not answer for two seconds counts as dead; Ray waits longer by default.
HEALTH = {
    "health_check_initial_delay_ms": 500,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 500,
    "health_check_failure_threshold": 4,
}


def finished_shards(output: Path) -> int:
    """Returns how many shards of the job are finished."""
    try:
        return sum(path.name.isdecimal() for path in Path(f"{output}.unfinished", "shards").iterdir())
    except FileNotFoundError:
        return 0


def workers() -> list[int]:
    """Returns the process ids of the workers of this program's cluster."""
    process_ids = []
    for process in with_descendants(os.getpid()):
        with suppress(OSError):  # it has ended
            if Path(f"/proc/{process}/cmdline").read_bytes().startswith(b"ray::Worker"):
                process_ids.append(process)
    return process_ids


def disturb(cluster: Any, draw: random.Random) -> str:
    """Kills a worker, or replaces a node. Returns what was done."""
    if draw.random() < 0.6:
        for worker in workers()[:1]:
            os.kill(worker, signal.SIGKILL)
            return "killed a worker"
        return "found no worker to kill"
    cluster.remove_node(sorted(cluster.worker_nodes, key=lambda node: node.node_id)[0], allow_graceful=False)
    cluster.add_node(**NODE)
    return "killed a node and added another one"


def translate(command: list[str], output: Path, cluster: Any, draw: random.Random, seconds: float) -> None:
    """Translates on the cluster. Every so many seconds, something is killed; three times it is the driver."""
    drivers = 0
    while True:
        driver = subprocess.Popen([*command, "--output", str(output), "--cluster", cluster.address])
        started = time.monotonic()
        while driver.poll() is None:
            time.sleep(min(seconds, 1.0))
            if time.monotonic() - started < seconds:
                continue
            started = time.monotonic()
            if drivers < 3 and finished_shards(output) and draw.random() < 0.2:
                drivers += 1
                driver.kill()
                print(f"killed the driver after {finished_shards(output)} shards", flush=True)
                driver.wait()
                break
            print(f"{disturb(cluster, draw)} after {finished_shards(output)} shards", flush=True)
        if driver.returncode != -signal.SIGKILL:
            break
    if driver.returncode:
        sys.exit(f"error: the driver ended with exit code {driver.returncode}")


def main() -> None:
    """Translates the file twice and compares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("input")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=15.0, help="time between two disturbances")
    parser.add_argument("--seed", type=int, default=1)
    arguments, options = parser.parse_known_args()
    command = ["nmt", "generate", arguments.model, "--input", arguments.input, "--device", "cpu", *options]
    alone, disturbed = arguments.folder / "alone", arguments.folder / "disturbed"
    started = time.monotonic()
    subprocess.run([*command, "--output", str(alone), "--workers", "2"], check=True)
    print(f"undisturbed, two processes: {time.monotonic() - started:.0f} s", flush=True)
    cluster = Cluster(
        initialize_head=True, head_node_args={**NODE, "include_dashboard": False, "_system_config": HEALTH}
    )
    cluster.add_node(**NODE)
    started = time.monotonic()
    translate(command, disturbed, cluster, random.Random(arguments.seed), arguments.seconds)
    print(f"disturbed, two nodes: {time.monotonic() - started:.0f} s", flush=True)
    cluster.shutdown()
    if alone.read_bytes() != disturbed.read_bytes():
        sys.exit(f"error: {alone} and {disturbed} differ")
    print(f"{disturbed} has the same {alone.stat().st_size:,} bytes as {alone}")


if __name__ == "__main__":
    main()
