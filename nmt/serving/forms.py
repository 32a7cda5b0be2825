"""Bodies of requests of other protocols: JSON objects or forms, whose fields are checked."""

import json
from collections.abc import Mapping
from contextlib import suppress
from email.message import Message
from email.parser import HeaderParser
from email.utils import collapse_rfc2231_value
from typing import Annotated, Any, NamedTuple, TypeVar
from urllib.parse import parse_qs

from pydantic import BaseModel, Field, ValidationError, WithJsonSchema
from starlette.requests import Request

from nmt.errors import NmtError

_Body = TypeVar("_Body", bound=BaseModel)
# Fields of a form, parts of a multipart form, and bytes of the head of one.
_MOST_FIELDS, _MOST_PARTS, _MOST_HEAD_BYTES = 10_000, 1000, 4096
# Errors of pydantic that mean that a field is missing or empty.
_MISSING = {"missing", "string_too_short", "too_short"}


class File(NamedTuple):
    """A file in a form."""

    name: str
    content: bytes


FileField = Annotated[File, WithJsonSchema({"type": "string", "format": "binary"}), Field(description="The document.")]


def validated(model: type[_Body], fields: Mapping[str, Any], sentences: Mapping[str, str]) -> _Body:
    """Returns the fields of a request as a model.

    Args:
        sentences: what the protocol says about the first wrong field, by the type of pydantic's error: `missing`
            also of an empty field, and `other` of all types without a sentence.
    """
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        field = error.errors()[0]["loc"][0]
        kinds = {details["type"] for details in error.errors() if details["loc"][0] == field}
        kind = "missing" if kinds & _MISSING else min(kinds)
        raise NmtError(sentences.get(kind, sentences["other"]).format(field)) from None


def described(model: type[BaseModel], *kinds: str) -> dict[str, Any]:
    """Describes a body for /openapi.json. By default, it is JSON or a form."""
    kinds = kinds or ("application/json", "application/x-www-form-urlencoded")
    content = {kind: {"schema": model.model_json_schema()} for kind in kinds}
    return {"requestBody": {"required": True, "content": content}}


async def form_fields(request: Request) -> dict[str, Any]:
    """Returns the fields in the address and in a JSON object or form; one that is given several times is a list."""
    lists: dict[str, list[Any]] = dict(parse_qs(request.url.query, keep_blank_values=True))
    body, content_type, json_value = await request.body(), request.headers.get("content-type", ""), None
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "application/json":
        with suppress(ValueError, RecursionError):
            json_value = json.loads(body)
    elif kind == "application/x-www-form-urlencoded":
        with suppress(ValueError):  # it has more fields than any client sends
            lists |= parse_qs(body.decode(errors="replace"), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    elif kind == "multipart/form-data":
        lists |= _multipart(body, content_type)
    fields = {name: values[0] if len(values) == 1 else values for name, values in lists.items()}
    return fields | json_value if isinstance(json_value, dict) else fields


def _file_name(headers: Message) -> str | None:
    """Returns the name of a file. If a client spells it in two ways, the last one, `filename*`, has all characters."""
    parameters = headers.get_params([], header="content-disposition")
    values = [value for name, value in parameters if name == "filename"]
    return collapse_rfc2231_value(values[-1]).strip() if values else None


def _multipart(body: bytes, content_type: str) -> dict[str, list[Any]]:
    """Returns the fields of a multipart form (RFC 7578). The value of a file is a `File`."""
    head, fields = Message(), dict[str, list[Any]]()
    head["Content-Type"] = content_type
    parts = list[bytes]()
    with suppress(ValueError):  # a boundary that no encoding has
        if boundary := head.get_boundary():
            parts = (b"\r\n" + body).split(f"\r\n--{boundary}".encode(), _MOST_PARTS)[1:_MOST_PARTS]
    for part in parts:
        part_head, _, content = part.partition(b"\r\n\r\n")
        if len(part_head) > _MOST_HEAD_BYTES:
            continue
        headers = HeaderParser().parsestr(part_head.decode(errors="replace").strip())
        name = file_name = None
        with suppress(TypeError, ValueError):  # named in several ways; bytes that are not in the encoding
            name, file_name = headers.get_param("name", header="content-disposition"), _file_name(headers)
        if isinstance(name, str):  # what follows the last part has none
            value = content.decode(errors="replace") if file_name is None else File(file_name, content)
            fields.setdefault(name, []).append(value)
    return fields
