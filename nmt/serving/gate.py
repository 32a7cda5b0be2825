"""Guards the application: refuses requests before any work is done on them, and sets the headers of safety."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nmt.serving.access import Access
from nmt.serving.limits import Refused
from nmt.serving.metrics import Metrics

BODY_SECONDS = 10.0
# A process may have 1,024 open files by default, and each connection is one.
MOST_CONNECTIONS = 900
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


class Gate:
    """An ASGI application around another one.

    Args:
        connections: returns the number of open connections.
        most_bytes: the largest body.
        routes: the paths that metrics tell apart.
    """

    def __init__(
        self,
        app: ASGIApp,
        access: Access,
        metrics: Metrics,
        connections: Callable[[], int],
        most_bytes: int,
        routes: set[str],
    ) -> None:
        self.app, self.access, self.metrics, self.connections = app, access, metrics, connections
        self.most_bytes, self.routes = most_bytes, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, by the application if nothing is wrong with it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        answer = _guarded(send, self._counter(scope["path"]))
        try:
            if self.connections() > MOST_CONNECTIONS:
                raise Refused(503, "the server has too many connections; try again later")
            headers = Headers(scope=scope)
            self.access.check(scope["path"], headers)
            body = await self._body(headers, receive)
        except Refused as error:
            # The rest of the body stays unread, so the connection cannot be used again.
            refusal = JSONResponse({"error": str(error)}, error.status, error.headers | {"Connection": "close"})
            await refusal(scope, receive, answer)
        except ConnectionError:  # the client has gone
            return
        else:
            await self.app(scope, _replayed(body, receive), answer)

    def _counter(self, path: str) -> Callable[[int], None]:
        route = path if path in self.routes else "other"
        started = time.perf_counter()
        return lambda status: self.metrics.answered(route, status, time.perf_counter() - started)

    async def _body(self, headers: Headers, receive: Receive) -> bytes:
        """Returns the body of a request.

        Raises:
            Refused: it is too large, or arrives too slowly.
            ConnectionError: the client has gone.
        """
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit() or len(length) > 20 or int(length) > self.most_bytes:
            raise self._too_large()
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ConnectionResetError
                    body += message.get("body", b"")
                    if len(body) > self.most_bytes:
                        raise self._too_large()
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            raise Refused(408, f"the body did not arrive within {BODY_SECONDS:.0f} seconds") from None

    def _too_large(self) -> Refused:
        return Refused(413, f"the body has more than {self.most_bytes:,} bytes; send the text in parts")


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Returns a function that gives the body first, and then what `receive` gives."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _guarded(send: Send, count: Callable[[int], None]) -> Callable[[Message], Awaitable[None]]:
    """Returns a function that sends an answer with the headers of safety, and counts it."""

    async def guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
            count(message["status"])
        await send(message)

    return guarded
