"""The routes of the service."""

import asyncio
import re
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from prometheus_client import generate_latest
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from nmt import __version__, console
from nmt.documents.document import FORMATS
from nmt.errors import NmtError
from nmt.model.architectures import parameter_count
from nmt.pages.page import STYLE, page
from nmt.serving import schema
from nmt.serving.answers import FAILURES, answered, constant, failed
from nmt.serving.corrections import Corrections, memory_of
from nmt.serving.deepl import deepl_routes, glossary_routes
from nmt.serving.documents import DOWNLOAD, DocumentStore
from nmt.serving.errors import OverloadedError, UnknownNameError
from nmt.serving.libretranslate import libretranslate_routes
from nmt.serving.service import Service
from nmt.text.languages import english_name, has_spaces
from nmt.text.markup_reading import text_only

_Result = TypeVar("_Result")
_TMX = "application/x-tmx+xml"
_FOLDER = STYLE.parent / "service"
_MEDIA_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}


def create_app(service: Service) -> FastAPI:
    """Returns the application without its guard."""
    app = FastAPI(title="nmt serve", version=__version__, docs_url=None, redoc_url=None)
    documents = DocumentStore(service) if service.config.max_document_mib else None
    app.include_router(_work_routes(service, documents))
    if "libretranslate" in service.config.api:
        app.include_router(libretranslate_routes(service, documents))
    if "deepl" in service.config.api:
        app.include_router(deepl_routes(service, documents))
        app.include_router(glossary_routes(service.catalog))
    if service.catalog.corrections is not None:
        app.include_router(_correction_routes(service, service.catalog.corrections))
    app.include_router(_status_routes(service))
    app.include_router(_page_routes())
    for error in (NmtError, RequestValidationError, HTTPException, ClientDisconnect, Exception):
        app.add_exception_handler(error, failed)
    return app


def _work_routes(service: Service, documents: DocumentStore | None) -> APIRouter:
    """Returns the routes that need a model."""
    router = APIRouter(responses=FAILURES)

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

    if documents is None:
        return router

    file = {"required": True, "content": {"application/octet-stream": {"schema": {"format": "binary"}}}}

    @router.post("/documents", openapi_extra={"requestBody": file})
    async def add(fields: Annotated[schema.DocumentFields, Query()], request: Request) -> schema.DocumentAnswer:
        """Begins to translate a document. The body is the file."""
        return schema.DocumentAnswer(id=documents.add(await request.body(), fields))

    @router.get("/documents/{id}", response_model_exclude_defaults=True)
    async def state(id: str) -> schema.DocumentStateAnswer:
        """Says how far the translation of a document is."""
        return documents.get(id)

    @router.get("/documents/{id}/result", **DOWNLOAD)
    async def result(id: str) -> Response:
        """Returns the translated file, and deletes it."""
        return documents.take(id).response()

    @router.delete("/documents/{id}", status_code=204)
    async def delete(id: str) -> None:
        """Deletes a document, and stops its translation."""
        documents.delete(id)

    return router


def _correction_routes(service: Service, corrections: Corrections) -> APIRouter:
    """Returns the routes of corrections."""
    router = APIRouter(responses=FAILURES)

    async def stored(change: Callable[[], _Result]) -> _Result:
        try:
            return await asyncio.to_thread(change)
        except NmtError as error:
            console.warn(str(error))
            raise OverloadedError("the server cannot write its file of corrections; its log says why") from error

    async def kept(body: schema.CorrectionBody) -> dict[str, Any]:
        schema.check_text([body.source, body.target, body.machine_translation], service.config)
        for name, text in (("source", body.source), ("target", body.target)):
            if not text.strip() or "\n" in text or "\r" in text:
                raise NmtError(f"{name} must be a sentence on one line; send the sentences of a text one by one")
            if unknown := set(text) - set(text_only(text)):
                raise NmtError(f"{name} has U+{ord(min(unknown)):04X}, which is no character of a text; leave it out")
        path = service.catalog.path(None, body.source_lang, body.target_lang)
        if not path:
            raise NmtError(f"source_lang and target_lang are both {body.source_lang!r:.60}; they must differ")
        known = {name: service.catalog.language(getattr(body, name)) for name in ("source_lang", "target_lang")}
        known["source"] = path[0].codec.config.split_tags(body.source)[1]
        correction = await stored(lambda: corrections.keep(body.model_copy(update=known)))
        return correction.model_dump(mode="json", exclude_defaults=True)

    @router.post("/corrections", response_model=schema.Correction)
    async def keep(body: schema.CorrectionBody, request: Request) -> Response:
        """Stores a correction: it translates this sentence from now on."""
        return await answered(request, service.config, kept(body))

    @router.get("/corrections", response_model_exclude_defaults=True)
    def latest(limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> schema.CorrectionsAnswer:
        """Lists the latest corrections."""
        entries = corrections.all()
        shown = entries[: -limit - 1 : -1]
        return schema.CorrectionsAnswer(corrections=shown, total=len(entries), skipped=corrections.skipped)

    @router.delete("/corrections/{id}", status_code=204)
    async def take_back(id: str) -> None:
        """Takes a correction back."""
        if not await stored(lambda: corrections.take_back(id)):
            raise UnknownNameError(f"there is no correction {id!r:.60}; it was taken back or never stored")

    @router.get("/corrections.tmx", response_class=Response, responses={200: {"content": {_TMX: {}}}})
    def download() -> Response:
        """Returns all corrections as a translation memory, TMX 1.4."""
        headers = {"Content-Disposition": "attachment; filename=corrections.tmx"}
        return Response(memory_of(corrections.all()), media_type=_TMX, headers=headers)

    return router


def _status_routes(service: Service) -> APIRouter:
    """Returns the routes about the server."""
    router, catalog = APIRouter(responses=FAILURES), service.catalog

    @router.get("/models")
    async def models() -> schema.ModelsAnswer:
        """Lists the models."""
        identified: list[str] = []
        with suppress(NmtError):  # without the package, none can be
            identified = await asyncio.to_thread(lambda: catalog.identified)
        return schema.ModelsAnswer(
            models=[
                schema.ModelEntry(
                    name=model.name,
                    source_lang=model.codec.config.source_lang,
                    target_lang=model.codec.config.target_lang,
                    parameters=parameter_count(model.config, model.codec),
                    engine=service.engine.engine,
                    examples=list(model.examples),
                )
                for model in catalog.models.values()
            ],
            languages=[
                schema.LanguageEntry(
                    code=code, name=english_name(code), identified=code in identified, spaces=has_spaces(code)
                )
                for code in catalog.languages
            ],
            directions=catalog.directions,
            attention=service.engine.engine == "pytorch",
            glossaries=list(catalog.glossaries),
            memories=list(catalog.memories),
            corrections=catalog.corrections is not None,
            documents=list(FORMATS) if service.config.max_document_mib else [],
            max_document_mib=service.config.max_document_mib,
            max_beam=service.config.max_beam,
        )

    @router.head("/health", include_in_schema=False)
    @router.get("/health", response_model=None)
    async def health() -> dict[str, str]:
        """Answers as long as the server takes requests."""
        return {"status": "ok"}

    text = {"content": {"text/plain": {"schema": {"type": "string"}}}}

    @router.get("/metrics", response_class=Response, responses={200: text})
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
        file = Response(path.read_bytes(), media_type=_MEDIA_TYPES[path.suffix])
        router.add_api_route(route, constant(file), response_model=None, methods=["GET", "HEAD"])
    # The page that draws attention weights. The page that shows it in a frame gives it the data. Its scripts and
    # styles are in the page itself, so its policy names them.
    content = page("attention", "Attention", None).encode()
    scripts = re.findall(rb"<script>(.*?)</script>", content, re.DOTALL)
    hashes = " ".join(f"'sha256-{b64encode(sha256(script).digest()).decode()}'" for script in scripts)
    policy = (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
        f"form-action 'none'; frame-ancestors 'self'"
    )
    attention = Response(content, media_type="text/html", headers={"Content-Security-Policy": policy})
    router.add_api_route("/static/attention.html", constant(attention), response_model=None)
    return router
