"""Starts `nmt serve` in a process of its own, and sends requests to it."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Server:
    """A running server.

    Attributes:
        log: the file that its standard error goes to.
    """

    port: int
    process: "subprocess.Popen[bytes]"
    log: Path

    def send(self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"} | (headers or {}))
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.headers.items()}, answer.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.send("GET", path, headers=headers)

    def post(self, path: str, body: Any, **headers: str) -> Answer:
        return self.send("POST", path, json.dumps(body).encode(), headers)

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

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Returns the exit code of the server, which gets a signal."""
        self.process.send_signal(number)
        return self.process.wait(60)


@contextmanager
def serving(folder: Path, *arguments: str | Path, limits: str = "") -> Iterator[Server]:
    """Runs `nmt serve` on a free port; its log is in the folder.

    Args:
        limits: assignments to constants of the modules `connections` and `gate`, such as `gate.BODY_SECONDS = 1`.
    """
    log = folder / "serve.log"
    code = f"from nmt import __main__\nfrom nmt.serving import connections, gate\n{limits}\n__main__.main()"
    start = ["-c", code] if limits else ["-m", "nmt"]
    command = [sys.executable, *start, "serve", *map(str, arguments), "--port=0"]
    with log.open("wb") as file:
        process = subprocess.Popen(command, stderr=file, env=os.environ | {"OMP_NUM_THREADS": "1"})
    try:
        yield Server(_port(process, log), process, log)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        process.wait()


def _port(process: "subprocess.Popen[bytes]", log: Path) -> int:
    """Returns the port that the log names, as soon as it does."""
    while not (found := re.search(r"serving .* on http://\S+:([0-9]+)", log.read_text())):
        with suppress(subprocess.TimeoutExpired):
            raise AssertionError(f"exit code {process.wait(0.05)}: {log.read_text()}")
    return int(found[1])
