"""JSON lines with source sentences, the input of `nmt generate` and `nmt rescore`."""

import json
from typing import Any

from nmt.errors import NmtError


def parse_object(line: str, origin: str) -> dict[str, Any]:
    """Returns the object of a line.

    Args:
        origin: the line's place for messages: `pairs.jsonl, line 3`.

    Raises:
        NmtError: the line is no object with a text as its `source`; names `origin`.
    """
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise NmtError(f"{origin} is not JSON ({error}); give one object on each line") from error
    if not isinstance(value, dict) or not isinstance(value.get("source"), str):
        raise NmtError(f'{origin} has no text as its "source"; give objects such as {{"source": "…"}}')
    return value
