"""Serves the report page of runs while they train (`nmt report --watch`)."""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from nmt import console
from nmt.errors import NmtError
from nmt.pages.page import data_as_text
from nmt.pages.report import read_runs, report_data, report_page, version_of

_ADDRESS = "127.0.0.1"


class _Handler(BaseHTTPRequestHandler):
    """Answers GET / with the page, and GET /data?VERSION with newer data or, if there are none, with 204."""

    def __init__(self, paths: Sequence[str], names: Sequence[str], tflops: float | None, *arguments: Any) -> None:
        self._paths, self._names, self._tflops = paths, names, tflops
        super().__init__(*arguments)  # answers the request

    def handle(self) -> None:
        """Answers a request, unless the browser closes the connection."""
        with suppress(ConnectionError):
            super().handle()

    def do_GET(self) -> None:
        # Other host names are refused, so that no web page reads the report by DNS rebinding.
        if self.headers.get("Host", "").split(":")[0].lower() not in (_ADDRESS, "localhost"):
            self.send_error(HTTPStatus.FORBIDDEN)
            return
        path, _, query = self.path.partition("?")
        version = version_of(self._paths)  # before the records are read, so that later ones are asked for again
        if path not in ("/", "/data"):
            self.send_error(HTTPStatus.NOT_FOUND)
        elif path == "/data" and query == version:
            self._send("", HTTPStatus.NO_CONTENT)
        else:
            try:
                data = report_data(read_runs(self._paths, self._names), self._tflops) | {"version": version}
                self._send(report_page(data) if path == "/" else data_as_text(data))
            except NmtError as error:  # a log cannot be read at the moment
                console.warn_once(str(error))
                self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR)

    def _send(self, content: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        body = content.encode(errors="replace")
        self.send_response(status)
        kind = "application/json" if self.path.startswith("/data") else "text/html"
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Prints nothing about requests."""


def serve(paths: Sequence[str], names: Sequence[str], sustained_tflops: float | None, port: int) -> None:
    """Serves the page of runs on this machine until a signal ends the process, and prints its address.

    If the port is taken, another one is used.
    """
    handler = partial(_Handler, paths, names, sustained_tflops)
    try:
        server = ThreadingHTTPServer((_ADDRESS, port), handler)
    except OSError:
        server = ThreadingHTTPServer((_ADDRESS, 0), handler)
    with server:
        console.info(f"showing the report at http://localhost:{server.server_port}/ until Ctrl-C")
        server.serve_forever()
