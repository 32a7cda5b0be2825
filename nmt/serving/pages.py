"""The pages of the service: the one for people, the description of the API, and drawings of attention."""

import re
import secrets
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from hashlib import sha256
from pathlib import Path

from fastapi import APIRouter, Response

from nmt.pages.page import STYLE
from nmt.serving.limits import Refused

_FOLDER = Path(__file__).parent / "static"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_MOST_DRAWINGS, _MOST_BYTES = 32, 128 * 2**20
# Scripts of a page that run. A script of JSON does not.
_SCRIPT = re.compile(rb"<script>(.*?)</script>", re.DOTALL)


class Drawings:
    """The newest drawings of attention, each under an address that cannot be guessed; few or small enough to keep."""

    def __init__(self) -> None:
        self._pages: OrderedDict[str, bytes] = OrderedDict()

    def add(self, page: str) -> str:
        """Keeps a page; returns its address."""
        number = secrets.token_urlsafe(24)
        self._pages[number] = page.encode()
        while len(self._pages) > _MOST_DRAWINGS or (len(self._pages) > 1 and self._bytes > _MOST_BYTES):
            self._pages.popitem(last=False)
        return f"/attention/{number}"

    @property
    def _bytes(self) -> int:
        return sum(map(len, self._pages.values()))

    def answer(self, number: str) -> Response:
        """Returns a page, which may run its own scripts and be shown in a frame of this server.

        Raises:
            Refused: it is not there any more.
        """
        if number not in self._pages:
            raise Refused(404, "this drawing is not kept any more; ask for it again")
        page = self._pages[number]
        hashes = " ".join(f"'sha256-{b64encode(sha256(code).digest()).decode()}'" for code in _SCRIPT.findall(page))
        policy = (
            f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
            f"form-action 'none'; frame-ancestors 'self'"
        )
        return Response(page, media_type="text/html", headers={"Content-Security-Policy": policy})


def page_routes(drawings: Drawings) -> APIRouter:
    """Returns the routes of the pages."""
    router = APIRouter(include_in_schema=False)
    files = {f"/static/{path.name}": path for path in (*_FOLDER.iterdir(), STYLE) if path.suffix in (".css", ".js")}
    files |= {"/": _FOLDER / "page.html", "/docs": _FOLDER / "docs.html"}
    for route, path in files.items():
        router.add_api_route(route, _giving(path))

    @router.get("/attention/{number}")
    async def drawing(number: str) -> Response:
        return drawings.answer(number)

    return router


def _giving(path: Path) -> Callable[[], Awaitable[Response]]:
    content, kind = path.read_bytes(), _TYPES[path.suffix]

    async def give() -> Response:
        return Response(content, media_type=kind)

    return give
