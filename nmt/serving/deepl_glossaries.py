"""The glossaries and memories of a server in the protocol of DeepL: clients list them and use them by their ids."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from fastapi import APIRouter, Response
from starlette.exceptions import HTTPException

from nmt.serving.answers import DEEPL_FAILURES
from nmt.serving.catalog import Catalog
from nmt.serving.errors import UnknownNameError

_TSV = "text/tab-separated-values"


def names_by_id(names: Iterable[str]) -> dict[str, str]:
    """Returns the names of glossaries or memories by their ids, which stay the same when the server starts again."""
    return {str(uuid5(NAMESPACE_URL, name)): name for name in names}


def glossary_routes(catalog: Catalog) -> APIRouter:
    """Returns the routes of glossaries and memories.

    A file of terms names no languages, so a glossary has a dictionary for each pair of languages that a single model
    translates. Version 2 of the protocol has glossaries of one pair only.
    """
    router = APIRouter(tags=["deepl"], responses=DEEPL_FAILURES)
    names = names_by_id(catalog.glossaries)
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
    async def memories() -> dict[str, Any]:
        """Lists the memories."""
        entries = []
        for id, name in names_by_id(catalog.memories).items():
            languages = [tuple(map(catalog.language, memory.languages)) for memory in catalog.memories[name]]
            entry: dict[str, Any] = {"translation_memory_id": id, "name": name, "source_language": languages[0][0]}
            entry["target_languages"] = list(dict.fromkeys(target for _, target in languages))
            entries.append(entry | {"segment_count": sum(map(len, catalog.memories[name]))})
        return {"translation_memories": entries, "total_count": len(entries)}

    @router.api_route("/v2/glossaries{path:path}", methods=["POST", "PUT", "PATCH", "DELETE"], include_in_schema=False)
    @router.api_route("/v3/glossaries{path:path}", methods=["POST", "PUT", "PATCH", "DELETE"], include_in_schema=False)
    async def change() -> None:
        """Refuses to create, change or delete a glossary."""
        raise HTTPException(403, "requests cannot change glossaries; start the server with --glossary NAME=FILE")

    return router
