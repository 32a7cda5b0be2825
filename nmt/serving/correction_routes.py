"""The routes of corrections: clients keep them, list them, take them back, and download them as a memory."""

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query, Request, Response
from starlette.exceptions import HTTPException

from nmt import console
from nmt.errors import NmtError
from nmt.serving import schema
from nmt.serving.answers import FAILURES, RETRY, answered
from nmt.serving.corrections import Corrections, tmx
from nmt.serving.service import Service

_Result = TypeVar("_Result")


def correction_routes(service: Service, corrections: Corrections) -> APIRouter:
    """Returns the routes of corrections."""
    router = APIRouter(responses=FAILURES)

    async def stored(change: Callable[[], _Result]) -> _Result:
        try:
            return await asyncio.to_thread(change)
        except NmtError as error:
            console.warn(str(error))
            message = "the server cannot write its file of corrections; its log says why"
            raise HTTPException(503, message, RETRY) from error

    async def kept(body: schema.CorrectionBody) -> dict[str, Any]:
        texts = body.source, body.target, body.machine_translation
        schema.check_text(texts, service.config)
        for name, text in zip(("source", "target"), texts, strict=False):
            if not text.strip() or "\n" in text or "\r" in text:
                raise NmtError(f"{name} must be a sentence on one line; send the sentences of a text one by one")
        if not service.path(None, body.source_lang, body.target_lang):
            raise NmtError(f"source_lang and target_lang are both {body.source_lang!r:.60}; they must differ")
        languages = {name: service.language(getattr(body, name)) for name in ("source_lang", "target_lang")}
        correction = await stored(lambda: corrections.keep(body.model_copy(update=languages)))
        return correction.model_dump(mode="json")

    @router.post("/corrections", response_model=schema.Correction)
    async def keep(body: schema.CorrectionBody, request: Request) -> Response:
        """Stores a correction: it translates this sentence from now on."""
        return await answered(request, service.config, kept(body))

    @router.get("/corrections", response_model_exclude_defaults=True)
    async def latest(limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> schema.CorrectionsAnswer:
        """Lists the latest corrections."""
        await asyncio.to_thread(corrections.refresh)
        entries = list(corrections.by_id.values())
        return schema.CorrectionsAnswer(
            corrections=entries[: -limit - 1 : -1], total=len(entries), skipped=corrections.skipped
        )

    @router.delete("/corrections/{id}", status_code=204)
    async def take_back(id: str) -> None:
        """Takes a correction back."""
        if not await stored(lambda: corrections.take_back(id)):
            raise HTTPException(404, f"there is no correction {id!r:.60}; it was taken back or never stored")

    memory: dict[int | str, dict[str, Any]] = {
        200: {"content": {"application/x-tmx+xml": {"schema": {"type": "string"}}}}
    }

    @router.get("/corrections.tmx", response_class=Response, responses=memory)
    async def download() -> Response:
        """Returns all corrections as a translation memory, TMX 1.4."""
        await asyncio.to_thread(corrections.refresh)
        content = await asyncio.to_thread(tmx, list(corrections.by_id.values()))
        headers = {"Content-Disposition": "attachment; filename=corrections.tmx"}
        return Response(content, media_type="application/x-tmx+xml", headers=headers)

    return router
