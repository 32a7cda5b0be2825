"""Answers to requests: the result of their work, or an error in a sentence."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse

from nmt import console
from nmt.config import ServeConfig
from nmt.errors import NmtError
from nmt.jobs.pool import WorkerDiedError
from nmt.serving.errors import RETRY_SECONDS, ChangedModelError, OverloadedError, TooLargeError, UnknownNameError
from nmt.serving.forms import File, form_fields
from nmt.serving.schema import SEARCH_FIELDS, DeepLFailure, Failure

# The first part of DeepL's paths, where an error has another field.
DEEPL = ("/v2/", "/v3/")
# What /openapi.json says about requests that fail.
_STATUSES: dict[int | str, str] = {
    "4XX": "The request is wrong; the sentence says how.",
    503: "There is no room, a worker died, or the answer takes too long; try again.",
}
FAILURES, DEEPL_FAILURES = (
    {status: {"model": model, "description": description} for status, description in _STATUSES.items()}
    for model in (Failure, DeepLFailure)
)
# Flags in messages that stand for fields of a request.
_FIELDS = ("source", "target", "source-lang", "target-lang", *(field.name.replace("_", "-") for field in SEARCH_FIELDS))
_FLAGS_OF_FIELDS = re.compile(f"--({'|'.join(_FIELDS)})(?![a-z-])")


async def answered(request: Request, config: ServeConfig, work: Coroutine[Any, Any, Any]) -> JSONResponse:
    """Does the work for a request and returns its result, which is JSON values.

    Raises:
        OverloadedError: the work takes too long.
        ClientDisconnect: the client has gone.
    """

    async def disconnected() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    working, gone = asyncio.create_task(work), asyncio.create_task(disconnected())
    try:
        async with asyncio.timeout(config.max_seconds):
            await asyncio.wait((working, gone), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise ClientDisconnect
            answer = working.result()
    except TimeoutError:
        message = f"the answer takes more than {config.max_seconds:g} seconds; send less text or try again"
        raise OverloadedError(message) from None
    finally:
        working.cancel()
        gone.cancel()
    if config.log_text:
        given = (await form_fields(request)).items()
        fields = {name: value for name, value in given if name != "api_key" and not isinstance(value, File)}
        console.info(f"{request.url.path} {json.dumps(fields, ensure_ascii=False)} -> {answer}")
    return JSONResponse(answer)


def constant(answer: Any) -> Callable[[], Awaitable[Any]]:
    """Returns an endpoint that always gives the same answer."""

    async def give() -> Any:
        return answer

    return give


async def failed(request: Request, error: Exception, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Returns the answer to a request that fails."""
    error = explained(error)
    sentence = error.detail.encode(errors="replace").decode()  # it may quote half of a surrogate pair
    field = "message" if request.scope["path"].startswith(DEEPL) else "error"
    return JSONResponse({field: sentence}, error.status_code, {**(error.headers or {}), **(headers or {})})


def explained(error: Exception) -> HTTPException:
    """Returns an error of a request or of a document with its status and with a sentence for the client."""
    match error:
        case HTTPException(detail="Not Found" | "Method Not Allowed"):
            return HTTPException(error.status_code, f"{error.detail}; /docs lists what there is", error.headers)
        case HTTPException():
            return error
        case RequestValidationError():
            return HTTPException(400, _wrong_field(error.errors()[0]))
        case UnknownNameError():
            return HTTPException(404, str(error))
        case TooLargeError():
            return HTTPException(413, str(error))
        case OverloadedError():
            return HTTPException(503, str(error), {"Retry-After": str(RETRY_SECONDS)})
        case WorkerDiedError():
            return explained(OverloadedError("a worker process of the server died; send less or try again later"))
        case ChangedModelError():
            return HTTPException(503, str(error))
        case NmtError():
            return HTTPException(400, _FLAGS_OF_FIELDS.sub(lambda flag: flag[1].replace("-", "_"), str(error)))
        case ClientDisconnect():  # for the figures of GET /metrics
            return HTTPException(499, "the client has gone")
    return HTTPException(500, "the server has a bug, which its log describes")


def _wrong_field(error: Mapping[str, Any]) -> str:
    """Describes a body that is not JSON or has wrong fields by the first error that pydantic lists."""
    if error["type"] == "json_invalid":
        return 'the body is no JSON; send an object such as {"source": "…"}'
    if error["loc"] == ("body",) and error["type"] in ("missing", "model_attributes_type"):
        return "the body must be a JSON object, sent with the header Content-Type: application/json"
    # The location of an error in a field of several types has its type, too.
    field = ".".join(str(name) for name in error["loc"][1:] if name not in ("str", "list[str]"))
    return f"{field or 'the body'} is wrong: {error['msg'][:200]}; /docs describes the fields"
