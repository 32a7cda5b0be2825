"""Guards the service: who may send requests, what they may ask for, how long they take, and what is counted."""

import asyncio
import hmac
import ipaddress
import json
import re
import time
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from email.message import Message as Head
from email.parser import HeaderParser
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from fastapi import FastAPI
from prometheus_client import Counter, Gauge, Histogram
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from nmt import console
from nmt.config import SearchConfig, ServeConfig
from nmt.errors import NmtError
from nmt.jobs.pool import WorkerDiedError

_SURROGATE = re.compile("[\ud800-\udfff]")
# A translation may be this many pieces longer than its source at most.
_LARGEST_OFFSET = 256
# A line is translated in parts of at least this many pieces, so that there are not too many parts.
LEAST_PART = 16

# When clients may try again what was refused with 503.
RETRY = {"Retry-After": "1"}
# If the rest of a body stays unread, the connection cannot be used again.
_CLOSE = {"Connection": "close"}

SEARCH_FIELDS = [field for field in fields(SearchConfig) if field.name != "batch_tokens"]  # which the server sets
_FLAGS_OF_FIELDS = {"source", "target", *(field.name for field in SEARCH_FIELDS)}


def at_once(limits: ServeConfig) -> int:
    """Returns how many tokens of a batch are translated at once, padding included. Only long lines have more."""
    return 4 * limits.batch_tokens


def search_config(values: Mapping[str, Any], limits: ServeConfig) -> SearchConfig:
    """Returns the options of search in a request."""
    if unknown := values.keys() - {field.name for field in SEARCH_FIELDS}:
        raise NmtError(f"{min(unknown)!r:.60} is no field of this request; /docs lists the fields")
    search = SearchConfig(**{"beam": min(SearchConfig.beam, limits.max_beam), **values}, batch_tokens=at_once(limits))
    most = {
        "beam": limits.max_beam,
        "samples": limits.max_beam,
        "max_length_offset": _LARGEST_OFFSET,
        "max_source_length": SearchConfig.max_source_length,
    }
    for name, largest in most.items():
        if getattr(search, name) > largest:
            raise NmtError(f"{name} must be at most {largest} on this server, but is {getattr(search, name)}")
    if search.max_source_length < LEAST_PART:
        least = f"max_source_length must be at least {LEAST_PART} on this server"
        raise NmtError(f"{least}, but is {search.max_source_length}")
    return search


def explained(error: Exception) -> str:
    """Returns why a request or a document failed, in a sentence."""
    if isinstance(error, HTTPException):
        return error.detail
    if isinstance(error, WorkerDiedError):
        return "a worker process of the server died; send less or try again later"
    return _with_fields(str(error)) if isinstance(error, NmtError) else "the server has a bug, which its log describes"


def _with_fields(message: str) -> str:
    """Returns a message in which the fields of a request have their own names instead of those of flags."""

    def named(flag: re.Match[str]) -> str:
        name = flag[1].replace("-", "_")
        return name if name in _FLAGS_OF_FIELDS else flag[0]

    return re.sub("--([a-z][a-z-]*)", named, message)


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


def token_in(path: str | None) -> str | None:
    """Returns the secret in the file of --token-file; None if the option was not given."""
    if path is None:
        return None
    try:
        token = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise NmtError(f"--token-file {path} cannot be read ({error}); check the path") from error
    if not (token and token.isascii() and token.isprintable() and " " not in token):
        raise NmtError(f"--token-file {path} must have a secret of printable ASCII characters without spaces")
    return token


class File(NamedTuple):
    """A file in a form."""

    name: str
    content: bytes


# Parts of a multipart form, and bytes of the head of one.
_MOST_PARTS, _MOST_HEAD_BYTES = 32, 4096


def _multipart(body: bytes, kind: str) -> dict[str, list[Any]]:
    """Returns the fields of a multipart form (RFC 7578). The value of a file is a `File`."""
    head, found = Head(), dict[str, list[Any]]()
    head["Content-Type"] = kind
    boundary = head.get_boundary()
    parts = (b"\r\n" + body).split(f"\r\n--{boundary}".encode(), _MOST_PARTS)[1:_MOST_PARTS] if boundary else []
    for part in parts:
        start, _, content = part.partition(b"\r\n\r\n")
        if len(start) <= _MOST_HEAD_BYTES:
            of_part = HeaderParser().parsestr(start.decode(errors="replace").strip())
            try:
                name, file = of_part.get_param("name", header="content-disposition"), of_part.get_filename()
            except (TypeError, ValueError):  # named in several ways; bytes that are not in the encoding
                message = "a part of the form names its file in several ways or is not in UTF-8; name it once, in UTF-8"
                raise HTTPException(400, message) from None
            if isinstance(name, str):  # what follows the last part has none
                value = content.decode(errors="replace") if file is None else File(file, content)
                found.setdefault(name, []).append(value)
    return found


async def form_fields(request: Request) -> dict[str, Any]:
    """Returns the fields in the address and in the body of a request, which is a JSON object or a form.

    A field that is given several times is a list. A body of another kind has no fields.
    """
    form: dict[str, list[Any]] = dict(parse_qs(request.url.query, keep_blank_values=True))
    body, full_kind, found = await request.body(), request.headers.get("content-type", ""), None
    kind = full_kind.partition(";")[0].strip().lower()
    if kind == "application/json":
        with suppress(ValueError, RecursionError):
            found = json.loads(body)
    elif kind == "application/x-www-form-urlencoded":
        form |= parse_qs(body.decode(errors="replace"), keep_blank_values=True)
    elif kind == "multipart/form-data":
        form |= _multipart(body, full_kind)
    given = {name: values[0] if len(values) == 1 else values for name, values in form.items()}
    return given | found if isinstance(found, dict) else given


def failure(path: str, status: int, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Returns the answer to a request that fails."""
    message = message.encode(errors="replace").decode()  # it may quote half of a surrogate pair
    return JSONResponse({"message" if path.startswith(_DEEPL) else "error": message}, status, headers)


async def answered(request: Request, config: ServeConfig, work: Coroutine[Any, Any, Any]) -> JSONResponse:
    """Does the work for a request and returns the answer. Gives up if it takes too long or the client goes away."""
    found = await _unless_gone(request, work, config.max_seconds)
    if config.log_text:
        given = (await form_fields(request)).items()
        fields = {name: value for name, value in given if name != "api_key" and not isinstance(value, File)}
        console.info(f"{request.url.path} {json.dumps(fields, ensure_ascii=False)} -> {found}")
    return JSONResponse(found)


async def _unless_gone(request: Request, work: Coroutine[Any, Any, Any], seconds: float) -> Any:
    """Returns the result of the work, unless it takes too long or the client goes away."""
    working = asyncio.create_task(work)
    gone = asyncio.create_task(_gone(request))
    try:
        async with asyncio.timeout(seconds):
            await asyncio.wait((working, gone), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise HTTPException(499, "the client has gone")
            return working.result()
    except TimeoutError:
        message = f"the answer takes more than {seconds:g} seconds; send less text or try again"
        raise HTTPException(503, message, RETRY) from None
    finally:
        working.cancel()
        gone.cancel()


async def _gone(request: Request) -> None:
    """Returns when the client has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


# What GET /metrics shows.
_BUCKETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
REQUESTS = Counter("nmt_requests", "Requests that were answered.", ["route", "status"])
SECONDS = Histogram("nmt_request_seconds", "Time to the answer.", ["route"], buckets=_BUCKETS)
BATCHES = Histogram("nmt_batch_sentences", "Sentences of a batch.", buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256))
WAITING = Gauge("nmt_waiting_sentences", "Sentences in the queue.")

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
# The paths that a page needs before its user enters a token, besides static files.
_OPEN_PATHS = {"/", "/docs", "/openapi.json", "/health"}
# The prefix of DeepL's paths. The prefix that the guard gives to LibreTranslate's paths for texts and files.
_DEEPL, LIBRETRANSLATE = "/v2/", "/libretranslate"
# The paths of LibreTranslate that need no token.
_KEYLESS_PATHS = {"/languages", "/frontend/settings"}
# The paths that take documents. Clients of LibreTranslate download by a name that nobody can guess, without the token.
TRANSLATE_FILE, DOWNLOAD_FILE = "/translate_file", "/download_file/"
# The paths of LibreTranslate whose requests may have the token as a field.
_LIBRETRANSLATE_PATHS = {
    f"{prefix}{path}" for prefix in ("", LIBRETRANSLATE) for path in ("/translate", "/detect", TRANSLATE_FILE)
}
_UPLOAD_PATHS = {"/documents", "/v2/document", TRANSLATE_FILE, f"{LIBRETRANSLATE}{TRANSLATE_FILE}"}
# Documents that may be uploaded, and be translated, at the same time.
UPLOADS = 8
# A character takes at most 12 bytes of JSON, as two escaped surrogates. The rest is for options.
_BYTES_OF_CHARACTER, _BYTES_OF_OPTIONS = 12, 16_384


class Guard:
    """Wraps an ASGI application: it refuses requests, limits their bodies, sets headers, and counts answers.

    Args:
        token: the secret that requests must have; None if they need no secret.
    """

    def __init__(self, app: FastAPI, config: ServeConfig, token: str | None) -> None:
        self._app, self._origins, self._token, self._config = app, config.allow_origin, token, config
        self._uploads = 0
        self._shares = "libretranslate" in config.api
        self._open_folders = ("/static/", DOWNLOAD_FILE) if self._shares else ("/static/",)
        self._open_paths = _OPEN_PATHS | (_KEYLESS_PATHS if self._shares else set())
        # Names of this server that clients may use, besides its addresses. This stops DNS rebinding: a foreign domain
        # can resolve to this machine, but its requests name that domain as their host.
        self._hosts = {name.lower() for name in ("localhost", config.host, *config.allow_host)}
        self._routes = set(app.openapi()["paths"])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, by the application if nothing is wrong with it."""
        route, started = scope["path"] if scope["path"] in self._routes else "other", time.perf_counter()

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                REQUESTS.labels(route, message["status"]).inc()
                SECONDS.labels(route).observe(time.perf_counter() - started)
            await send(message)

        limited = self._limited(receive, scope["path"])
        try:
            self._check_origin(Headers(scope=scope))
            if self._shares and scope["path"] in _LIBRETRANSLATE_PATHS:
                scope, limited = await self._of_protocol(scope, limited)
            else:
                self._check_token(scope["path"], Headers(scope=scope), "")
                if scope["path"] in _UPLOAD_PATHS:
                    limited = _again(await self._body(Request(scope, limited)), limited)
        except HTTPException as error:
            headers = {**(error.headers or {}), **_CLOSE}
            await failure(scope["path"], error.status_code, error.detail, headers)(scope, receive, answer)
        except ClientDisconnect:
            pass
        else:
            await self._app(scope, limited, answer)

    async def _of_protocol(self, scope: Scope, receive: Receive) -> tuple[Scope, Receive]:
        """Reads a request that may be LibreTranslate's, and gives those another path. Checks the token."""
        request, path = Request(scope, receive), scope["path"]
        receive, fields, key = _again(await self._body(request), receive), await form_fields(request), ""
        is_named = path == TRANSLATE_FILE or path.startswith(LIBRETRANSLATE)
        if is_named or "q" in fields or "target" in fields:  # which requests of this server do not have
            key = str(fields.get("api_key", ""))
            scope = {**scope, "path": LIBRETRANSLATE + path.removeprefix(LIBRETRANSLATE)}
        self._check_token(scope["path"], Headers(scope=scope), key)
        return scope, receive

    async def _body(self, request: Request) -> bytes:
        """Returns the body of a request. Few documents are uploaded at a time, because they are kept in memory."""
        if request.url.path not in _UPLOAD_PATHS:
            return await request.body()
        if self._uploads >= UPLOADS:
            raise HTTPException(503, f"{UPLOADS} documents are being uploaded; try again later", RETRY)
        self._uploads += 1
        try:
            async with asyncio.timeout(self._config.max_seconds):
                return await request.body()
        except TimeoutError:
            message = f"the upload takes more than {self._config.max_seconds:g} seconds; send a smaller document"
            raise HTTPException(503, message, RETRY) from None
        finally:
            self._uploads -= 1

    def _check_origin(self, headers: Mapping[str, str]) -> None:
        """Raises HTTPException if a request is for another host or from a page of another origin."""
        host = headers.get("host", "")
        if not self._is_own(host):
            raise HTTPException(
                421, f"the host {host!r:.80} is not allowed; use the address of the server, or --allow-host"
            )
        origin = headers.get("origin")
        if origin is not None and origin not in self._origins and origin.partition("://")[2] != host:
            raise HTTPException(
                403, f"pages of {origin!r:.80} may not send requests; start the server with --allow-origin"
            )

    def _check_token(self, path: str, headers: Mapping[str, str], key: str) -> None:
        """Raises HTTPException if a request needs the token, and has it neither in its head nor as its key."""
        if self._token is None or path in self._open_paths or path.startswith(self._open_folders):
            return
        scheme = "DeepL-Auth-Key" if path.startswith(_DEEPL) else "Bearer"
        given = headers.get("authorization", "").encode(), key.encode(errors="surrogatepass")
        expected = f"{scheme} {self._token}".encode(), self._token.encode()
        if any(map(hmac.compare_digest, given, expected)):
            return
        if path.startswith(LIBRETRANSLATE):
            raise HTTPException(403, "Invalid API key")
        message = f"the request needs the header Authorization: {scheme} with the token of this server"
        raise HTTPException(403 if path.startswith(_DEEPL) else 401, message)

    def _is_own(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
            return name in self._hosts or bool(ipaddress.ip_address(name))
        except ValueError:  # the name is not an address
            return False

    def _limited(self, receive: Receive, path: str) -> Receive:
        """Wraps `receive` so that it raises an error when a body becomes too large."""
        received, mib = 0, self._config.max_document_mib
        most = _BYTES_OF_CHARACTER * self._config.max_characters + _BYTES_OF_OPTIONS
        sentence = f"the body has more than {most:,} bytes; send the text in parts"
        if mib and path in _UPLOAD_PATHS:
            most, sentence = mib * 2**20 + _BYTES_OF_OPTIONS, f"the document has more than {mib} MiB; send it in parts"

        async def limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > most:
                raise HTTPException(413, sentence, _CLOSE)
            return message

        return limited


def _again(body: bytes, receive: Receive) -> Receive:
    """Wraps `receive` so that it gives a body first that has been read already."""
    messages: list[Message] = [{"type": "http.request", "body": body}]

    async def received() -> Message:
        return messages.pop() if messages else await receive()

    return received
