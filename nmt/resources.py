"""Limits and measures the cores, threads and memory that this process uses."""

import ctypes
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# <malloc.h>: M_TRIM_THRESHOLD and M_MMAP_THRESHOLD.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
# The control groups of Linux (version 2), and the file that names the one of this process.
_CONTROL_GROUP, _OWN_GROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def _control_groups() -> list[Path]:
    """Returns the folder of the control group of this process, and of those around it. All of them limit it."""
    own = ""
    with suppress(OSError, StopIteration):  # this is not Linux
        lines = _OWN_GROUP.read_text(encoding="utf-8").splitlines()
        own = next(line.removeprefix("0::/") for line in lines if line.startswith("0::/"))
    group = _CONTROL_GROUP / own
    return [group, *(parent for parent in group.parents if parent.is_relative_to(_CONTROL_GROUP))]


def threads_per_process(processes: int) -> str:
    """Returns OMP_NUM_THREADS for processes that share the cores; the user's own value has precedence."""
    return os.environ.get("OMP_NUM_THREADS") or str(max(1, usable_cores() // processes))


@contextmanager
def sharing_cores(processes: int) -> Iterator[None]:
    """Limits the threads of numerical libraries in processes that start in the block, which share the cores."""
    own = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = threads_per_process(processes)
    try:
        yield
    finally:
        if own is None:
            del os.environ["OMP_NUM_THREADS"]


def limit_spinning() -> None:
    """Makes OpenMP threads release their cores while they wait for each other.

    By default, libgomp's threads spin for milliseconds. If one other process is busy, every parallel operation
    then waits for the thread whose core is taken, and `nmt generate` becomes twenty times slower. Call this
    function before torch is imported. Settings of the user have precedence.
    """
    if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys():
        os.environ["GOMP_SPINCOUNT"] = "10000"


def usable_cores() -> int:
    """Returns how many cores the affinity of this process and the limit of its container let it use."""
    cores: float = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for group in _control_groups():
        with suppress(OSError, ValueError):  # the limit is "max", or the group has none
            quota, period = (group / "cpu.max").read_text().split()
            cores = min(cores, int(quota) / int(period))
    return max(1, int(cores))


def keep_freed_memory() -> None:
    """Makes glibc keep large freed blocks for the next update instead of returning their pages to the system."""
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # absent in other C libraries
        # Some versions of glibc reject thresholds above 32 MiB. A smaller threshold still helps there.
        if mallopt and (mallopt(_MMAP_THRESHOLD, 2**30) or mallopt(_MMAP_THRESHOLD, 2**25)):
            mallopt(_TRIM_THRESHOLD, 2**31 - 1)


def return_freed_memory() -> None:
    """Undoes `keep_freed_memory`, for models whose large blocks would leave much memory idle between them."""
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)):
        mallopt(_MMAP_THRESHOLD, 2**25)
        mallopt(_TRIM_THRESHOLD, 2**26)


def memory_bytes() -> int:
    """Returns the size of the memory of the machine, or of its container, in bytes."""
    size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for group in _control_groups():
        with suppress(OSError, ValueError):  # the limit is "max", or the group has none
            size = min(size, int((group / "memory.max").read_text()))
    return size


def available_bytes() -> int:
    """Returns how many bytes of memory are free, or can be freed, on this machine and in its container."""
    available = memory_bytes()
    with suppress(OSError, StopIteration):  # this is not Linux
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        available = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    for group in _control_groups():
        with suppress(OSError, ValueError):  # the limit is "max", or the group has none
            limit, used = (int((group / f"memory.{name}").read_text()) for name in ("max", "current"))
            statistics = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
            available = min(available, limit - used + int(statistics["inactive_file"]))
    return available


def process_peak_mib() -> float:
    """Returns the peak memory of this process in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
