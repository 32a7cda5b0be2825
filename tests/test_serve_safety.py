"""Malformed and hostile requests, foreign pages, and clients that go away: refused in a sentence, and survived."""

import json
import random
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from checkpoints import eloquent_checkpoint
from servers import Answer, Server, serving

from nmt.checkpoint import save_checkpoint

# Each hostile request is sent this often, with a random part changed every time.
REPEATS = 60
GOOD = json.dumps({"source": "some words", "max_length_offset": 2}).encode()
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model.pt"
    save_checkpoint(eloquent_checkpoint(2), path)
    return path


@pytest.fixture(scope="module")
def server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    (folder / "token").write_text("secret\n")
    options = ["--token-file", folder / "token", "--allow-host=mt.example", "--allow-origin=https://friend.example"]
    with serving(folder, model, "--device=cpu", "--max-waiting=40", *options) as running:
        yield running


@pytest.fixture(scope="module")
def strict_server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    limits = "connections.HEAD_SECONDS = gate.BODY_SECONDS = 1; gate.MOST_CONNECTIONS = 3"
    with serving(tmp_path_factory.mktemp("strict"), model, "--device=cpu", limits=limits) as running:
        yield running


def authorized(**headers: str) -> dict[str, str]:
    return {"Authorization": "Bearer secret", **headers}


def translated(server: Server) -> bool:
    return server.send("POST", "/translate", GOOD, authorized()).status == 200


def raw(server: Server, data: bytes) -> bytes:
    """Returns what the server sends until it closes the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
        answer = b""
        try:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            while part := client.recv(65536):
                answer += part
        except OSError:  # it refused to read the rest
            pass
        return answer


def head(length: int, path: str = "/translate", more: str = "") -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Authorization: Bearer secret", "Connection: close"]
    return "\r\n".join([*lines, f"Content-Length: {length}", f"Content-Type: application/json{more}", "", ""]).encode()


def hostile_bodies(draw: random.Random) -> list[bytes]:
    noise = bytes(draw.randrange(256) for _ in range(draw.randrange(1, 200)))
    deep = draw.randrange(1000, 15_000)
    path = "../" * draw.randrange(1, 9) + "etc/passwd"
    objects: list[Any] = [
        {"source": draw.choice([None, 3, {}, [[]], [None], True])},
        {"source": "a", "beam": draw.choice([0, -1, 10**9, "4", 1.5, None, [], "9" * 5000])},
        {"source": "a", "model": path},
        {"source": "a", path: "x"},
        {"source": "a", "prefix": ["<script>alert(1)</script>"]},
        {"source": "a", "temperature": draw.choice([float("nan"), float("inf"), -1, 5])},
        {"source": "ab " * draw.randrange(4000, 9000)},
        {"source": ["x"] * draw.randrange(41, 3000)},
        {"source": "\ud800" * draw.randrange(1, 9)},
        [],
        "text",
        draw.random(),
    ]
    bodies = [json.dumps(value).encode() for value in objects]
    bodies += [b"[" * deep, b'{"source":' * deep, b'{"source": "' + noise + b'\xff"}', noise, b"", b"\0" * 50]
    return [*bodies, GOOD[: draw.randrange(1, len(GOOD))], b'{"source": ' + b"9" * 5000 + b"}", b'{"source": 1e999}']


def is_refusal(answer: Answer) -> bool:
    sentence = answer.json["error"]
    return 400 <= answer.status < 500 and "\n" not in sentence and len(sentence) < 400 and "Traceback" not in sentence


def memory_kib(server: Server) -> int:
    status = Path(f"/proc/{server.process.pid}/status")
    return int(status.read_text().split("VmRSS:")[1].split()[0]) if status.exists() else 0


def test_malformed_requests_are_refused_and_memory_stays_flat(server: Server) -> None:
    draw = random.Random(3)
    paths = ["/translate", "/score", "/alternatives", "/attention"]

    def attack(seeds: range) -> None:
        bodies = [(draw.choice(paths), body) for _ in seeds for body in hostile_bodies(draw)]
        for path, body in bodies:
            answer = server.send("POST", path, body, authorized())
            assert is_refusal(answer), (path, body[:80], answer.body)

    attack(range(REPEATS // 4))
    assert translated(server)
    before = memory_kib(server)
    attack(range(REPEATS))
    assert translated(server)
    assert memory_kib(server) < before + 20_000
    assert "Traceback" not in server.log.read_text()


@pytest.mark.parametrize("path", [
    "/../../etc/passwd", "/static/../server.py", "/static/%2e%2e/server.py", "/static//etc/passwd",
    "/attention/..%2f..", "/%00", "/static/page.js%00.css", "/docs/../..", "/models/x", "/" + "a" * 3000,
])  # fmt: skip
def test_no_path_of_a_request_reaches_a_file(server: Server, path: str) -> None:
    answer = server.send("GET", path, headers=authorized())
    assert answer.status == 404
    assert answer.json.keys() == {"error"}


def test_text_is_data(server: Server) -> None:
    source = "<script>alert(1)</script> \0 $(reboot) ' \" %s {0} \u202e \x1b[1m"
    answer = server.send("POST", "/translate", json.dumps({"source": source}).encode(), authorized())
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    for found in (answer, server.get("/")):
        assert "default-src 'none'; script-src 'self'" in found.headers["content-security-policy"]
        assert found.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("headers, status", [
    ({"Host": "evil.example"}, 421),
    ({"Host": "localhost.evil.example:8000"}, 421),
    ({"Host": "mt.example"}, 200),
    ({"Host": "127.0.0.1:1"}, 200),
    ({"Host": "[::1]:8000"}, 200),
    ({"Host": "a]b"}, 421),
    ({"Origin": "https://evil.example"}, 403),
    ({"Origin": "null"}, 403),
    ({"Origin": "http://["}, 403),
    ({"Origin": "https://friend.example"}, 200),
    ({"Origin": "http://mt.example", "Host": "mt.example"}, 200),
    ({"Authorization": "Bearer secrets"}, 401),
    ({"Authorization": "Bearer wrong"}, 401),
    ({"Authorization": "secret"}, 401),
    ({"Authorization": ""}, 401),
])  # fmt: skip
def test_host_origin_and_token_are_checked(server: Server, headers: dict[str, str], status: int) -> None:
    answer = server.send("POST", "/translate", GOOD, authorized() | headers)
    assert answer.status == status, answer.body
    if status == 200 and headers.get("Origin") == "https://friend.example":
        assert answer.headers["access-control-allow-origin"] == "https://friend.example"
    assert server.get("/health").status == 200
    assert server.get("/models").status == 401


def test_bodies_that_are_too_large_are_not_read(server: Server) -> None:
    assert translated(server)
    before = memory_kib(server)
    for length in (100 * 2**20, 10**18):
        assert raw(server, head(length) + b"x" * 100_000)[9:12] in (b"413", b"")
    chunks = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret\r\n"
    chunks += b"Transfer-Encoding: chunked\r\n\r\n" + (b"10000\r\n" + b" " * 65536 + b"\r\n") * 40
    assert raw(server, chunks)[9:12] in (b"413", b"")
    assert raw(server, b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 2**20)[9:12] in (b"400", b"")
    assert translated(server)
    assert memory_kib(server) < before + 20_000


@pytest.mark.parametrize("data", [
    b"", b"\0\0\0\0", b"GET", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00", b"GET / HTTP/1.1\r\n\r\n",
    b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    head(1000) + GOOD,
])  # fmt: skip
def test_broken_http_is_refused_or_closed(server: Server, data: bytes) -> None:
    answer = raw(server, data)
    assert not answer or answer[9:10] == b"4", answer
    assert translated(server)


def dripped(server: Server, start: bytes, rest: bytes) -> bytes:
    """Sends `start`, then `rest` byte by byte, again and again; returns what the server sends until it gives up."""
    answer = b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=0.05) as client:
        client.sendall(start)
        deadline = time.monotonic() + 60
        with suppress(ConnectionError):
            for byte in cycle(rest):
                assert time.monotonic() < deadline, answer
                client.sendall(bytes([byte]))
                with suppress(TimeoutError):
                    answer += (part := client.recv(65536))
                    if not part:
                        break
    return answer


HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize("start, rest, last_status", [
    (b"", b"\r\n", None),
    (b"GET /", b"a", None),
    (HEALTH, b"X: a\r\n", None),
    (HEALTH + b"\r\n", b"\r\n", b"200"),
    (HEALTH + b"\r\n" + HEALTH, b"X: a\r\n", b"200"),
    (head(1000), b" ", b"408"),
    (HEALTH + b"Content-Length: 1000\r\n\r\n", b" ", b"408"),
    (HEALTH + b"\r\n" + head(1000), b" ", b"408"),
    (HEALTH + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n", b"408"),
    (HEALTH + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X: a\r\n", b"408"),
])  # fmt: skip
def test_slow_senders_are_cut_off(strict_server: Server, start: bytes, rest: bytes, last_status: bytes | None) -> None:
    statuses = [part[:3] for part in dripped(strict_server, start, rest).split(b"HTTP/1.1 ")[1:]]
    assert statuses[-1:] == ([last_status] if last_status else [])


def test_slow_answers_are_not_cut_off(strict_server: Server) -> None:
    long = json.dumps({"source": ["some words to learn " * 9] * 12, "beam": 8, "max_length_offset": 256}).encode()
    reused = head(len(GOOD)).replace(b"Connection: close\r\n", b"") + GOOD
    with socket.create_connection(("127.0.0.1", strict_server.port), timeout=60) as client:
        client.sendall(reused + head(len(long)) + long)
        answer = b""
        while part := client.recv(65536):
            answer += part
    assert answer.count(b"HTTP/1.1 200") == 2


def test_too_many_connections_are_refused_until_some_are_closed(strict_server: Server) -> None:
    def crowded() -> Answer:
        with ExitStack() as others:
            for _ in range(3):
                others.enter_context(socket.create_connection(("127.0.0.1", strict_server.port)))
            return strict_server.get("/health")

    deadline = time.monotonic() + 60
    while (refused := crowded()).status != 503:  # on a slow machine, the others have been cut off by now
        assert time.monotonic() < deadline
    assert refused.headers["retry-after"] == "1"
    assert "too many connections" in refused.json["error"]
    while strict_server.get("/health").status != 200:
        assert time.monotonic() < deadline


def test_clients_that_go_away_free_their_places(server: Server) -> None:
    body = json.dumps({"source": ["some words to learn " * 12] * 30}).encode()
    clients = []
    for _ in range(3):
        client = socket.create_connection(("127.0.0.1", server.port), timeout=30)
        client.sendall(head(len(body)) + body)
        clients.append(client)
    refused = [server.send("POST", "/translate", body, authorized()) for _ in range(2)]
    assert all(answer.status == 503 and answer.headers["retry-after"] for answer in refused)
    for client in clients:
        client.close()
    deadline = time.monotonic() + 60
    while b"nmt_waiting_sentences 0.0" not in server.send("GET", "/metrics", headers=authorized()).body:
        assert time.monotonic() < deadline
    with ThreadPoolExecutor(4) as clients_again:
        assert all(clients_again.map(lambda _: translated(server), range(8)))


def test_no_text_is_in_the_log(server: Server) -> None:
    assert "some words" not in server.log.read_text()


def test_text_is_in_the_log_if_asked_for_and_open_servers_are_warned_about(model: Path, tmp_path: Path) -> None:
    options = ["--device=cpu", "--log-text", "--host=0.0.0.0", "--max-seconds=0.0001"]
    with serving(tmp_path, model, *options) as server:
        assert "warning: everyone who can reach 0.0.0.0 can use this server" in server.log.read_text()
        slow = server.post("/translate", {"source": "some words"})
        assert (slow.status, slow.headers["retry-after"]) == (503, "1")
        assert "takes more than 0.0001 seconds" in slow.json["error"]
        assert server.stop() == 0
