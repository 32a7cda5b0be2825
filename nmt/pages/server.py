"""Serves the report of runs on this machine, with data that follow the trainings (`nmt report --watch`)."""

from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from nmt import console
from nmt.errors import NmtError
from nmt.pages.page import data_as_text

_ADDRESS = "127.0.0.1"
# The port that is tried first. TensorBoard has 6006.
_PORT = 6007
_NAMES = (_ADDRESS, "localhost")


def serve(version: Callable[[], str], make_data: Callable[[], Any], make_page: Callable[[Any], str]) -> None:
    """Serves a page until a signal ends the process, and prints its address.

    Args:
        version: returns a text that changes when the data change.
        make_data: returns the data of the page as JSON values.
        make_page: returns the page with these data.
    """

    class Handler(BaseHTTPRequestHandler):
        """Answers GET / with the page, and GET /data?VERSION with newer data or 204."""

        def do_GET(self) -> None:
            # Another site's page must not read this one through a host name that leads to this machine.
            if urlsplit(f"//{self.headers.get('Host', '')}").hostname not in _NAMES:
                self.send_error(HTTPStatus.FORBIDDEN)
                return
            asked = urlsplit(self.path)
            try:
                current = version()
                if asked.path == "/data" and asked.query == current:
                    self._answer(HTTPStatus.NO_CONTENT)
                    return
                data = make_data() | {"version": current}
            except NmtError as error:
                console.warn(str(error))
                self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR)
                return
            if asked.path == "/data":
                self._answer(HTTPStatus.OK, "application/json", data_as_text(data))
            elif asked.path == "/":
                self._answer(HTTPStatus.OK, "text/html", make_page(data))
            else:
                self.send_error(HTTPStatus.NOT_FOUND)

        def _answer(self, status: HTTPStatus, kind: str = "", content: str = "") -> None:
            self.send_response(status)
            if content:
                self.send_header("Content-Type", f"{kind}; charset=utf-8")
                self.send_header("Cache-Control", "no-store")
            body = content.encode(errors="replace")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Prints nothing about requests."""

    with _listening(Handler) as server:
        console.info(f"showing the report at http://localhost:{server.server_port}/ until Ctrl-C")
        server.serve_forever()


def _listening(handler: type[BaseHTTPRequestHandler]) -> ThreadingHTTPServer:
    """Returns a server on the usual port, or on a free one if that is taken."""
    try:
        return ThreadingHTTPServer((_ADDRESS, _PORT), handler)
    except OSError:
        return ThreadingHTTPServer((_ADDRESS, 0), handler)
