"""Measures the memory of processes on Linux."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def memory_of_all_processes_mib(process: int) -> float | None:
    """Returns the memory in use by a process and its descendants, in MiB; None if the system does not tell."""
    kib = 0
    for descendant in with_descendants(process):
        with suppress(OSError):  # it has ended
            for line in Path(f"/proc/{descendant}/smaps_rollup").read_text(encoding="utf-8").splitlines():
                if line.startswith("Pss:"):  # its own memory, and its part of what it shares
                    kib += int(line.split()[1])
    return kib / 2**10 or None


def with_descendants(process: int) -> Iterator[int]:
    yield process
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended
            for child in path.read_text(encoding="utf-8").split():
                yield from with_descendants(int(child))
