"""Guards the service: who may send requests, what they may ask for, and what is counted."""

import hmac
import ipaddress
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nmt.config import SearchConfig, ServeConfig
from nmt.errors import NmtError

# Fields of SearchConfig that the server sets.
_OF_SERVER = {"batch_tokens"}
_MOST_CONSTRAINTS = 16
_SURROGATE = re.compile("[\ud800-\udfff]")
# A translation may be this many pieces longer than its source at most.
_LARGEST_OFFSET = 256

# When clients may try again what was refused with 503.
RETRY = {"Retry-After": "1"}
# If the rest of a body stays unread, the connection cannot be used again.
_CLOSE = {"Connection": "close"}

SEARCH_FIELDS = [field for field in fields(SearchConfig) if field.name not in _OF_SERVER]


def search_config(values: Mapping[str, Any], limits: ServeConfig) -> SearchConfig:
    """Returns the options of search in a request."""
    known = {field.name for field in SEARCH_FIELDS}
    for name in values:
        if name not in known:
            raise NmtError(f"{name!r:.60} is no field of this request; /docs lists the fields")
    search = SearchConfig(**values)
    most = {"beam": limits.max_beam, "samples": limits.max_beam, "max_length_offset": _LARGEST_OFFSET}
    most["max_source_length"] = SearchConfig.max_source_length
    for name, largest in most.items():
        if getattr(search, name) > largest:
            raise NmtError(f"{name} must be at most {largest} on this server, but is {getattr(search, name)}")
    return search


def with_fields(message: str) -> str:
    """Returns a message that names flags with the names of the fields instead."""
    return re.sub(r"--([a-z][a-z-]*)", lambda flag: flag[1].replace("-", "_"), message)


def check_text(texts: Sequence[str], limits: ServeConfig) -> None:
    """Raises an error if a request has too much text, or text that is no Unicode."""
    characters = sum(map(len, texts))
    if characters > limits.max_characters:
        raise HTTPException(
            413,
            f"the request has {characters:,} characters of text, but at most {limits.max_characters:,} are allowed; "
            f"send it in parts",
        )
    if any(_SURROGATE.search(text) for text in texts):
        raise NmtError("the text has half of a surrogate pair, such as \\ud800; send whole characters")


def check_constraints(constraints: list[str]) -> None:
    """Raises NmtError if a request has too many constraints."""
    if len(constraints) > _MOST_CONSTRAINTS:
        raise NmtError(f"constraints must be at most {_MOST_CONSTRAINTS}, but are {len(constraints)}")


# What a page needs before its user can enter a token.
OPEN_PATHS = {"/", "/docs", "/openapi.json", "/health"}


@dataclass(frozen=True)
class Access:
    """The rules of a server.

    Attributes:
        hosts: names of this server that clients may use, besides its addresses. This stops DNS rebinding: a foreign
            domain can resolve to this machine, but its requests name that domain as their host.
        origins: foreign origins whose pages may send requests.
        token: the secret that requests need; None if they need none.
    """

    hosts: Collection[str]
    origins: Collection[str]
    token: str | None

    @classmethod
    def of(cls, config: ServeConfig) -> "Access":
        """Returns the rules that the options set."""
        hosts = {"localhost", config.host.lower(), *(host.lower() for host in config.allow_host)}
        return cls(hosts, set(config.allow_origin), _token(config.token_file))

    def check(self, path: str, headers: Mapping[str, str]) -> None:
        """Raises HTTPException if a request may not be answered."""
        host = headers.get("host", "")
        if not self._is_own(host):
            raise HTTPException(
                421, f"the host {host!r:.80} is not allowed; use the address of the server, or --allow-host"
            )
        origin = headers.get("origin")
        if origin is not None and origin not in self.origins and origin.partition("://")[2] != host:
            raise HTTPException(
                403, f"pages of {origin!r:.80} may not send requests; start the server with --allow-origin"
            )
        if self.token is not None and not is_open(path):
            given = headers.get("authorization", "").encode()
            if not hmac.compare_digest(given, f"Bearer {self.token}".encode()):
                message = "the request needs the header Authorization: Bearer with the token of this server"
                raise HTTPException(401, message)

    def _is_own(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        return name in self.hosts or _is_address(name)


def is_open(path: str) -> bool:
    """Returns whether a path needs no token: pages without content of users, and health."""
    return path in OPEN_PATHS or path.startswith("/static/")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _token(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        token = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise NmtError(f"--token-file {path} cannot be read ({error}); check the path") from error
    if not (token and token.isascii() and token.isprintable() and " " not in token):
        raise NmtError(f"--token-file {path} must have a secret of printable ASCII characters without spaces")
    return token


_SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
_SENTENCES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """The counters of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._requests = Counter(
            "nmt_requests", "Requests that were answered.", ["route", "status"], registry=self.registry
        )
        self._seconds = Histogram(
            "nmt_request_seconds", "Time to the answer.", ["route"], buckets=_SECONDS, registry=self.registry
        )
        self._batches = Histogram(
            "nmt_batch_sentences", "Sentences of a batch.", buckets=_SENTENCES, registry=self.registry
        )

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Counts a request."""
        self._requests.labels(route, status).inc()
        self._seconds.labels(route).observe(seconds)

    def batch_started(self, sentences: int) -> None:
        """Counts a batch."""
        self._batches.observe(sentences)

    def watch_queue(self, waiting: Callable[[], int]) -> None:
        """Reports the number of sentences that wait."""
        gauge = Gauge("nmt_waiting_sentences", "Sentences in the queue.", registry=self.registry)
        gauge.set_function(waiting)

    def text(self) -> bytes:
        """Returns all metrics."""
        return generate_latest(self.registry)


# Everything that a page loads is from this server, and nothing in it runs that is not a file of this server.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """An ASGI application around another one: it refuses requests, limits bodies, sets headers, and counts answers."""

    def __init__(self, app: ASGIApp, access: Access, metrics: Metrics, most_bytes: int, routes: set[str]) -> None:
        self.app, self.access, self.metrics, self.most_bytes, self.routes = app, access, metrics, most_bytes, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, by the application if nothing is wrong with it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        route, started = scope["path"] if scope["path"] in self.routes else "other", time.perf_counter()

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                self.metrics.answered(route, message["status"], time.perf_counter() - started)
            await send(message)

        try:
            headers = Headers(scope=scope)
            self.access.check(scope["path"], headers)
            length = headers.get("content-length", "0")
            if length.isdecimal() and int(length) > self.most_bytes:
                raise self._too_large()
        except HTTPException as error:
            await JSONResponse({"error": error.detail}, error.status_code, _CLOSE)(scope, receive, answer)
        else:
            await self.app(scope, self._limited(receive), answer)

    def _limited(self, receive: Receive) -> Receive:
        """Returns the same function, which raises an error when a body without known length becomes too large."""
        received = 0

        async def limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self.most_bytes:
                raise self._too_large()
            return message

        return limited

    def _too_large(self) -> HTTPException:
        return HTTPException(413, f"the body has more than {self.most_bytes:,} bytes; send the text in parts", _CLOSE)
