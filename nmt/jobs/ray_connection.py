"""Connects this process to a Ray cluster."""

import logging
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from nmt import console, resources
from nmt.config import JobConfig
from nmt.errors import NmtError, importing
from nmt.signals import STOPPING

_CONNECT_SECONDS = 5.0
# Variables for Ray. Before it repeats a call that got no answer, it waits this long to hear whether the worker died or
# its machine. If it waited for one second, as by default, it would use up all attempts on a machine that has died, and
# a shard would seem to kill its workers.
_VARIABLES = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_timeout_ms_task_wait_for_death_info": "30000"}


@contextmanager
def connected(options: JobConfig) -> Iterator[None]:
    """Connects this process to the cluster of --cluster until the block ends. Does nothing without --cluster.

    Raises:
        NmtError: Ray is not installed, or the cluster cannot be reached.
    """
    if options.cluster is None:
        yield
        return
    handlers = {number: signal.getsignal(number) for number in STOPPING}
    ray = _connect(options.cluster)
    for number, handler in handlers.items():  # Ray has its own
        signal.signal(number, handler)
    try:
        yield
    finally:
        ray.shutdown()


def _connect(address: str) -> Any:
    """Returns the module ray after connecting it; `auto` starts a cluster of this machine if there is none."""
    for name, value in _VARIABLES.items():
        os.environ.setdefault(name, value)
    if address != "auto":
        _check_address(address)
    with importing("ray", "--cluster", "'.[ray]' in the folder of the toolkit"):
        import ray
        import ray._private.worker as worker
    worker.print_to_stdstream = lambda *_, **__: None  # it prints to standard output when a worker dies
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
    try:
        ray.init(address=address, **quiet)
    except (ConnectionError, RuntimeError, ValueError) as error:
        if address != "auto" or not isinstance(error, ConnectionError):
            said = " ".join(str(error).split())
            raise NmtError(
                f"--cluster {address} cannot be used ({said:.300}); check the address, and that all machines have the "
                f"same versions of Ray and Python"
            ) from error
        _start(ray, quiet)
    return ray


def _start(ray: Any, quiet: dict[str, Any]) -> None:
    """Starts a cluster of this machine."""
    console.info("no Ray cluster runs here; starting one of this machine")
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # nobody else can reach it
    try:
        ray.init(address="local", num_cpus=resources.usable_cores(), include_dashboard=False, **quiet)
    except Exception as error:  # Ray raises a plain Exception, with pages of text
        raise NmtError(
            f"Ray could not be started here ({reason(error)}); start a cluster by ray start --head"
        ) from error


def _check_address(address: str) -> None:
    """Raises NmtError if nothing listens at the address. Ray itself would try for a quarter of an hour."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        raise NmtError(f"--cluster must be auto or HOST:PORT, such as 10.0.0.1:6379, but is {address!r:.80}")
    try:
        socket.create_connection((host, int(port)), _CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise NmtError(
            f"--cluster {address} cannot be reached ({error}); check the address, and whether Ray runs there"
        ) from error


def has_gpus() -> bool:
    """Returns whether the cluster that this process is connected to has GPUs."""
    import ray

    return bool(ray.cluster_resources().get("GPU"))


def reason(error: Exception) -> str:
    """Returns the line of an error of Ray that names a missing module, or else its first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    missing = next((line for line in lines if "ModuleNotFoundError" in line), None)
    return missing or lines[0] if lines else type(error).__name__
