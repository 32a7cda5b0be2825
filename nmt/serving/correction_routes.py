"""The routes of corrections: clients store them, list them, take them back, and download them as a memory."""

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query, Request, Response

from nmt import console
from nmt.errors import NmtError
from nmt.serving import schema
from nmt.serving.answers import FAILURES, answered
from nmt.serving.corrections import Corrections, tmx
from nmt.serving.errors import OverloadedError, UnknownNameError
from nmt.serving.service import Service
from nmt.text.markup_writing import text_only

_Result = TypeVar("_Result")
_TMX = "application/x-tmx+xml"


def correction_routes(service: Service, corrections: Corrections) -> APIRouter:
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
        return schema.CorrectionsAnswer(
            corrections=entries[: -limit - 1 : -1], total=len(entries), skipped=corrections.skipped
        )

    @router.delete("/corrections/{id}", status_code=204)
    async def take_back(id: str) -> None:
        """Takes a correction back."""
        if not await stored(lambda: corrections.take_back(id)):
            raise UnknownNameError(f"there is no correction {id!r:.60}; it was taken back or never stored")

    @router.get("/corrections.tmx", response_class=Response, responses={200: {"content": {_TMX: {}}}})
    def download() -> Response:
        """Returns all corrections as a translation memory, TMX 1.4."""
        headers = {"Content-Disposition": "attachment; filename=corrections.tmx"}
        return Response(tmx(corrections.all()), media_type=_TMX, headers=headers)

    return router
