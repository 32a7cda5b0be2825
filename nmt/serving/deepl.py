"""The protocol of DeepL, so that its clients can use this server."""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from uuid import NAMESPACE_URL, uuid5

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, BeforeValidator, Field, NonNegativeInt, PositiveInt
from starlette.exceptions import HTTPException

from nmt.documents.document import suffix_of
from nmt.errors import NmtError
from nmt.serving.answers import DEEPL_FAILURES, answered
from nmt.serving.catalog import AUTO, Catalog
from nmt.serving.documents import DOWNLOAD, DocumentStore
from nmt.serving.errors import UnknownNameError
from nmt.serving.forms import FileField, described, form_fields, validated
from nmt.serving.schema import MOST_CONTEXT, DocumentFields, TranslateBody
from nmt.serving.service import RequestedText, Service, are_long, in_thread_if
from nmt.text.languages import english_name
from nmt.text.markup_reading import NO_RULES, ElementRules

_SENTENCES = {"missing": "Parameter '{}' not specified.", "other": "Value for '{}' not supported."}
# The characters of a document's id that DeepL's clients have as the id. The others are their key.
_ID_LENGTH = 32
# DeepL has no plain target languages for these.
_VARIANTS = {
    "en": {"EN-GB": "English (British)", "EN-US": "English (American)"},
    "pt": {"PT-BR": "Portuguese (Brazilian)", "PT-PT": "Portuguese (European)"},
}
_TSV = "text/tab-separated-values"  # of the terms of a glossary
_TAG_FIELDS = ("ignore_tags", "splitting_tags", "non_splitting_tags")


def _names(value: Any) -> Any:
    """Returns the names of elements in a text with commas, or in a list of such texts."""
    texts = [text for text in (value if isinstance(value, list) else [value]) if text is not None]
    if not all(isinstance(text, str) for text in texts):
        return value
    return [name.strip() for text in texts for name in text.split(",") if name.strip()]


_Names = Annotated[list[Annotated[str, Field(pattern=r"^[^\s<>/]+$")]], BeforeValidator(_names)]
_Formality = Literal["default", "more", "less", "prefer_more", "prefer_less"]
_ModelType = Literal["quality_optimized", "prefer_quality_optimized", "latency_optimized"]
_Texts = Annotated[list[str], BeforeValidator(lambda text: [text] if isinstance(text, str) else text)]


class DeepLOptions(BaseModel):
    """What DeepL's requests have in common. Fields that are not named here change nothing."""

    target_lang: str = Field(min_length=1, description="Language of the translation, such as DE or EN-GB.")
    source_lang: str | None = Field(None, description="Language of the text; it is identified if it is missing.")
    formality: _Formality = Field("default", description="`more` and `less` are not supported.")
    glossary_id: str | None = Field(None, description="The id of a glossary, which /v3/glossaries lists.")
    translation_memory_id: str | None = Field(None, description="The id of a memory of /v3/translation_memories.")


class DeepLBody(DeepLOptions):
    """Text to translate, as DeepL has it. Fields that are not named here change nothing."""

    text: _Texts = Field(min_length=1)
    context: str = Field("", description="Lines before the texts, which a model of context reads.")
    split_sentences: Literal["0", "1", "nonewlines"] = Field("1", description="`0` takes each line for a sentence.")
    tag_handling: Literal["html", "xml"] | None = Field(None, description="The kind of markup in the texts.")
    ignore_tags: _Names = Field([], description="Elements that stay as they are, as a list or with commas.")
    splitting_tags: _Names = Field([], description="Elements that end a text.")
    non_splitting_tags: _Names = Field([], description="Elements that end no text.")
    outline_detection: bool = Field(True, description="Whether elements with none of these names may end a text.")
    model_type: _ModelType | None = Field(None, description="Changes nothing; the answer has `model_type_used`.")
    show_billed_characters: bool = Field(False, description="Whether the answer counts the characters.")


class DeepLDocumentBody(DeepLOptions):
    """A document, as DeepL has it. Fields that are not named here change nothing."""

    file: FileField
    filename: str | None = Field(None, description="The name of the document, if the file has another one.")
    output_format: str | None = Field(None, description="The end of the document's name; there is no other choice.")


class DeepLKeyBody(BaseModel):
    """The secret of a document, as DeepL has it."""

    document_key: str = Field(min_length=1)


def deepl_routes(service: Service, documents: DocumentStore | None) -> APIRouter:
    """Returns the routes of DeepL."""
    router, catalog = APIRouter(prefix="/v2", tags=["deepl"], responses=DEEPL_FAILURES), service.catalog

    @router.post("/translate", openapi_extra=described(DeepLBody))
    async def translate(request: Request) -> Response:
        """Translates texts, as DeepL does."""
        return await answered(request, service.config, _translate(service, await form_fields(request)))

    @router.get("/languages")
    async def languages(request: Request) -> list[dict[str, Any]]:
        """Lists the source languages, or with `type=target` the target languages."""
        kind = (await form_fields(request)).get("type", "source")
        if kind not in ("source", "target"):
            raise NmtError("Parameter 'type' is invalid. 'source' and 'target' are valid values.")
        if kind == "source":
            return [{"language": code.upper(), "name": english_name(code)} for code in sorted(catalog.sources)]
        names: dict[str, str] = {}
        for code in sorted(catalog.targets):
            names |= _VARIANTS.get(code, {code.upper(): english_name(code)})
        return [{"language": code, "name": name, "supports_formality": False} for code, name in names.items()]

    @router.get("/usage")
    async def usage() -> dict[str, int]:
        """Has a limit that is never reached."""
        return {"character_count": 0, "character_limit": 10**12}

    if documents is None:
        return router

    async def document_id(name: str, request: Request) -> str:
        return name + validated(DeepLKeyBody, await form_fields(request), _SENTENCES).document_key

    @router.post("/document/", include_in_schema=False)  # a path of older clients, such as deepl-java's
    @router.post("/document", openapi_extra=described(DeepLDocumentBody, "multipart/form-data"))
    async def add(request: Request) -> dict[str, str]:
        """Begins to translate a document, as DeepL does."""
        fields = await form_fields(request)
        body = validated(DeepLDocumentBody, fields, _SENTENCES)
        options = _options(catalog, body, fields)
        name = body.filename or body.file.name
        if body.output_format and body.output_format.lower() != suffix_of(name):
            raise _unsupported("output_format")
        whole_id = documents.add(body.file.content, DocumentFields.model_construct(name=name, **options))
        return {"document_id": whole_id[:_ID_LENGTH], "document_key": whole_id[_ID_LENGTH:]}

    @router.post("/document/{name}", openapi_extra=described(DeepLKeyBody))
    async def state(name: str, request: Request) -> dict[str, Any]:
        """Says how far the translation of a document is."""
        document = documents.get(await document_id(name, request))
        progress: dict[str, dict[str, Any]] = {
            "waiting": {"status": "queued"},
            "translating": {"status": "translating", "seconds_remaining": document.seconds_remaining},
            "done": {"status": "done", "billed_characters": document.characters},
            "failed": {"status": "error", "error_message": document.error},
        }
        return {"document_id": name, **progress[document.state]}

    @router.post("/document/{name}/result", openapi_extra=described(DeepLKeyBody), **DOWNLOAD)
    async def result(name: str, request: Request) -> Response:
        """Returns a translated document, and deletes it."""
        return documents.take(await document_id(name, request)).response()

    return router


def _without_breaks(text: str) -> str:
    """Returns a text with a space in place of each line break between its words."""

    def space(run: re.Match[str]) -> str:
        is_inner = run.start() > 0 and run.end() < len(text)
        return " " if is_inner and not {"\r", "\n"}.isdisjoint(run[0]) else run[0]

    return re.sub(r"\s+", space, text)


async def _translate(service: Service, fields: Mapping[str, Any]) -> dict[str, Any]:
    body = validated(DeepLBody, fields, _SENTENCES)
    options = _options(service.catalog, body, fields)
    lower = str.lower if body.tag_handling == "html" else str
    kept, splitting, non_splitting = (frozenset(map(lower, getattr(body, field))) for field in _TAG_FIELDS)
    rules = ElementRules(kept, splitting, non_splitting, body.outline_detection)
    if rules != NO_RULES and not body.tag_handling:
        raise NmtError(_SENTENCES["missing"].format("tag_handling"))
    source = body.text
    if body.split_sentences == "nonewlines" and not body.tag_handling:  # units of markup are sentences already
        source = list(map(_without_breaks, source))
    split = body.split_sentences != "0"
    markup, context = body.tag_handling, list(filter(None, body.context.splitlines()))[-MOST_CONTEXT:]
    request = TranslateBody(source=source, markup=markup, context=context, pieces=False, split=split, **options)
    language = service.catalog.language(options["source_lang"])
    texts = await service.translated(request, rules)

    def answer(given: str, text: RequestedText) -> dict[str, Any]:
        detected = text.detected.language if text.detected else language
        fields: dict[str, Any] = {"detected_source_language": detected.upper(), "text": text.translation()}
        if body.model_type:
            fields["model_type_used"] = body.model_type.removeprefix("prefer_")
        if body.show_billed_characters:
            fields["billed_characters"] = len(given)
        return fields

    answers = await in_thread_if(are_long(body.text), lambda: list(map(answer, body.text, texts)))
    return {"translations": answers}


def _options(catalog: Catalog, body: DeepLOptions, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the languages, the glossary and the memory of a request; raises errors in the words of DeepL."""
    for field, languages in (("source_lang", catalog.sources), ("target_lang", catalog.targets)):
        language = getattr(body, field)
        if language and catalog.language(language) not in languages:
            raise _unsupported(field)
    if body.formality in ("more", "less"):
        raise NmtError("'formality' is not supported for given 'target_lang'.")
    # These fields name what DeepL stores for a user, or what a model of this server cannot follow.
    for field in filter(fields.get, ("glossary_ids", "style_id", "custom_instructions")):
        raise _unsupported(field)
    options = {"source_lang": body.source_lang or AUTO, "target_lang": body.target_lang}
    for option, field, names in (
        ("glossary", "glossary_id", catalog.glossaries),
        ("memory", "translation_memory_id", catalog.memories),
    ):
        if id := getattr(body, field):
            if id not in (by_id := _names_by_id(names)):
                raise _unsupported(field)
            options[option] = by_id[id]
    return options


def _unsupported(field: str) -> NmtError:
    return NmtError(_SENTENCES["other"].format(field))


def _names_by_id(names: Iterable[str]) -> dict[str, str]:
    """Returns the names of glossaries or memories by their ids, which stay the same when the server starts again."""
    return {str(uuid5(NAMESPACE_URL, name)): name for name in names}


def glossary_routes(catalog: Catalog) -> APIRouter:
    """Returns the routes of glossaries and memories.

    A file of terms names no languages, so a glossary has a dictionary for each pair of languages that a single
    model translates. Version 2 of the protocol has glossaries of one pair only.
    """
    router, names = APIRouter(tags=["deepl"], responses=DEEPL_FAILURES), _names_by_id(catalog.glossaries)
    started = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    direct = [pair for pair, path in catalog.paths.items() if len(path) == 1] if names else []
    pairs = [{"source_lang": source, "target_lang": target} for source, target in direct]

    def tsv(id: str) -> str:
        return "\n".join(f"{term}\t{forms[0]}" for term, forms in catalog.glossaries[names[id]].terms.items())

    @router.get("/v3/glossaries/{id}")
    def multilingual(id: str) -> dict[str, Any]:
        """Describes a glossary."""
        if id not in names:
            raise UnknownNameError(f"there is no glossary {id!r:.60}; GET /v3/glossaries lists the glossaries")
        dictionaries = [pair | {"entry_count": len(catalog.glossaries[names[id]].terms)} for pair in pairs]
        return {"glossary_id": id, "name": names[id], "creation_time": started, "dictionaries": dictionaries}

    @router.get("/v2/glossaries/{id}")
    def monolingual(id: str) -> dict[str, Any]:
        """Describes a glossary."""
        glossary = multilingual(id)
        if len(pairs) > 1:
            raise UnknownNameError(f"the glossary {id!r:.60} has several pairs of languages; use /v3/glossaries")
        (dictionary,) = glossary.pop("dictionaries")
        return glossary | {"ready": True} | dictionary

    @router.get("/v2/glossary-language-pairs")
    async def language_pairs() -> dict[str, Any]:
        """Lists the pairs of languages of the glossaries."""
        return {"supported_languages": pairs}

    @router.get("/v2/glossaries")
    async def monolingual_glossaries() -> dict[str, Any]:
        """Lists the glossaries. It lists none if they have several pairs of languages."""
        return {"glossaries": [monolingual(id) for id in names if len(pairs) == 1]}

    terms: dict[int | str, dict[str, Any]] = {200: {"content": {_TSV: {"schema": {"type": "string"}}}}}

    @router.get("/v2/glossaries/{id}/entries", response_class=Response, responses=terms)
    async def monolingual_entries(id: str) -> Response:
        """Lists the terms of a glossary and the first form of each translation."""
        monolingual(id)
        return Response(tsv(id), media_type=_TSV)

    @router.get("/v3/glossaries")
    async def glossaries() -> dict[str, Any]:
        """Lists the glossaries."""
        return {"glossaries": list(map(multilingual, names))}

    @router.get("/v3/glossaries/{id}/entries")
    async def entries(id: str, source_lang: str, target_lang: str) -> dict[str, Any]:
        """Lists the terms of a glossary and the first form of each translation."""
        multilingual(id)
        pair = {"source_lang": catalog.language(source_lang), "target_lang": catalog.language(target_lang)}
        if pair not in pairs:
            raise UnknownNameError(f"the glossary {id!r:.60} has no dictionary for these languages")
        return {"dictionaries": [pair | {"entries": tsv(id), "entries_format": "tsv"}]}

    @router.get("/v3/translation_memories")
    async def memories(page: NonNegativeInt = 0, page_size: PositiveInt = 10) -> dict[str, Any]:
        """Lists the memories, page by page."""
        entries = []
        for id, name in _names_by_id(catalog.memories).items():
            languages = [tuple(map(catalog.language, memory.languages)) for memory in catalog.memories[name]]
            entry: dict[str, Any] = {"translation_memory_id": id, "name": name, "source_language": languages[0][0]}
            entry["target_languages"] = list(dict.fromkeys(target for _, target in languages))
            entries.append(entry | {"segment_count": sum(map(len, catalog.memories[name]))})
        first = page * page_size
        return {"translation_memories": entries[first : first + page_size], "total_count": len(entries)}

    @router.api_route("/v2/glossaries{path:path}", methods=["POST", "PUT", "PATCH", "DELETE"], include_in_schema=False)
    @router.api_route("/v3/glossaries{path:path}", methods=["POST", "PUT", "PATCH", "DELETE"], include_in_schema=False)
    async def change() -> None:
        """Refuses to create, change or delete a glossary."""
        raise HTTPException(403, "requests cannot change glossaries; start the server with --glossary NAME=FILE")

    return router
