"""Measures `nmt serve` under load, with `nmt generate` on the same lines in the same minutes.

    python recipes/measure/load.py CHECKPOINT INPUT --workers 2 --engine pytorch --repeats 3

Each repeat measures the offline rate, the rate of closed-loop clients, and the latency of single sentences: of an idle
server, and at half of the rate of the clients. Prints one JSON object with a list for each figure.
"""

import argparse
import asyncio
import json
import math
import random
import re
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from process_memory import memory_of_all_processes_mib

NMT = [sys.executable, "-m", "nmt"]
# How often `nmt generate` gets the lines in its two runs, whose difference in time does not depend on the start.
_TIMES = 2, 12


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("input", help="plain text, one sentence a line")
    parser.add_argument("--engine", default="pytorch")
    parser.add_argument("--compute-type", default="auto")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0, help="length of each measurement")
    parser.add_argument("--requests", type=int, default=0, help="then send this many, and compare memory")
    options = parser.parse_args()
    lines = Path(options.input).read_text(encoding="utf-8").split("\n")[:-1]
    engine = ["--engine", options.engine, "--compute-type", options.compute_type, "--precision", options.precision]
    figures: dict[str, list[float]] = {}
    for _ in range(options.repeats):
        figures.setdefault("offline sentences/s", []).append(offline(options, engine, lines))
        with serving([options.checkpoint, *engine, "--workers", str(options.workers)]) as (port, pid):
            for name, value in asyncio.run(measured(port, lines, options)).items():
                figures.setdefault(name, []).append(value)
            if options.requests:
                memory = asyncio.run(memory_ratio(port, pid, lines, options))
                figures.setdefault("memory at the end over that after 1,000 requests", []).append(memory)
    rates = zip(figures["clients sentences/s"], figures["offline sentences/s"], strict=True)
    figures["clients over offline"] = [clients / offline_rate for clients, offline_rate in rates]
    print(json.dumps({name: [round(value, 3) for value in values] for name, values in figures.items()}, indent=1))


def offline(options: argparse.Namespace, engine: list[str], lines: list[str]) -> float:
    """Returns sentences per second of `nmt generate`, without the time that it takes to start."""
    command = [*NMT, "generate", options.checkpoint, *engine, "--workers", str(options.workers)]
    seconds = []
    for times in _TIMES:
        text = "".join(f"{line}\n" for line in lines * times).encode()
        started = time.perf_counter()
        subprocess.run(command, input=text, check=True, capture_output=True)
        seconds.append(time.perf_counter() - started)
    return (_TIMES[1] - _TIMES[0]) * len(lines) / (seconds[1] - seconds[0])


@contextmanager
def serving(arguments: list[str]) -> Iterator[tuple[int, int]]:
    """Runs `nmt serve`; yields its port and process id."""
    with TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as file:
            server = subprocess.Popen([*NMT, "serve", *arguments, "--port", "0"], stderr=file)
        try:
            while not (address := re.search(r"http://\S+:([0-9]+)", log.read_text())):
                time.sleep(0.05)
                if server.poll() is not None:
                    raise SystemExit(log.read_text())
            yield int(address[1]), server.pid
        finally:
            server.terminate()
            server.wait()


class Client:
    """A connection that sends one request after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def translate(self, line: str) -> float:
        """Returns the seconds until the answer."""
        body = json.dumps({"source": line, "split": False, "pieces": False}).encode()
        head = "POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        started = time.perf_counter()
        self._writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: ([0-9]+)", answer)
        if not answer.startswith(b"HTTP/1.1 200") or not length:
            raise SystemExit(answer.decode())
        await self._reader.readexactly(int(length[1]))
        return time.perf_counter() - started


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    yield Client(reader, writer)
    writer.close()


async def measured(port: int, lines: list[str], options: argparse.Namespace) -> dict[str, float]:
    """Returns the figures of one server."""
    await closed_loop(port, lines, options.clients, options.seconds / 4)  # the first requests are slower
    idle = await latencies(port, lines, options.seconds, rate=None)
    rate = await closed_loop(port, lines, options.clients, options.seconds)
    loaded = await latencies(port, lines, options.seconds, rate=rate / 2)
    return {
        "clients sentences/s": rate,
        "idle median ms": 1000 * statistics.median(idle),
        "idle 99th percentile ms": 1000 * percentile(idle),
        "half load 99th percentile ms": 1000 * percentile(loaded),
        "half load 99th percentile over idle median": percentile(loaded) / statistics.median(idle),
    }


def percentile(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98]


async def closed_loop(port: int, lines: list[str], clients: int, seconds: float) -> float:
    """Returns sentences per second of clients that each wait for an answer before they send the next request."""
    end, done, draw = time.perf_counter() + seconds, 0, random.Random(0)

    async def run() -> None:
        nonlocal done
        async with connected(port) as client:
            while time.perf_counter() < end:
                await client.translate(draw.choice(lines))
                done += time.perf_counter() < end

    await asyncio.gather(*(run() for _ in range(clients)))
    return done / seconds


async def latencies(port: int, lines: list[str], seconds: float, rate: float | None) -> list[float]:
    """Returns latencies of requests at random times with this mean rate; one after the other if it is None."""
    draw, latencies, end = random.Random(1), [], time.perf_counter() + seconds

    async def request() -> None:
        async with connected(port) as client:
            latencies.append(await client.translate(draw.choice(lines)))

    if rate is None:
        while time.perf_counter() < end:
            await request()
        return latencies
    async with asyncio.TaskGroup() as tasks:
        while time.perf_counter() < end:
            tasks.create_task(request())
            await asyncio.sleep(draw.expovariate(rate))
    return latencies


async def memory_ratio(port: int, pid: int, lines: list[str], options: argparse.Namespace) -> float:
    """Returns the server's memory after `options.requests` requests, over that after 1,000."""
    sizes, draw = [], random.Random(2)
    for count in (1000, options.requests):

        async def run(requests: int) -> None:
            async with connected(port) as client:
                for _ in range(requests):
                    await client.translate(" ".join(draw.choice(lines).split()[:3]))

        await asyncio.gather(*(run(count // options.clients) for _ in range(options.clients)))
        sizes.append(memory_of_all_processes_mib(pid) or math.nan)
    return sizes[1] / sizes[0]


if __name__ == "__main__":
    main()
