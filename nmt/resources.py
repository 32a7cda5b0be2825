"""What this process may use of the machine, and what it used: cores, threads, memory."""

import math
import os
import resource
import sys
from pathlib import Path

_SPIN_COUNT = 1000
_CONTROL_GROUPS = Path("/sys/fs/cgroup")
_OWN_GROUPS = Path("/proc/self/cgroup")


def share_cores(processes: int) -> None:
    """Makes processes that are started from now on use their share of the cores in numerical libraries."""
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, usable_cores() // processes)))


def limit_spinning() -> None:
    """Makes OpenMP's threads wait for each other without blocking the cores for other processes.

    With libgomp's default they spin for milliseconds. Beside one other busy process, every parallel operation then
    waits for the thread whose core is taken: `nmt generate` becomes twenty times slower. Must run before torch is
    loaded; the user's own settings win.
    """
    if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys():
        os.environ["GOMP_SPINCOUNT"] = str(_SPIN_COUNT)


def usable_cores() -> int:
    """Returns how many cores this process may use: those of its affinity, or fewer where its control group says so."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, int(min(cores, _cpu_quota())))


def memory_bytes() -> int:
    """Returns the size of the machine's memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def process_peak_mib(who: int = resource.RUSAGE_SELF) -> float:
    """Returns the most memory that this process, or the largest of its ended children (RUSAGE_CHILDREN), ever had."""
    peak = resource.getrusage(who).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def _cpu_quota() -> float:
    """Returns the cores that this process's control group and the groups around it allow; infinite without a limit."""
    try:
        lines = _OWN_GROUPS.read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        return math.inf
    quotas = [math.inf]
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if not controllers or "cpu" in controllers.split(","):
            root = _CONTROL_GROUPS / "cpu" if controllers else _CONTROL_GROUPS
            path = root / group.lstrip("/")
            quotas += [_group_quota(folder) for folder in (path, *path.parents) if folder.is_relative_to(root)]
    return min(quotas)


def _group_quota(folder: Path) -> float:
    """Returns the limit of one control group, of version 2 (cpu.max) or 1 (cpu.cfs_quota_us)."""
    try:
        if folder.is_relative_to(_CONTROL_GROUPS / "cpu"):
            quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        else:
            quota, period = (folder / "cpu.max").read_text().split()
        return int(quota) / int(period) if int(quota) > 0 else math.inf
    except (OSError, ValueError):  # no such group here, or "max"
        return math.inf
