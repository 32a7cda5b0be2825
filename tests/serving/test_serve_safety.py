"""Malformed and hostile requests, foreign pages, and clients that go away: refused in a sentence, and survived."""

import json
import random
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pytest
from checkpoints import eloquent_checkpoint, saved
from servers import Server, head, hold, serving

from nmt.serving import server as server_module

GOOD = json.dumps({"source": "some words", "max_length_offset": 2}).encode()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(eloquent_checkpoint(2), tmp_path_factory.mktemp("model") / "model.safetensors")


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[Server]:
    (model.parent / "token").write_text("secret\n")
    options = ["--allow-host=mt.example", "--allow-origin=https://friend.example", "--max-waiting=40"]
    with serving(model, "--device=cpu", "--token-file", model.parent / "token", *options, token="secret") as running:
        yield running


def is_translated(server: Server) -> bool:
    return server.send("POST", "/translate", GOOD).status == 200


def hostile_bodies(draw: random.Random) -> list[bytes]:
    noise = bytes(draw.randrange(256) for _ in range(draw.randrange(1, 200)))
    deep = draw.randrange(1000, 15_000)
    path = "../" * draw.randrange(1, 9) + "etc/passwd"
    objects: list[Any] = [
        {"source": draw.choice([None, {}, [[]], [None], True])},
        {"source": "a", "beam": draw.choice([0, -1, 10**9, "4", 1.5, None, [], "9" * 5000])},
        {"source": "a", "model": path},
        {"source": "a", path: "x"},
        {"source": "a", "prefix": ["<script>alert(1)</script>"]},
        {"source": "a", "temperature": draw.choice([float("nan"), float("inf"), -1, 5])},
        {"source": ["x"] * draw.randrange(41, 3000)},
        draw.choice([[], "text", draw.random(), None]),
    ]
    bodies = [json.dumps(value).encode() for value in objects]
    bodies += [b"[" * deep, b'{"source":' * deep, b'{"source": "' + noise + b'\xff"}', noise, b"", b"\0" * 50]
    return [*bodies, GOOD[: draw.randrange(1, len(GOOD))], b'{"source": ' + b"9" * 5000 + b"}", b'{"source": 1e999}']


def attack(server: Server, draw: random.Random, repeats: int) -> None:
    for _ in range(repeats):
        for body in hostile_bodies(draw):
            path = draw.choice(["/translate", "/score", "/alternatives", "/attention"])
            answer = server.send("POST", path, body)
            assert 400 <= answer.status < 500, (path, body[:80], answer.body)
            assert re.fullmatch(".{1,400}", answer.json["error"]), (path, body[:80], answer.body)
    assert is_translated(server)


def test_malformed_requests_are_refused(server: Server) -> None:
    attack(server, random.Random(3), 8)


@pytest.mark.nightly
def test_memory_stays_flat_in_thousands_of_malformed_requests(server: Server) -> None:
    draw, sizes = random.Random(4), []
    for repeats in (15, 60):
        attack(server, draw, repeats)
        status = Path(f"/proc/{server.process.pid}/status").read_text()
        sizes.append(int(status.split("VmRSS:")[1].split()[0]))
    assert sizes[1] < sizes[0] + 20_000


def test_no_path_of_a_request_reaches_a_file(server: Server) -> None:
    for path in (
        "/../../etc/passwd", "/static/../server.py", "/static/%2e%2e/server.py", "/static//etc/passwd",
        "/attention/..%2f..", "/%00", "/static/page.js%00.css", "/docs/../..", "/models/x", "/" + "a" * 3000,
    ):  # fmt: skip
        answer = server.get(path)
        assert (answer.status, [*answer.json]) == (404, ["error"]), path


def test_text_is_data(server: Server) -> None:
    source = "<script>alert(1)</script> \0 $(reboot) ' \" %s {0} \u202e \x1b[1m"
    answer = server.post("/translate", {"source": source})
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    for response in (answer, server.get("/")):
        assert "default-src 'none'; script-src 'self'" in response.headers["content-security-policy"]
        assert response.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("name, status, values", [
    ("Host", 200, ["mt.example", "127.0.0.1:1", "[::1]:8000"]),
    ("Host", 421, ["evil.example", "localhost.evil.example:8000", "a]b"]),
    ("Origin", 403, ["https://evil.example", "null", "http://["]),
    ("Authorization", 401, ["Bearer secrets", "Bearer wrong", "secret", "", "Basic secret", "bearer SECRET"]),
    ("Authorization", 200, ["bearer secret", "BEARER secret", "Bearer   secret", "bEaReR secret "]),
])  # fmt: skip
def test_host_origin_and_token_are_checked(server: Server, name: str, status: int, values: list[str]) -> None:
    for value in values:
        assert server.post("/translate", {"source": "a"}, **{name: value}).status == status, value


def test_allowed_pages_may_send_requests_and_pages_without_content_need_no_token(server: Server) -> None:
    for name in ("mt.example", socket.gethostname()):
        assert server.post("/translate", {"source": "a"}, Origin=f"http://{name}", Host=name).status == 200
    other = {"Origin": "http://not-mt.example", "Host": "mt.example"}
    assert server.post("/translate", {"source": "a"}, **other).status == 403
    answer = server.post("/translate", {"source": "a"}, Origin="https://friend.example")
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, "https://friend.example")
    assert server.get("/health", Authorization="").status == 200
    assert server.get("/models", Authorization="").status == 401


HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
BEGINNING = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret\r\n"
CHUNKS = BEGINNING + b"Transfer-Encoding: chunked\r\n\r\n"
MOST_BYTES = 12 * 10_000 + 16_384  # of a body


def test_requests_that_are_too_large_are_refused_before_their_end(server: Server) -> None:
    too_long = b" " * (MOST_BYTES + 1)
    chunk = CHUNKS + b"30000\r\n" + too_long
    for beginning in (head(10**9) + too_long, chunk, (BEGINNING + b"X: ").ljust(65_537, b"a")):
        with server.connect() as client:
            client.sendall(beginning)
            status = client.makefile("rb").readline()[9:12]
        assert status == (b"400" if b"X: " in beginning else b"413")
    assert is_translated(server)


LARGE = 24 * 2**20  # more than the buffers of a connection hold


@pytest.mark.parametrize("close", ["", "Connection: close\r\n"])
@pytest.mark.parametrize("status, request_line, header", [
    (413, "POST /translate", "Content-Length"),
    (413, "POST /score", "Transfer-Encoding"),
    (413, "POST /documents?name=a.txt", "Content-Length"),
    (401, "POST /translate", "Authorization"),
    (403, "POST /translate", "Origin"),
    (421, "POST /documents?name=a.txt", "Host"),
    (404, "POST /nowhere", "Content-Length"),
    (405, "PUT /models", "Content-Length"),
])  # fmt: skip
def test_a_refusal_reaches_a_client_that_reads_it_behind_its_whole_body(
    server: Server, status: int, request_line: str, header: str, close: str
) -> None:
    """A connection that is closed with a part of the body unread is reset, and the client loses the answer."""
    headers = {"Host": "localhost", "Authorization": "Bearer secret", "Content-Length": str(LARGE)}
    headers |= {"Host": {"Host": "evil.example"}, "Origin": {"Origin": "https://evil.example"}}.get(header, {})
    body = b" " * LARGE
    if header == "Authorization":
        headers["Authorization"] = "Bearer wrong"
    if header == "Transfer-Encoding":
        del headers["Content-Length"]
        headers, body = headers | {"Transfer-Encoding": "chunked"}, b"%x\r\n%s\r\n0\r\n\r\n" % (LARGE, body)
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    with server.connect() as client:
        client.sendall(f"{request_line} HTTP/1.1\r\n{lines}{close}\r\n".encode() + body)
        answer = HTTPResponse(client)
        answer.begin()
        assert answer.status == status and json.loads(answer.read())["error"]


def test_a_client_that_sends_no_more_is_not_waited_for(server: Server) -> None:
    with server.connect() as client:  # which waits for the status before it sends its body
        client.sendall(head(10**9, "Expect: 100-continue").replace(b"secret", b"wrong"))
        assert client.makefile("rb").readline()[9:12] == b"401"
    assert is_translated(server)


def test_broken_http_is_refused_or_closed(server: Server) -> None:
    for data in (
        b"", b"\0\0\0\0", b"GET", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET / HTTP/1.1\r\n\r\n", BEGINNING + b"Content-Length: -1\r\n\r\n",
        BEGINNING + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", head(1000) + GOOD,
    ):  # fmt: skip
        with server.connect() as client:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            answer = client.makefile("rb").readline()
        assert not answer or answer[9:10] == b"4", (data, answer)
    assert is_translated(server)


def allow_three_connections() -> None:
    server_module._MOST_CONNECTIONS = 3


def test_too_many_connections_are_refused_until_some_are_closed(model: Path) -> None:
    with serving(model, "--device=cpu", before=allow_three_connections) as server, ExitStack() as others:
        opened = [others.enter_context(server.connect()) for _ in range(3)]
        assert server.get("/health").status == 503
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


def test_text_is_in_the_log_only_if_asked_for_and_open_servers_are_warned_about(model: Path, tmp_path: Path) -> None:
    (tmp_path / "terms").write_text("words\twords\n")
    for options in ([], ["--log-text", "--host=0.0.0.0"]):
        with serving(model, "--device=cpu", f"--glossary=terms={tmp_path}/terms", *options) as server:
            server.translate("some words " * 10, glossary="terms", max_source_length=16)
            server.refused("/translate", {"source": "some words", "beam": 99})
            server.process.send(signal.SIGTERM)
            server.ended()
        serving_line = r"serving en-de on http://(\S+):\d+; Ctrl-C ends it\n"
        warning = "warning: everyone in the network can use this server; set --token-file\n"
        long = "warning: the glossary is not used for a line, .*\nwarning: line 1 has 30 pieces, .* in 2 parts\n"
        translated = "/translate .*some words.* -> .*'translations'.*\n"
        shown = f"{warning}{serving_line}{long}{translated}" if options else f"{serving_line}{long}"
        log = re.fullmatch(shown, server.log)
        assert log and ("some words" in server.log) == bool(options)
        socket.create_server((log[1], 0)).close()  # the address is one of this machine
