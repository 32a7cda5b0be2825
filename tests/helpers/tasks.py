"""Tasks of worker processes. Workers import this module, which therefore imports neither torch nor pytest."""

import os
import select
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

from nmt.errors import NmtError
from nmt.jobs.pool import worker_pool
from nmt.jobs.stream import Batch, Chunk, Result
from nmt.signals import cleaning_up

_LIMIT_SECONDS = 600  # a process that takes longer hangs

# How processes report to a test


class Reports:
    """Waits for the reports of processes. They need the port."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.settimeout(_LIMIT_SECONDS)
        self.port: int = self._socket.getsockname()[1]

    def next(self) -> tuple[socket.socket, int]:
        """Returns the connection to the next process that reports, and the id of the process."""
        connection = self._socket.accept()[0]
        connection.settimeout(_LIMIT_SECONDS)
        return connection, int(connection.recv(20))


def read_to_end(pipe: IO[bytes]) -> str:
    """Returns what processes write to a pipe until the last of them has ended."""
    said = b""
    while select.select([pipe], [], [], _LIMIT_SECONDS)[0]:
        data = os.read(pipe.fileno(), 1 << 16)
        if not data:
            return said.decode()
        said += data
    raise TimeoutError("a process has not ended")


_kept: list[socket.socket] = []


def report(port: int) -> socket.socket:
    """Reports to the test. The connection breaks when this process and all that are forked from it have ended."""
    _kept.append(socket.create_connection(("127.0.0.1", port)))
    _kept[-1].sendall(b"%d" % os.getpid())
    return _kept[-1]


def report_and_wait(port: int) -> None:
    """Reports to the test and waits until the test closes the connection."""
    report(port).recv(1)


# Tasks without a model


def runs(_: int) -> Callable[[Sequence[Any]], Any]:
    """Returns a task that gets a function with its arguments, and calls it."""
    return lambda chunk: chunk[0](*chunk[1:])


def runs_file(path: Path, worker: int) -> Callable[[Sequence[Any]], Any]:
    if not path.exists():
        raise NmtError(f"{path} is missing")
    return runs(worker)


def never_loads(port: int, _: int) -> Callable[[Sequence[Any]], Any]:
    never_end(port)
    raise AssertionError("the end of the test was not noticed")


def tells_number(port: int, worker: int) -> Callable[[object], int]:
    """Returns a task that gives the worker's number when the test allows it, so that other workers do other tasks."""

    def task(_: object) -> int:
        signal.raise_signal(signal.SIGINT)  # workers do not receive Ctrl-C
        report_and_wait(port)
        return worker

    return task


def die_within_the_answer() -> None:
    """Makes this worker end when a part of its answer is sent."""

    def send(channel: Connection, message: bytes) -> None:
        os.write(channel.fileno(), message[:9])
        os._exit(9)

    Connection._send = send  # type: ignore[attr-defined]


def fail(chunk: int) -> None:
    raise NmtError(f"chunk {chunk} is bad")


def never_end(port: int) -> None:
    """Waits for the end of the test. If it waits longer than the test, it says so to the test."""
    connection = report(port)
    if not select.select([connection], [], [], 2 * _LIMIT_SECONDS)[0]:
        connection.sendall(b"!")


def keep_workers_busy(make_task: Callable[[int], Any], port: int) -> None:
    """Works in two processes until a signal comes or they have died."""
    with cleaning_up(), worker_pool(make_task, 2, preload=__name__) as submit:
        for future in [submit((never_end, port)) for _ in range(2)]:
            future.exception()


# A job without a model


def row_as_number(row: tuple[str, ...], _: Any) -> int:
    return int(row[0])


@dataclass(frozen=True)
class Doubling:
    """A job that doubles numbers, and what does it.

    Number 3 kills its worker until the file `deaths` has `survives` letters.
    """

    deaths: Path
    survives: int
    models: tuple[str, ...] = ()
    device: str = "cpu"

    def load(self, _models: Sequence[str], _process: int) -> "Doubling":
        return self

    def session(self) -> Any:
        return nullcontext()

    def codec(self) -> Any:
        return None

    def batches(self, _: Any, chunk: Chunk) -> Iterator[Batch]:
        for i in range(0, len(chunk.units), 2):
            pair = chunk.units[i : i + 2]
            yield Batch(range(chunk.first + i, chunk.first + i + len(pair)), pair)

    def result(self, _: Any, __: Chunk, done: Sequence[tuple[Batch, list[int]]]) -> Result:
        sorted_batches = sorted(done, key=lambda each: each[0].unit_numbers[0])
        return Result([value for _, numbers in sorted_batches for value in numbers])

    def restored(self, record: Any) -> Any:
        return record

    def compute(self, _: Any, batch: Sequence[int]) -> list[int]:
        if 3 in batch and len(self.deaths.read_text()) < self.survives:
            with self.deaths.open("a") as file:
                file.write("x")
            os._exit(9)
        return [2 * n for n in batch]
