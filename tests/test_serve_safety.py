"""Malformed and hostile requests, foreign pages, and clients that go away: refused in a sentence, and survived."""

import asyncio
import json
import random
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest
import uvicorn
import virtual_time
from checkpoints import eloquent_checkpoint
from servers import Answer, Server, head, hold, serving
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from nmt.checkpoint import save_checkpoint
from nmt.serving import connections, gate
from nmt.serving.access import Access
from nmt.serving.metrics import Metrics

GOOD = json.dumps({"source": "some words", "max_length_offset": 2}).encode()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model.pt"
    save_checkpoint(eloquent_checkpoint(2), path)
    return path


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[Server]:
    (model.parent / "token").write_text("secret\n")
    options = ["--allow-host=mt.example", "--allow-origin=https://friend.example", "--max-waiting=40"]
    token_file = f"--token-file={model.parent / 'token'}"
    with serving(model, "--device=cpu", token_file, *options, token="secret") as running:
        yield running


def is_translated(server: Server) -> bool:
    return server.send("POST", "/translate", GOOD).status == 200


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


def attack(server: Server, draw: random.Random, repeats: int) -> None:
    paths = ["/translate", "/score", "/alternatives", "/attention"]
    for body in [body for _ in range(repeats) for body in hostile_bodies(draw)]:
        path = draw.choice(paths)
        answer = server.send("POST", path, body)
        assert is_refusal(answer), (path, body[:80], answer.body)
    assert is_translated(server)


def test_malformed_requests_are_refused(server: Server) -> None:
    attack(server, random.Random(3), 8)


@pytest.mark.nightly
def test_memory_stays_flat_in_thousands_of_malformed_requests(server: Server) -> None:
    draw, status = random.Random(4), Path(f"/proc/{server.process.pid}/status")
    attack(server, draw, 15)
    first, last = (
        (attack(server, draw, repeats), int(status.read_text().split("VmRSS:")[1].split()[0]))[1] for repeats in (1, 60)
    )
    assert last < first + 20_000


@pytest.mark.parametrize("path", [
    "/../../etc/passwd", "/static/../server.py", "/static/%2e%2e/server.py", "/static//etc/passwd",
    "/attention/..%2f..", "/%00", "/static/page.js%00.css", "/docs/../..", "/models/x", "/" + "a" * 3000,
])  # fmt: skip
def test_no_path_of_a_request_reaches_a_file(server: Server, path: str) -> None:
    answer = server.send("GET", path)
    assert answer.status == 404
    assert answer.json.keys() == {"error"}


def test_text_is_data(server: Server) -> None:
    source = "<script>alert(1)</script> \0 $(reboot) ' \" %s {0} \u202e \x1b[1m"
    answer = server.post("/translate", {"source": source})
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
    answer = server.send("POST", "/translate", GOOD, **headers)
    assert answer.status == status, answer.body
    if status == 200 and headers.get("Origin") == "https://friend.example":
        assert answer.headers["access-control-allow-origin"] == "https://friend.example"
    assert server.get("/health").status == 200
    assert server.get("/models", Authorization="").status == 401


BEGINNING = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret\r\n"
CHUNKS = BEGINNING + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("beginning, status", [
    (head(100 * 2**20), b"413"),
    (head(10**18), b"413"),
    (CHUNKS + b"30000\r\n" + b" " * 140_000, b"413"),
    (BEGINNING + b"X: " + b"a" * 65_536, b"400"),
])  # fmt: skip
def test_requests_that_are_too_large_are_refused_before_their_end(
    server: Server, beginning: bytes, status: bytes
) -> None:
    with server.connect() as client:
        client.sendall(beginning)
        assert client.makefile("rb").readline()[9:12] == status
    assert is_translated(server)


@pytest.mark.parametrize("data", [
    b"", b"\0\0\0\0", b"GET", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00", b"GET / HTTP/1.1\r\n\r\n",
    BEGINNING + b"Content-Length: -1\r\n\r\n",
    BEGINNING + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    head(1000) + GOOD,
])  # fmt: skip
def test_broken_http_is_refused_or_closed(server: Server, data: bytes) -> None:
    with server.connect() as client:
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        answer = client.makefile("rb").readline()
    assert not answer or answer[9:10] == b"4", answer
    assert is_translated(server)


HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
slow_senders = pytest.mark.parametrize("beginning, rest, last_status", [
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


def statuses(answers: bytes) -> list[bytes]:
    return [answer[:3] for answer in answers.split(b"HTTP/1.1 ")[1:]]


class Guarded:
    """An application behind the limits of the service, in virtual time; `open` lets a client connect to it."""

    def __init__(self, answer_seconds: float = 0, answer: str = "") -> None:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await asyncio.sleep(answer_seconds)
            await PlainTextResponse(answer)(scope, receive, send)

        guarded = gate.Gate(app, Access({"localhost"}, (), None), Metrics(), lambda: 0, 100_000, set())
        self._config = uvicorn.Config(guarded, http=connections.Connection, lifespan="off", log_config=None)
        self.state = ServerState()

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        ours, theirs = socket.socketpair()
        connection = connections.Connection(self._config, self.state, {})
        await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, theirs)
        return await asyncio.open_connection(sock=ours)


@slow_senders
def test_slow_senders_are_cut_off_after_ten_seconds(beginning: bytes, rest: bytes, last_status: bytes | None) -> None:
    async def drip() -> None:
        reader, writer = await Guarded().open()
        writer.write(beginning)
        answers = asyncio.create_task(reader.read())
        for byte in cycle(rest):
            if answers.done():
                break
            writer.write(bytes([byte]))
            await asyncio.sleep(3)
        assert asyncio.get_running_loop().time() == 12  # of virtual time, at the next byte
        assert statuses(await answers)[-1:] == ([last_status] if last_status else [])

    virtual_time.run(drip())


def test_slow_answers_are_not_cut_off() -> None:
    async def wait() -> None:
        reader, writer = await Guarded(answer_seconds=1000).open()
        writer.write(head(len(GOOD)) + GOOD + head(len(GOOD), "Connection: close") + GOOD)
        assert statuses(await reader.read()) == [b"200", b"200"]
        assert asyncio.get_running_loop().time() == 2000

    virtual_time.run(wait())


@pytest.mark.parametrize("seconds, is_whole", [(290, True), (310, False)])
def test_a_client_may_read_its_answer_for_five_minutes(seconds: float, is_whole: bool) -> None:
    async def wait() -> None:
        reader, writer = await Guarded(answer="a" * 5_000_000).open()
        writer.write(HEALTH + b"Connection: close\r\n\r\n")
        await asyncio.sleep(seconds)
        assert (len(await reader.read()) > 5_000_000) == is_whole

    virtual_time.run(wait())


def be_strict() -> None:
    connections.HEAD_SECONDS = gate.BODY_SECONDS = 1


@pytest.fixture(scope="module")
def strict_server(model: Path) -> Iterator[Server]:
    with serving(model, "--device=cpu", before=be_strict) as running:
        yield running


@pytest.mark.nightly
@slow_senders
def test_slow_senders_are_cut_off(
    strict_server: Server, beginning: bytes, rest: bytes, last_status: bytes | None
) -> None:
    answers = b""
    with strict_server.connect() as client, suppress(ConnectionError):
        client.settimeout(0.05)
        client.sendall(beginning)
        for byte in islice(cycle(rest), 1000):
            client.sendall(bytes([byte]))
            with suppress(TimeoutError):
                answers += (part := client.recv(65536))
                if not part:
                    break
    assert statuses(answers)[-1:] == ([last_status] if last_status else [])


def allow_three_connections() -> None:
    gate.MOST_CONNECTIONS, connections.HEAD_SECONDS = 3, 1e6


def test_too_many_connections_are_refused_until_some_are_closed(model: Path) -> None:
    with serving(model, "--device=cpu", before=allow_three_connections) as server, ExitStack() as others:
        opened = [others.enter_context(server.connect()) for _ in range(3)]
        refused = server.get("/health")
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert "too many connections" in refused.json["error"]
        for client in opened:
            client.shutdown(socket.SHUT_WR)
            assert client.recv(1) == b""  # the server has closed it
        assert server.get("/health").status == 200


def test_clients_that_go_away_free_their_places(model: Path) -> None:
    many = json.dumps({"source": ["some words"] * 30}).encode()
    with serving(model, "--device=cpu", "--max-waiting=40", before=hold) as server:
        with server.connect() as at_work, server.connect() as waiting:
            at_work.sendall(head(len(GOOD)) + GOOD)
            server.wait_for("batch")
            waiting.sendall(head(len(many)) + many)
            server.wait_for("queued")
            refused = server.send("POST", "/translate", many)
            assert (refused.status, refused.headers["retry-after"]) == (503, "1")
            assert refused.json["error"] == "too many sentences are waiting; try again later"
        server.wait_for("gone")
        server.wait_for("gone")
        assert b"nmt_waiting_sentences 0.0" in server.get("/metrics").body
        server.release()
        assert len(server.translate(["some words"] * 30)["translations"]) == 30


def test_requests_that_take_too_long_are_given_up(model: Path) -> None:
    with serving(model, "--device=cpu", "--max-seconds=0.1", before=hold) as server:
        late = server.post("/translate", {"source": "some words"})
        assert (late.status, late.headers["retry-after"]) == (503, "1")
        assert "takes more than 0.1 seconds" in late.json["error"]
        server.wait_for("gone")


@pytest.mark.parametrize("options, shown", [
    ([], r"serving en-de on http://127.0.0.1:\d+; Ctrl-C ends it\n"),
    (["--host=0.0.0.0", "--log-text"],
     r"warning: everyone who can reach 0.0.0.0 can use this server; set --token-file\n"
     r"serving en-de on http://0.0.0.0:\d+; Ctrl-C ends it\n/translate .*some words.* -> .*'translations'.*\n"),
])  # fmt: skip
def test_text_is_in_the_log_only_if_asked_for_and_open_servers_are_warned_about(
    model: Path, options: list[str], shown: str
) -> None:
    with serving(model, "--device=cpu", *options) as server:
        server.translate("some words")
        server.refused("/translate", {"source": "some words", "beam": 99})
        assert re.fullmatch(shown, server.end())
