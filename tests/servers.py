"""Starts the commands that serve pages, and sends requests to them."""

import asyncio
import http.client
import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import forks

from nmt.serving.scheduler import Scheduler
from nmt.serving.tasks import Translate

_LIMIT_SECONDS = 60  # a server that says or answers nothing for longer hangs


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def head(length: int, *more: str) -> bytes:
    """Returns the head of a request to translate, which has the token "secret" and these further lines."""
    lines = ["POST /translate HTTP/1.1", "Host: localhost", "Authorization: Bearer secret", *more]
    return "\r\n".join([*lines, f"Content-Length: {length}", "Content-Type: application/json", "", ""]).encode()


class _Lines:
    """The lines that a process writes into a pipe. A thread reads them, so that the pipe is never full."""

    def __init__(self, pipe: Any) -> None:
        self.text = ""
        self._queue: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, args=[pipe], daemon=True).start()

    def _read(self, pipe: Any) -> None:
        for line in pipe:
            self._queue.put(line.decode())
        self._queue.put("")

    def until(self, pattern: str) -> re.Match[str]:
        """Waits for a line with this pattern."""
        while line := self._queue.get(timeout=_LIMIT_SECONDS):
            self.text += line
            if found := re.search(pattern, line):
                return found
        raise AssertionError(f"the process has ended: {self.text}")

    def all(self) -> str:
        """Waits for the end of the process and returns all lines."""
        while line := self._queue.get(timeout=_LIMIT_SECONDS):
            self.text += line
        self._queue.put("")
        return self.text


class Server:
    """A running server; see `running`."""

    def __init__(self, process: forks.Command, token: str) -> None:
        self.process = process
        self._headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        self._log = _Lines(process.stderr)
        self._events = _Lines(process.stdout) if process.stdout else None
        self.port = int(self._log.until(r"http://\S+?:([0-9]+)")[1])
        self.address = f"http://127.0.0.1:{self.port}/"

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=_LIMIT_SECONDS)

    def send(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_LIMIT_SECONDS)
        try:
            connection.request(method, path, body, self._headers | headers)
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.headers.items()}, answer.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.send("GET", path, **headers)

    def post(self, path: str, body: Any, **headers: str) -> Answer:
        return self.send("POST", path, json.dumps(body).encode(), **headers)

    def translate(self, source: Any, **fields: Any) -> Any:
        """Returns the answer to a request that succeeds."""
        answer = self.post("/translate", {"source": source, **fields})
        assert answer.status == 200, answer.body
        return answer.json

    def refused(self, path: str, body: Any, status: int = 400) -> str:
        """Returns the sentence of a request that fails with this status."""
        answer = self.post(path, body)
        assert answer.status == status, answer.body
        assert answer.json.keys() == {"error"}
        assert "\n" not in answer.json["error"]
        return str(answer.json["error"])

    def wait_for(self, event: str) -> None:
        """Waits for an event of a server with `hold`."""
        assert self._events
        self._events.until(event)

    def release(self) -> None:
        """Lets a server with `hold` work on all batches."""
        assert self.process.stdin
        self.process.stdin.close()

    def end(self) -> str:
        """Sends SIGTERM; returns what `ended` returns."""
        self.process.send(signal.SIGTERM)
        return self.ended()

    def ended(self) -> str:
        """Waits for the regular end of the server; returns its log."""
        log = self.log()
        self.process.wait(0)
        return log

    def log(self) -> str:
        """Waits until the server writes no more; returns what it wrote to standard error."""
        return self._log.all()


def hold() -> None:
    """Makes a server say "queued", "batch" and "gone" on standard output, and wait before each batch.

    The events are a request that enters the queue, the start of a batch, and the end of a request whose client has
    closed the connection. Each byte on standard input lets one batch go on, and its end lets all go on.
    """
    run, work = Scheduler.run, Translate.__call__

    async def told(*arguments: Any) -> Any:
        os.write(1, b"queued\n")  # the items are in the queue before the server handles anything else
        try:
            return await run(*arguments)
        except asyncio.CancelledError:
            os.write(1, b"gone\n")
            raise

    def held(*arguments: Any) -> Any:
        os.write(1, b"batch\n")
        os.read(0, 1)
        return work(*arguments)

    Scheduler.run, Translate.__call__ = told, held  # type: ignore[method-assign]


def new_interpreter() -> None:
    """Runs the command in a new interpreter, as a shell does; give it to `running` as `instead`."""
    os.execv(sys.executable, [sys.executable, "-m", "nmt", *sys.argv[1:]])


@contextmanager
def running(
    *command: str | Path, before: Callable[[], object] | None = None, token: str = "", **options: Any
) -> Iterator[Server]:
    """Runs a command that serves, which must write no traceback.

    Args:
        before: what the process calls first, for example `hold`.
        token: is sent with every request.
        options: those of `forks.start`.
    """
    streams = dict.fromkeys(("stdin", "stdout") if before is hold else (), subprocess.PIPE)
    process = forks.start(*command, before=before, stderr=subprocess.PIPE, **streams, **options)
    try:
        server = Server(process, token)
        yield server
    finally:
        process.send(signal.SIGKILL)
        process.wait()
    assert "Traceback" not in server.log()


@contextmanager
def serving(*arguments: str | Path, **options: Any) -> Iterator[Server]:
    """Runs `nmt serve` on a free port; see `running`."""
    with running("serve", *arguments, "--port=0", **options) as server:
        yield server
