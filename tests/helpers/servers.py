"""Starts the commands that serve pages, and sends requests to them."""

import asyncio
import http.client
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import forks

from nmt.serving import server as server_module
from nmt.serving.scheduler import Scheduler
from nmt.serving.workers import Submit, Work

_LIMIT_SECONDS = 600  # a server that says or answers nothing for longer hangs


def head(length: int, *more: str) -> bytes:
    """Returns the head of a request to translate, which has the token "secret" and these further lines."""
    lines = ["POST /translate HTTP/1.1", "Host: localhost", "Authorization: Bearer secret", *more]
    return "\r\n".join([*lines, f"Content-Length: {length}", "Content-Type: application/json", "", ""]).encode()


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def texts(answer: Any) -> list[str]:
    """Returns the translations in an answer of `/translate`."""
    return [translation["text"] for translation in answer["translations"]]


class Server:
    """A running server.

    Attributes:
        log: what it has written to standard error until its address, and at the end everything.
    """

    def __init__(self, process: forks.Command, token: str) -> None:
        self.process, self.log = process, ""
        self._headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        while not (match := re.search(r"http://\S+?:([0-9]+)", self.log)):
            self.log += self._line(process.stderr)
        self._port = int(match[1])
        self.address = f"http://127.0.0.1:{self._port}/"

    def _line(self, pipe: Any) -> str:
        assert select.select([pipe], [], [], _LIMIT_SECONDS)[0], "the server hangs"
        line = pipe.raw.readline()  # of the unbuffered pipe, which `select` knows
        assert line, f"the server has ended: {self.log}"
        return str(line.decode())

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._port), timeout=_LIMIT_SECONDS)

    def send(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_LIMIT_SECONDS)
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
        while self._line(self.process.stdout) != f"{event}\n":
            pass

    def release(self) -> None:
        """Lets a server with `hold` work on all batches."""
        self.process.stdin.close()

    def ended(self) -> None:
        """Waits for a regular end."""
        self.process.wait(0)
        self.log += self.process.stderr.read().decode()


def hold() -> None:
    """Makes a server wait before each batch until `Server.release` is called; give it to `serving` as `before`.

    The server writes its events to standard output: "queued" for a request that has entered the queue, "batch" before a
    batch, and "gone" when it has given up a request.
    """
    run, started, thread = Scheduler.run, server_module.started, ThreadPoolExecutor(1)

    async def told(*arguments: Any) -> Any:
        os.write(1, b"queued\n")  # the items are in the queue before the server handles anything else
        try:
            return await run(*arguments)
        except asyncio.CancelledError:
            os.write(1, b"gone\n")
            raise

    def held(submit: Submit, work: Work) -> Any:
        os.write(1, b"batch\n")
        os.read(0, 1)
        return submit(work).result()

    @contextmanager
    def all_held(*arguments: Any) -> Iterator[list[Submit]]:
        with started(*arguments) as submits:
            yield [partial(thread.submit, held, submit) for submit in submits]

    Scheduler.run, server_module.started = told, all_held  # type: ignore[method-assign]


def new_interpreter() -> None:
    """Runs the command in a new interpreter, as a shell does; give it to `serving` as `instead`."""
    os.execv(sys.executable, [sys.executable, "-m", "nmt", *sys.argv[1:]])


@contextmanager
def running(*command: str | Path, token: str = "", **options: Any) -> Iterator[Server]:
    """Runs a command that serves, which must write no traceback.

    Args:
        token: is sent with every request.
        options: those of `forks.start`.
    """
    process = forks.start(*command, **dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE), **options)
    try:
        server = Server(process, token)
        yield server
    finally:
        process.send(signal.SIGKILL)
        process.wait()
    assert "Traceback" not in server.log + process.stderr.read().decode()


@contextmanager
def serving(*arguments: str | Path, **options: Any) -> Iterator[Server]:
    """Runs `nmt serve` on a free port; see `running`."""
    with running("serve", *arguments, "--port=0", **options) as server:
        yield server
