"""Serves the report of runs on this machine, with data that follow the trainings (`nmt report --watch`)."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from nmt import console
from nmt.config.serving import REPORT_PORT
from nmt.errors import NmtError
from nmt.pages.page import data_as_text

_ADDRESS = "127.0.0.1"
_NAMES = (_ADDRESS, "localhost")


@dataclass(frozen=True)
class Site:
    """What the server shows."""

    version: Callable[[], str]
    make_data: Callable[[], dict[str, Any]]
    make_page: Callable[[dict[str, Any]], str]


class _Handler(BaseHTTPRequestHandler):
    """Answers GET / with the page, and GET /data?VERSION with newer data or, if there are none, with 204."""

    def __init__(self, site: Site, *arguments: Any) -> None:
        self._site = site
        super().__init__(*arguments)  # answers the request

    def handle(self) -> None:
        """Answers a request, unless the browser closes the connection."""
        with suppress(ConnectionError):
            super().handle()

    def do_GET(self) -> None:
        # Other host names are refused, so that no web page reads the report by DNS rebinding.
        if self.headers.get("Host", "").split(":")[0].lower() not in _NAMES:
            self.send_error(HTTPStatus.FORBIDDEN)
            return
        try:
            self._answer()
        except NmtError as error:  # a log cannot be read at the moment
            console.warn_once(str(error))
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR)

    def _answer(self) -> None:
        path, _, query = self.path.partition("?")
        version = self._site.version()
        if path == "/data" and query == version:
            self._send(HTTPStatus.NO_CONTENT)
        elif path == "/data":
            self._send(HTTPStatus.OK, "application/json", data_as_text(self._site.make_data() | {"version": version}))
        elif path == "/":
            self._send(HTTPStatus.OK, "text/html", self._site.make_page(self._site.make_data() | {"version": version}))
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _send(self, status: HTTPStatus, kind: str = "text/plain", content: str = "") -> None:
        body = content.encode(errors="replace")
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Prints nothing about requests."""


def serve(site: Site) -> None:
    """Serves a site until a signal ends the process, and prints its address."""
    with _listening(site) as server:
        console.info(f"showing the report at http://localhost:{server.server_port}/ until Ctrl-C")
        server.serve_forever()


def _listening(site: Site) -> ThreadingHTTPServer:
    """Returns a server on the usual port, or on a free one if that is taken."""
    try:
        return ThreadingHTTPServer((_ADDRESS, REPORT_PORT), partial(_Handler, site))
    except OSError:
        return ThreadingHTTPServer((_ADDRESS, 0), partial(_Handler, site))
