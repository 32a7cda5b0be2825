"""The protocol of LibreTranslate, so that its clients can use this server."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from pydantic import AfterValidator, BaseModel, Field

from nmt.config import SearchConfig
from nmt.documents.document import FORMATS, suffix_of
from nmt.errors import NmtError
from nmt.serving.answers import FAILURES, answered
from nmt.serving.catalog import AUTO, Catalog
from nmt.serving.documents import DOWNLOAD, DocumentStore
from nmt.serving.forms import FileField, described, form_fields, validated
from nmt.serving.schema import Detection, DocumentFields, TranslateBody
from nmt.serving.service import RequestedText, Service, are_long, in_thread_if
from nmt.text.languages import english_name

# The guard puts this prefix before paths of LibreTranslate that this server has, too.
PREFIX = "/libretranslate"
# The paths of documents. Clients download by a name that nobody can guess, without the token.
TRANSLATE_FILE, DOWNLOAD_FILE = "/translate_file", "/download_file/"
# The paths that need no token, and those whose requests may have it as a field.
KEYLESS_PATHS = {"/languages", "/frontend/settings", "/spec"}
KEYED_PATHS = {f"{prefix}{path}" for prefix in ("", PREFIX) for path in ("/translate", "/detect", TRANSLATE_FILE)}
_SENTENCES = {
    "missing": "Invalid request: missing {} parameter",
    "int_parsing": "Invalid request: {} parameter is not a number",
    "other": "Invalid request: {} parameter is wrong",
}
_Text = Annotated[str, Field(min_length=1)]
_Source = Annotated[str, Field(min_length=1, description="The source language, or `auto`."), AfterValidator(str.lower)]


class LibreTranslateDetectBody(BaseModel):
    """Text whose language is asked for, as LibreTranslate has it."""

    q: _Text | Annotated[list[str], Field(min_length=1)] = Field(description="A text or a list of texts.")
    api_key: str | None = Field(None, description="The secret of --token-file.")


class LibreTranslateBody(LibreTranslateDetectBody):
    """Text to translate, as LibreTranslate has it."""

    source: _Source
    target: str = Field(min_length=1, description="The target language.")
    format: str | None = Field(None, description="`text` or `html`.")
    alternatives: int = Field(0, description="The largest number of other translations.")


class LibreTranslateFileBody(BaseModel):
    """A document, as LibreTranslate has it."""

    file: FileField
    source: _Source
    target: str = Field(min_length=1, description="The target language.")
    api_key: str | None = Field(None, description="The secret of --token-file.")


def is_meant(path: str, fields: Mapping[str, Any]) -> bool:
    """Whether a request to one of `KEYED_PATHS` is of this protocol; those of this server lack its fields."""
    return path == TRANSLATE_FILE or path.startswith(PREFIX) or "q" in fields or "target" in fields


def libretranslate_routes(service: Service, documents: DocumentStore | None) -> APIRouter:
    """Returns the routes of LibreTranslate."""
    router, config = APIRouter(tags=["libretranslate"], responses=FAILURES), service.config
    catalog = service.catalog

    @router.post(f"{PREFIX}/translate", openapi_extra=described(LibreTranslateBody))
    async def translate(request: Request) -> Response:
        """Translates a text or a list of texts. Its path is /translate; a body with `q` or `target` comes here."""
        return await answered(request, config, _translate(service, await form_fields(request)))

    @router.post(f"{PREFIX}/detect", openapi_extra=described(LibreTranslateDetectBody))
    async def detect(request: Request) -> Response:
        """Identifies the language of a text. Its path is /detect; a body with `q` comes here."""
        return await answered(request, config, _detect(service, await form_fields(request)))

    @router.get("/languages")
    async def languages() -> list[dict[str, Any]]:
        """Lists the languages, and the target languages of each."""
        targets = {code: {code} for code in catalog.languages}
        for source, target in catalog.paths:
            targets[source].add(target)
        return [_named(code) | {"targets": sorted(targets[code])} for code in catalog.languages]

    @router.get("/frontend/settings")
    async def settings() -> dict[str, Any]:
        """Lists the settings that pages of LibreTranslate need."""
        needs_key = config.token_file is not None
        chosen = {"source": {"code": AUTO, "name": "Auto Detect"}, "target": _named(next(iter(catalog.paths))[1])}
        return {
            "charLimit": config.max_characters, "frontendTimeout": 500, "apiKeys": needs_key, "keyRequired": needs_key,
            "suggestions": False, "filesTranslation": documents is not None, "language": chosen,
            "supportedFilesFormat": [f".{name}" for name in FORMATS] if documents else [],
        }  # fmt: skip

    @router.get("/spec")
    async def spec(request: Request) -> dict[str, Any]:
        """Describes the API, as /openapi.json does."""
        return request.app.openapi()

    if documents is None:
        return router

    @router.post(f"{PREFIX}{TRANSLATE_FILE}", openapi_extra=described(LibreTranslateFileBody, "multipart/form-data"))
    async def translate_file(request: Request) -> Response:
        """Translates a document, and answers where it can be downloaded once. Its path is /translate_file."""
        return await answered(request, config, _translate_file(service, documents, request))

    @router.get(f"{DOWNLOAD_FILE}{{name}}", **DOWNLOAD)
    async def download_file(name: str) -> Response:
        """Returns a translated document, and deletes it."""
        return documents.take(name.partition(".")[0]).response()

    return router


async def _translate(service: Service, fields: Mapping[str, Any]) -> dict[str, Any]:
    body = validated(LibreTranslateBody, fields, _SENTENCES)
    texts = [body.q] if isinstance(body.q, str) else body.q
    size, most = sum(map(len, texts)), service.config.max_characters
    if size > most:
        raise NmtError(f"Invalid request: request ({size}) exceeds text limit ({most})")
    if body.alternatives >= service.config.max_beam:
        raise NmtError(f"Invalid request: alternatives parameter must be <= {service.config.max_beam - 1}")
    if body.format not in (None, "", "text", "html"):
        raise NmtError(f"{body.format:.60} format is not supported")
    _check_languages(service.catalog, body.source, body.target)
    n_best = max(0, body.alternatives) + 1
    beam = min(max(n_best, SearchConfig.beam), service.config.max_beam)
    options: dict[str, Any] = {"beam": beam, "n_best": n_best, "pieces": False}
    if body.format == "html":
        options["markup"] = "html"
    request = TranslateBody(source=texts, source_lang=body.source, target_lang=body.target, **options)
    translations = await service.translated(request)
    work = partial(_answer, translations, n_best if body.alternatives > 0 else 0)
    answer = await in_thread_if(are_long(texts), work)
    return {name: values[0] for name, values in answer.items()} if isinstance(body.q, str) else answer


def _answer(translations: Sequence[RequestedText], n_best: int) -> dict[str, list[Any]]:
    answer: dict[str, list[Any]] = {"translatedText": [text.translation() for text in translations]}
    if translations[0].detected:  # then all languages are
        answer["detectedLanguage"] = [_confidence(t.detected) for t in translations if t.detected]
    if n_best:
        ranked = [dict.fromkeys(map(translation.translation, range(n_best))) for translation in translations]
        answer["alternatives"] = [[text for text in texts if text and text != next(iter(texts))] for texts in ranked]
    return answer


async def _translate_file(service: Service, documents: DocumentStore, request: Request) -> dict[str, str]:
    body = validated(LibreTranslateFileBody, await form_fields(request), _SENTENCES)
    if suffix_of(body.file.name) not in FORMATS:
        raise NmtError("Invalid request: file format not supported")
    _check_languages(service.catalog, body.source, body.target)
    fields = DocumentFields.model_construct(name=body.file.name, source_lang=body.source, target_lang=body.target)
    document_id = documents.add(body.file.content, fields)
    document = await documents.ended(document_id)
    if document.error:
        raise NmtError(document.error)
    name = quote(document.name, safe="")
    scheme = request.headers.get("x-forwarded-proto", "")  # of a proxy that the client has called
    base = request.base_url.replace(scheme=scheme if scheme in ("http", "https") else request.url.scheme)
    return {"translatedFileUrl": f"{base}{DOWNLOAD_FILE[1:]}{document_id}.{name}"}


async def _detect(service: Service, fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    body = validated(LibreTranslateDetectBody, fields, _SENTENCES)
    (languages,) = await service.detections([body.q if isinstance(body.q, str) else "\n".join(body.q)])
    return [_confidence(language) for language in languages[:3]]


def _check_languages(catalog: Catalog, source: str, target: str) -> None:
    """Raises an error in the words of LibreTranslate."""
    source, target = (code if code == AUTO else catalog.language(code) for code in (source, target))
    for language in (target,) if source == AUTO else (source, target):
        if language not in catalog.languages:
            raise NmtError(f"{language:.60} is not supported")
    if source not in (AUTO, target) and (source, target) not in catalog.paths:
        names = [f"{english_name(language)} ({language})" for language in (target, source)]
        raise NmtError(f"{names[0]} is not available as a target language from {names[1]}")


def _confidence(detected: Detection) -> dict[str, Any]:
    return {"confidence": round(100 * detected.probability, 1), "language": detected.language}


def _named(code: str) -> dict[str, Any]:
    return {"code": code, "name": english_name(code)}
