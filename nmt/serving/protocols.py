"""The protocols of LibreTranslate and DeepL, so that their clients can use this server."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError, WithJsonSchema

from nmt.config import SearchConfig
from nmt.documents.formats import FORMATS, suffix_of
from nmt.errors import NmtError
from nmt.serving.documents import Documents, Uploaded
from nmt.serving.guard import DOWNLOAD_FILE, LIBRETRANSLATE, TRANSLATE_FILE, File, answered, form_fields
from nmt.serving.schema import TranslateBody
from nmt.serving.service import AUTO, Detected, Service, Translated
from nmt.text.languages import base_language, english_name

_Body = TypeVar("_Body", bound=BaseModel)


# What is said about a field that is missing, that must be a number, or that has another wrong value.
_LIBRETRANSLATE = {
    "missing": "Invalid request: missing {} parameter",
    "int_parsing": "Invalid request: {} parameter is not a number",
    "other": "Invalid request: {} parameter is wrong",
}
_DEEPL = {"missing": "Parameter '{}' not specified.", "other": "Value for '{}' not supported."}
_MISSING = {"missing", "string_too_short", "too_short"}


def _validated(model: type[_Body], fields: Mapping[str, Any], sentences: Mapping[str, str]) -> _Body:
    """Returns the fields of a request. Raises an error in the words of the protocol."""
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        name = error.errors()[0]["loc"][0]
        kinds = {one["type"] for one in error.errors() if one["loc"][0] == name}
        kind = "missing" if kinds & _MISSING else min(kinds)
        raise NmtError(sentences.get(kind, sentences["other"]).format(name)) from None


def _described(model: type[BaseModel], *kinds: str) -> dict[str, Any]:
    """Returns the body of a request, which is JSON or a form by default, for the description of the API."""
    kinds = kinds or ("application/json", "application/x-www-form-urlencoded")
    return {"requestBody": {"content": {kind: {"schema": model.model_json_schema()} for kind in kinds}}}


_Source = Annotated[str, Field(min_length=1, description="The source language, or `auto`."), AfterValidator(str.lower)]


class LibreTranslateDetectBody(BaseModel):
    """Text whose language is asked for, as LibreTranslate has it."""

    q: Annotated[str, Field(min_length=1)] | Annotated[list[str], Field(min_length=1)] = Field(
        description="A text or a list of texts."
    )
    api_key: str | None = Field(None, description="The secret of --token-file.")


class LibreTranslateBody(LibreTranslateDetectBody):
    """Text to translate, as LibreTranslate has it."""

    source: _Source
    target: str = Field(min_length=1, description="The target language.")
    format: str | None = Field(None, description="`text` or `html`.")
    alternatives: int = Field(0, description="The largest number of other translations.")


async def _libretranslated(service: Service, fields: Mapping[str, Any]) -> dict[str, Any]:
    body = _validated(LibreTranslateBody, fields, _LIBRETRANSLATE)
    texts = [body.q] if isinstance(body.q, str) else body.q
    _check_libretranslate(service, body, texts)
    _check_languages(service, body.source, body.target)
    n_best = max(0, body.alternatives) + 1
    found = await service.translated(
        _body(service, texts, body.source, body.target, n_best=n_best, markup="html" if body.format == "html" else None)
    )
    answers: list[dict[str, Any]] = [{"translatedText": one.text()} for one in found]
    for one, translated in zip(answers, found, strict=True):
        if translated.detected:
            one["detectedLanguage"] = _confidence(translated.detected)
        if body.alternatives > 0:
            one["alternatives"] = _alternatives(translated, n_best)
    return answers[0] if isinstance(body.q, str) else {name: [one[name] for one in answers] for name in answers[0]}


def _body(service: Service, texts: list[str], source: str, target: str, n_best: int = 1, **options: Any) -> Any:
    beam = min(max(n_best, SearchConfig.beam), service.config.max_beam)
    options |= {"beam": beam, "n_best": n_best}
    return TranslateBody(source=texts, source_lang=source, target_lang=target, pieces=False, **options)


def _check_libretranslate(service: Service, body: LibreTranslateBody, texts: list[str]) -> None:
    """Raises an error in the words of LibreTranslate."""
    size, most = sum(map(len, texts)), service.config.max_characters
    if size > most:
        raise NmtError(f"Invalid request: request ({size}) exceeds text limit ({most})")
    if body.alternatives >= service.config.max_beam:
        raise NmtError(f"Invalid request: alternatives parameter must be <= {service.config.max_beam - 1}")
    if body.format not in (None, "", "text", "html"):
        raise NmtError(f"{body.format:.60} format is not supported")


def _check_languages(service: Service, source: str, target: str) -> None:
    """Raises an error in the words of LibreTranslate."""
    source, target = base_language(source), base_language(target)
    for language in (target,) if source == AUTO else (source, target):
        if language not in service.languages:
            raise NmtError(f"{language:.60} is not supported")
    if source not in (AUTO, target) and (source, target) not in service.paths:
        names = [f"{english_name(language)} ({language})" for language in (target, source)]
        raise NmtError(f"{names[0]} is not available as a target language from {names[1]}")


class LibreTranslateFileBody(BaseModel):
    """A document, as LibreTranslate has it."""

    file: Annotated[File, WithJsonSchema({"type": "string", "format": "binary"})] = Field(description="The document.")
    source: _Source
    target: str = Field(min_length=1, description="The target language.")
    api_key: str | None = Field(None, description="The secret of --token-file.")


async def _libretranslated_file(service: Service, documents: Documents, request: Request) -> dict[str, str]:
    body = _validated(LibreTranslateFileBody, await form_fields(request), _LIBRETRANSLATE)
    if suffix_of(body.file.name) not in FORMATS:
        raise NmtError("Invalid request: file format not supported")
    _check_languages(service, body.source, body.target)
    number = documents.add(body.file.name, body.file.content, None, body.source, body.target)
    found = await documents.ended(number)
    if found.error:
        raise NmtError(found.error)
    return {"translatedFileUrl": f"{request.base_url}{DOWNLOAD_FILE[1:]}{number}.{quote(found.name, safe='')}"}


def _confidence(found: Detected) -> dict[str, Any]:
    return {"confidence": round(100 * found.probability, 1), "language": found.language}


def _alternatives(translated: Translated, n_best: int) -> list[str]:
    texts = dict.fromkeys(translated.text(rank) for rank in range(n_best))
    return [text for text in texts if text and text != translated.text()]


async def _libretranslate_detected(service: Service, fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    body = _validated(LibreTranslateDetectBody, fields, _LIBRETRANSLATE)
    (found,) = await service.detected([body.q if isinstance(body.q, str) else "\n".join(body.q)])
    return [_confidence(one) for one in found[:3]]


def libretranslate_routes(service: Service, documents: Documents | None) -> APIRouter:
    """Returns the routes of LibreTranslate."""
    router, config = APIRouter(tags=["libretranslate"]), service.config

    @router.post(f"{LIBRETRANSLATE}/translate", openapi_extra=_described(LibreTranslateBody))
    async def translate(request: Request) -> Response:
        """Translates a text or a list of texts. Its path is /translate; a body with `q` or `target` comes here."""
        return await answered(request, service.config, _libretranslated(service, await form_fields(request)))

    @router.post(f"{LIBRETRANSLATE}/detect", openapi_extra=_described(LibreTranslateDetectBody))
    async def detect(request: Request) -> Response:
        """Identifies the language of a text. Its path is /detect; a body with `q` comes here."""
        return await answered(request, service.config, _libretranslate_detected(service, await form_fields(request)))

    @router.get("/languages")
    async def languages() -> list[dict[str, Any]]:
        """Lists the languages, and the target languages of each."""
        targets = {code: {code, *(pair[1] for pair in service.paths if pair[0] == code)} for code in service.languages}
        return [_named(code) | {"targets": sorted(targets[code])} for code in service.languages]

    @router.get("/frontend/settings")
    async def settings() -> dict[str, Any]:
        """Lists the settings that pages of LibreTranslate need."""
        needs_key = config.token_file is not None
        chosen = {"source": {"code": AUTO, "name": "Auto Detect"}, "target": _named(next(iter(service.paths))[1])}
        return {
            "charLimit": config.max_characters, "frontendTimeout": 500, "apiKeys": needs_key, "keyRequired": needs_key,
            "suggestions": False, "filesTranslation": documents is not None, "language": chosen,
            "supportedFilesFormat": [f".{name}" for name in FORMATS] if documents else [],
        }  # fmt: skip

    if documents:
        _add_libretranslate_files(router, service, documents)
    return router


def _add_libretranslate_files(router: APIRouter, service: Service, documents: Documents) -> None:
    body = _described(LibreTranslateFileBody, "multipart/form-data")

    @router.post(f"{LIBRETRANSLATE}{TRANSLATE_FILE}", openapi_extra=body)
    async def translate_file(request: Request) -> Response:
        """Translates a document, and answers where it can be downloaded once. Its path is /translate_file."""
        return await answered(request, service.config, _libretranslated_file(service, documents, request))

    @router.get(f"{DOWNLOAD_FILE}{{name}}", response_class=Response)
    async def download_file(name: str) -> Response:
        """Returns a translated document, and deletes it."""
        return documents.take(name.partition(".")[0]).response()


def _named(code: str) -> dict[str, Any]:
    return {"code": code, "name": english_name(code)}


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


DeepLFormality = Literal["default", "more", "less", "prefer_more", "prefer_less"]


class DeepLBody(BaseModel):
    """Text to translate, as DeepL has it. Fields that are not named here change nothing."""

    text: Annotated[list[str], BeforeValidator(_listed), Field(min_length=1)]
    target_lang: str = Field(min_length=1, description="Language of the translation, such as DE or EN-GB.")
    source_lang: str | None = Field(None, description="Language of the texts; it is identified if it is missing.")
    split_sentences: Literal["0", "1", "nonewlines"] = Field(
        "1", description="`0` takes each line for a sentence, and `nonewlines` takes line breaks for spaces."
    )
    tag_handling: Literal["html", "xml"] | None = Field(None, description="The kind of markup in the texts.")
    formality: DeepLFormality = Field("default", description="`more` and `less` are not supported.")
    preserve_formatting: bool = Field(False, description="Changes nothing; formatting is always preserved.")
    show_billed_characters: bool = Field(False, description="Whether the answer counts the characters.")


class DeepLDocumentBody(BaseModel):
    """A document, as DeepL has it. Fields that are not named here change nothing."""

    file: Annotated[File, WithJsonSchema({"type": "string", "format": "binary"})] = Field(description="The document.")
    filename: str | None = Field(None, description="The name of the document, if the file has another one.")
    target_lang: str = Field(min_length=1, description="Language of the translation, such as DE or EN-GB.")
    source_lang: str | None = Field(None, description="Language of the document; it is identified if it is missing.")
    output_format: str | None = Field(None, description="The end of the document's name; there is no other choice.")
    formality: DeepLFormality = Field("default", description="`more` and `less` are not supported.")


class DeepLKeyBody(BaseModel):
    """The secret of a document, as DeepL has it."""

    document_key: str = Field(min_length=1)


# The characters of a document's id that DeepL's clients have as the id. The others are their key.
_DEEPL_ID = 32
# Fields that name what DeepL stores for a user.
_STORED = ("glossary_id", "glossary_ids", "style_id", "translation_memory_id")
# DeepL has no plain target languages for these.
_VARIANTS = {
    "en": {"EN-GB": "English (British)", "EN-US": "English (American)"},
    "pt": {"PT-BR": "Portuguese (Brazilian)", "PT-PT": "Portuguese (European)"},
}


# What routes of DeepL always answer.
_DEEPL_LISTS: dict[str, tuple[str, dict[str, Any]]] = {
    "/usage": ("Has a limit that is never reached.", {"character_count": 0, "character_limit": 10**12}),
    "/glossaries": ("Lists no glossaries.", {"glossaries": []}),
    "/glossary-language-pairs": ("Lists no languages for glossaries.", {"supported_languages": []}),
}


def deepl_routes(service: Service, documents: Documents | None) -> APIRouter:
    """Returns the routes of DeepL."""
    router = APIRouter(prefix="/v2", tags=["deepl"])

    @router.post("/translate", openapi_extra=_described(DeepLBody))
    async def translate(request: Request) -> Response:
        """Translates texts, as DeepL does."""
        return await answered(request, service.config, _deepl_translated(service, await form_fields(request)))

    @router.get("/languages")
    async def languages(request: Request) -> list[dict[str, Any]]:
        """Lists the source languages, or with `type=target` the target languages."""
        kind = (await form_fields(request)).get("type", "source")
        if kind not in ("source", "target"):
            raise NmtError("Parameter 'type' is invalid. 'source' and 'target' are valid values.")
        return _deepl_languages(service, kind)

    @router.post("/glossaries")
    async def new_glossary() -> None:
        """Refuses to make a glossary."""
        raise NmtError("Unsupported glossary source and target language pair")

    for path, (about, found) in _DEEPL_LISTS.items():
        router.add_api_route(path, _always(found), description=about)
    if documents:
        _add_deepl_documents(router, service, documents)
    return router


def _add_deepl_documents(router: APIRouter, service: Service, documents: Documents) -> None:
    @router.post("/document", openapi_extra=_described(DeepLDocumentBody, "multipart/form-data"))
    async def add(request: Request) -> dict[str, str]:
        """Begins to translate a document, as DeepL does."""
        fields = await form_fields(request)
        body = _validated(DeepLDocumentBody, fields, _DEEPL)
        _check_deepl(service, body, fields)
        name = body.filename or body.file.name
        if body.output_format and body.output_format.lower() != suffix_of(name):
            raise NmtError(_DEEPL["other"].format("output_format"))
        number = documents.add(name, body.file.content, None, body.source_lang or AUTO, body.target_lang)
        return {"document_id": number[:_DEEPL_ID], "document_key": number[_DEEPL_ID:]}

    @router.post("/document/{name}", openapi_extra=_described(DeepLKeyBody))
    async def state(name: str, request: Request) -> dict[str, Any]:
        """Says how far the translation of a document is."""
        body = _validated(DeepLKeyBody, await form_fields(request), _DEEPL)
        return {"document_id": name, **_deepl_state(documents.get(name + body.document_key))}

    @router.post("/document/{name}/result", openapi_extra=_described(DeepLKeyBody), response_class=Response)
    async def result(name: str, request: Request) -> Response:
        """Returns a translated document, and deletes it."""
        body = _validated(DeepLKeyBody, await form_fields(request), _DEEPL)
        return documents.take(name + body.document_key).response()


def _deepl_state(one: Uploaded) -> dict[str, Any]:
    """Returns how far the translation of a document is, in the words of DeepL."""
    if one.state == "done":
        return {"status": "done", "billed_characters": one.characters}
    if one.state == "failed":
        return {"status": "error", "error_message": one.error}
    if not one.done:
        return {"status": "queued" if one.state == "waiting" else "translating"}
    seconds = asyncio.get_running_loop().time() - one.started
    return {"status": "translating", "seconds_remaining": round(seconds * (one.sentences - one.done) / one.done)}


def _always(found: dict[str, Any]) -> Callable[[], Awaitable[dict[str, Any]]]:
    async def give() -> dict[str, Any]:
        return found

    return give


async def _deepl_translated(service: Service, fields: Mapping[str, Any]) -> dict[str, Any]:
    body = _validated(DeepLBody, fields, _DEEPL)
    _check_deepl(service, body, fields)
    spaced = body.split_sentences == "nonewlines" and not body.tag_handling  # units of markup are sentences already
    texts = [" ".join(text.splitlines()) if spaced else text for text in body.text]
    options: dict[str, Any] = {"split": body.split_sentences != "0", "markup": body.tag_handling}
    request = _body(service, texts, body.source_lang or AUTO, body.target_lang, **options)
    translations = []
    for text, one in zip(body.text, await service.translated(request), strict=True):
        source = one.detected.language if one.detected else base_language(body.source_lang or "")
        billed = {"billed_characters": len(text)} if body.show_billed_characters else {}
        translations.append({"detected_source_language": source.upper(), "text": one.text(), **billed})
    return {"translations": translations}


def _check_deepl(service: Service, body: DeepLBody | DeepLDocumentBody, fields: Mapping[str, Any]) -> None:
    """Raises an error in the words of DeepL."""
    for place, name in enumerate(("source_lang", "target_lang")):
        language = getattr(body, name)
        if language and base_language(language) not in {pair[place] for pair in service.paths}:
            raise NmtError(_DEEPL["other"].format(name))
    if body.formality in ("more", "less"):
        raise NmtError("'formality' is not supported for given 'target_lang'.")
    for name in _STORED:
        if fields.get(name):
            raise NmtError(_DEEPL["other"].format(name))


def _deepl_languages(service: Service, kind: str) -> list[dict[str, Any]]:
    if kind == "source":
        codes = sorted({source for source, _ in service.paths})
        return [{"language": code.upper(), "name": english_name(code)} for code in codes]
    codes = sorted({target for _, target in service.paths})
    named = {k: v for code in codes for k, v in _VARIANTS.get(code, {code.upper(): english_name(code)}).items()}
    return [{"language": code, "name": name, "supports_formality": False} for code, name in named.items()]
