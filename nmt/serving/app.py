"""The routes of the service."""

import re
from base64 import b64encode
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from prometheus_client import generate_latest
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from nmt import __version__
from nmt.documents.formats import FORMATS
from nmt.errors import NmtError
from nmt.jobs.pool import WorkerDiedError
from nmt.pages.page import STYLE, page
from nmt.serving import protocols, schema
from nmt.serving.documents import Documents
from nmt.serving.guard import RETRY, answered, explained, failure
from nmt.serving.service import Service

_FOLDER = STYLE.parent / "service"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}

# What pydantic adds to the place of an error in a field of several types.
_KINDS = ("str", "list[str]")
_FAILURES: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": schema.Failure, "description": "The request is wrong; the sentence says how."},
    503: {
        "model": schema.Failure,
        "description": "There is no room, a worker died, or the answer takes too long; try again.",
    },
}


def create_app(service: Service) -> FastAPI:
    """Returns the application without its guard."""
    app = FastAPI(title="nmt serve", version=__version__, docs_url=None, redoc_url=None)
    documents = Documents(service) if service.config.max_document_mib else None
    app.include_router(_work_routes(service))
    if documents:
        app.include_router(_document_routes(documents))
    if "libretranslate" in service.config.api:
        app.include_router(protocols.libretranslate_routes(service, documents))
    if "deepl" in service.config.api:
        app.include_router(protocols.deepl_routes(service, documents))
    app.include_router(_status_routes(service))
    app.include_router(_page_routes())
    app.add_exception_handler(NmtError, _failed)
    app.add_exception_handler(RequestValidationError, _misshapen)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(ClientDisconnect, _left)
    app.add_exception_handler(Exception, _broken)
    return app


def _work_routes(service: Service) -> APIRouter:
    """Returns the routes that need a model."""
    router = APIRouter(responses=_FAILURES)

    @router.post("/translate", response_model=schema.TranslateAnswer)
    async def translate(body: schema.TranslateBody, request: Request) -> Response:
        """Translates a text or a list of texts."""
        return await answered(request, service.config, service.translate(body))

    @router.post("/detect", response_model=schema.DetectAnswer)
    async def detect(body: schema.DetectBody, request: Request) -> Response:
        """Identifies the language of a text or of each text in a list, among the languages of this server."""
        return await answered(request, service.config, service.detect(body))

    @router.post("/score", response_model=schema.ScoreAnswer)
    async def score(body: schema.ScoreBody, request: Request) -> Response:
        """Computes log P of given translations."""
        return await answered(request, service.config, service.score(body))

    @router.post("/alternatives", response_model=schema.AlternativesAnswer)
    async def alternatives(body: schema.AlternativesBody, request: Request) -> Response:
        """Lists the words that the model considers behind a prefix."""
        return await answered(request, service.config, service.alternatives(body))

    @router.post("/attention", response_model=schema.AttentionAnswer)
    async def attention(body: schema.AttentionBody, request: Request) -> Response:
        """Computes the attention weights of a sentence pair."""
        return await answered(request, service.config, service.attention(body))

    return router


def _document_routes(documents: Documents) -> APIRouter:
    """Returns the routes of documents."""
    router = APIRouter(responses=_FAILURES)
    body = {
        "requestBody": {"required": True, "content": {"application/octet-stream": {"schema": {"format": "binary"}}}}
    }

    @router.post("/documents", response_model=schema.DocumentAnswer, openapi_extra=body)
    async def add(fields: Annotated[schema.DocumentFields, Query()], request: Request) -> Response:
        """Begins to translate a document. The body is the file."""
        return JSONResponse({"id": documents.add(content=await request.body(), **fields.model_dump())})

    @router.get("/documents/{id}", response_model=schema.DocumentStateAnswer)
    async def state(id: str) -> Response:
        """Says how far the translation of a document is."""
        return JSONResponse(documents.get(id).described())

    @router.get("/documents/{id}/result", response_class=Response)
    async def result(id: str) -> Response:
        """Returns the translated file, and deletes it."""
        return documents.take(id).response()

    @router.delete("/documents/{id}", status_code=204)
    async def delete(id: str) -> None:
        """Deletes a document, and stops its translation."""
        documents.delete(id)

    return router


def _status_routes(service: Service) -> APIRouter:
    """Returns the routes about the server."""
    router = APIRouter()

    @router.get("/models", response_model=schema.ModelsAnswer)
    async def models() -> Response:
        """Lists the models."""
        listed = [model.entry(service.engine) for model in service.models.values()]
        alone = [(model.pair, (model,)) for model in service.models.values()]
        pivots = [(pair, path) for pair, path in service.paths.items() if len(path) > 1]
        pairs = [
            {"source_lang": source, "target_lang": target, "models": [model.name for model in path]}
            for (source, target), path in [*alone, *pivots]
        ]
        most = service.config.max_document_mib
        others = {
            "glossaries": list(service.glossaries),
            "documents": FORMATS if most else [],
            "max_document_mib": most,
            "max_beam": service.config.max_beam,
        }
        return JSONResponse({"models": listed, "pairs": pairs, "attention": service.engine == "pytorch", **others})

    @router.get("/health")
    async def health() -> Response:
        """Answers as long as the server works."""
        return JSONResponse({"status": "ok"})

    @router.get("/metrics")
    async def metrics() -> Response:
        """Returns counters in the format of Prometheus."""
        return Response(generate_latest(), media_type="text/plain; version=0.0.4")

    return router


def _page_routes() -> APIRouter:
    """Returns the routes of the page for people, of the description of the API, and of their files."""
    router = APIRouter(include_in_schema=False)
    files = {f"/static/{path.name}": path for path in (*_FOLDER.iterdir(), STYLE) if path.suffix in (".css", ".js")}
    files |= {"/": _FOLDER / "page.html", "/docs": _FOLDER / "docs.html"}
    for route, path in files.items():
        router.add_api_route(route, _giving(path.read_bytes(), _TYPES[path.suffix]))
    router.add_api_route("/static/attention.html", _attention_page())
    return router


def _giving(content: bytes, kind: str, **headers: str) -> Callable[[], Awaitable[Response]]:
    async def give() -> Response:
        return Response(content, media_type=kind, headers=headers)

    return give


def _attention_page() -> Callable[[], Awaitable[Response]]:
    """Returns the route of the page that draws attention weights. The page that shows it in a frame gives it the data.

    Its scripts and styles are in the page itself, so its policy names them.
    """
    content = page("attention", "Attention", None).encode()
    scripts = re.findall(rb"<script>(.*?)</script>", content, re.DOTALL)
    hashes = " ".join(f"'sha256-{b64encode(sha256(script).digest()).decode()}'" for script in scripts)
    policy = (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
        f"form-action 'none'; frame-ancestors 'self'"
    )
    return _giving(content, "text/html", **{"Content-Security-Policy": policy})


async def _failed(request: Request, error: Exception) -> Response:
    """Answers a request that cannot be done."""
    if isinstance(error, WorkerDiedError):
        return failure(request.url.path, 503, explained(error), RETRY)
    return failure(request.url.path, 400, explained(error))


async def _misshapen(request: Request, error: Exception) -> Response:
    """Answers a body that is no JSON or has wrong fields, in a sentence about the first one."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return failure(request.url.path, 400, 'the body is no JSON; send an object such as {"source": "…"}')
    if first["loc"] == ("body",) and first["type"] in ("missing", "model_attributes_type"):
        sentence = "the body must be a JSON object, sent with the header Content-Type: application/json"
        return failure(request.url.path, 400, sentence)
    place = ".".join(str(part) for part in first["loc"][1:] if part not in _KINDS)
    return failure(
        request.url.path, 400, f"{place or 'the body'} is wrong: {first['msg'][:200]}; /docs describes the fields"
    )


async def _refused(request: Request, error: Exception) -> Response:
    """Answers requests that are refused, or whose path or method does not exist."""
    assert isinstance(error, HTTPException)
    hint = "; /docs lists what there is" if error.detail in ("Not Found", "Method Not Allowed") else ""
    return failure(request.url.path, error.status_code, f"{error.detail}{hint}", error.headers)


async def _left(request: Request, _: Exception) -> Response:
    """Answers a client that went away while it sent its request, for the figures of GET /metrics."""
    return failure(request.url.path, 499, "the client has gone")


async def _broken(request: Request, error: Exception) -> Response:
    """Answers a request that met a bug, whose traceback is in the log."""
    return failure(request.url.path, 500, explained(error))
