"""Guards the service: who may send requests, how large they may be, which headers answers have, and what is counted."""

import asyncio
import hmac
import ipaddress
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from fastapi import FastAPI
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.routing import compile_path
from starlette.types import Message, Receive, Scope, Send

from nmt.config import ServeConfig
from nmt.errors import NmtError
from nmt.files import loading
from nmt.serving import libretranslate
from nmt.serving.answers import DEEPL, failed
from nmt.serving.documents import UPLOADS
from nmt.serving.errors import OverloadedError
from nmt.serving.forms import form_fields
from nmt.serving.metrics import REQUESTS, SECONDS

# Everything that a page loads is from this server, and nothing in it runs that is not a file of this server.
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
# If the rest of a body stays unread, the connection cannot be used again.
_CLOSE = {"Connection": "close"}
# The paths that a page needs before its user enters a token, besides static files.
_OPEN_PATHS = {"/", "/docs", "/openapi.json", "/health"}
_LIBRETRANSLATE_UPLOADS = {f"{prefix}{libretranslate.TRANSLATE_FILE}" for prefix in ("", libretranslate.PREFIX)}
_UPLOAD_PATHS = {"/documents", "/v2/document", "/v2/document/", *_LIBRETRANSLATE_UPLOADS}
# A character takes at most 12 bytes of JSON, as two escaped surrogates. The rest is for options.
_BYTES_OF_CHARACTER, _BYTES_OF_OPTIONS = 12, 16_384


def token_in(path: str | None) -> str | None:
    """Returns the secret in the file of --token-file; None if the option was not given."""
    if path is None:
        return None
    with loading(f"--token-file {path}", "check the path"):
        token = Path(path).read_text(encoding="utf-8", errors="replace").strip()
    if not (token and token.isascii() and token.isprintable() and " " not in token):
        raise NmtError(f"--token-file {path} must have a secret of printable ASCII characters without spaces")
    return token


class Guard:
    """Wraps an ASGI application: refuses requests without the token, limits bodies, sets headers, counts answers."""

    def __init__(self, app: FastAPI, config: ServeConfig, token: str | None) -> None:
        self._app, self._token, self._config, self._uploads = app, token, config, 0
        is_libretranslate = "libretranslate" in config.api
        # The paths that LibreTranslate and this server share. Clients of LibreTranslate have the token in the body.
        self._shared_paths = libretranslate.KEYED_PATHS if is_libretranslate else set()
        self._open_paths = _OPEN_PATHS | (libretranslate.KEYLESS_PATHS if is_libretranslate else set())
        self._open_folders = ("/static/", libretranslate.DOWNLOAD_FILE) if is_libretranslate else ("/static/",)
        # Names of this server that clients may use, besides its addresses. This stops DNS rebinding: a foreign
        # domain can resolve to this machine, but its requests name that domain as their host.
        self._hosts = {name.lower() for name in ("localhost", socket.gethostname(), config.host, *config.allow_host)}
        paths = app.openapi()["paths"]
        self._routes = [(compile_path(route)[0], route, {*map(str.upper, paths[route])}) for route in paths]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, by the application if nothing is wrong with it."""
        path, headers, started = scope["path"], Headers(scope=scope), time.perf_counter()
        route = next((route for pattern, route, _ in self._routes if pattern.match(path)), "other")
        is_read = False

        async def read() -> Message:
            nonlocal is_read
            message = await receive()
            is_read = not message.get("more_body")  # also if the client has gone
            return message

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer_headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    answer_headers.setdefault(name, value)
                if message["status"] == 405:  # the router names the methods of one of the routes
                    allowed = [methods for pattern, _, methods in self._routes if pattern.match(path)]
                    if allowed:
                        answer_headers["Allow"] = ", ".join(sorted(set().union(*allowed)))
                REQUESTS.labels(route, message["status"]).inc()
                SECONDS.labels(route).observe(time.perf_counter() - started)
            elif not message.get("more_body") and not is_read:
                # If a connection is closed before the body is read, the client's system may discard the answer.
                await send({**message, "more_body": True})
                message = {"type": "http.response.body"}
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._config.max_seconds):
                        while not is_read:
                            await read()
            await send(message)

        request = Request(scope, self._limited(read, path))
        given = request.receive
        try:
            self._check_origin(headers)
            is_shared = path in self._shared_paths
            if not is_shared:
                self._check_token(path, headers)
            if path in _UPLOAD_PATHS:
                await self._upload(request)
            if is_shared or path in _UPLOAD_PATHS:
                given = _again(await request.body(), given)
            if is_shared:
                fields, key = await form_fields(request), ""
                if libretranslate.is_meant(path, fields):
                    path = libretranslate.PREFIX + path.removeprefix(libretranslate.PREFIX)
                    scope, key = {**scope, "path": path}, str(fields.get("api_key", ""))
                self._check_token(path, headers, key)
        except (HTTPException, OverloadedError) as error:
            await (await failed(request, error, _CLOSE))(scope, given, answer)
        except ClientDisconnect:
            pass
        else:
            await self._app(scope, given, answer)

    async def _upload(self, request: Request) -> None:
        """Reads the body of a request. Few documents are uploaded at a time, because they are kept in memory."""
        if self._uploads >= UPLOADS:
            raise OverloadedError(f"{UPLOADS} documents are being uploaded; try again later")
        self._uploads += 1
        try:
            async with asyncio.timeout(self._config.max_seconds):
                await request.body()
        except TimeoutError:
            message = f"the upload takes more than {self._config.max_seconds:g} seconds; send a smaller document"
            raise OverloadedError(message) from None
        finally:
            self._uploads -= 1

    def _check_origin(self, headers: Mapping[str, str]) -> None:
        """Raises HTTPException if a request is for another host or from a page of another origin."""
        host, origin = headers.get("host", ""), headers.get("origin")
        try:
            name = urlsplit(f"//{host}").hostname or ""
            if name not in self._hosts:
                ipaddress.ip_address(name)
        except ValueError:  # the name is not an address
            message = f"the host {host!r:.80} is not allowed; use the address of the server, or --allow-host"
            raise HTTPException(421, message) from None
        if origin is not None and origin not in self._config.allow_origin and origin.partition("://")[2] != host:
            message = f"pages of {origin!r:.80} may not send requests; start the server with --allow-origin"
            raise HTTPException(403, message)

    def _check_token(self, path: str, headers: Mapping[str, str], key: str = "") -> None:
        """Raises HTTPException if a request needs the token, and has it neither in its head nor as its key."""
        if self._token is None or path in self._open_paths or path.startswith(self._open_folders):
            return
        is_deepl = path.startswith(DEEPL)
        scheme = "DeepL-Auth-Key" if is_deepl else "Bearer"
        named, _, token = headers.get("authorization", "").partition(" ")
        given = token.strip() if named.lower() == scheme.lower() else ""  # the case of a scheme does not matter
        if any(hmac.compare_digest(each.encode(errors="surrogatepass"), self._token.encode()) for each in (given, key)):
            return
        if path.startswith(libretranslate.PREFIX):
            raise HTTPException(403, "Invalid API key")
        message = f"the request needs the header Authorization: {scheme} with the token of this server"
        raise HTTPException(403 if is_deepl else 401, message)

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
