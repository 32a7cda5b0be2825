"""JSON lines with source sentences, the input of `nmt generate` and `nmt rescore`."""

import json
from collections.abc import Iterator
from typing import Any

from nmt.errors import NmtError
from nmt.text.corpus import name_of, read_lines


def read_objects(path: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Yields the object of each line of a file, and the line's place for messages: `pairs.jsonl, line 3`.

    Raises:
        NmtError: the file cannot be read, or a line is no object with a text as its `source`; names the line.
    """
    for number, line in enumerate(read_lines(path), start=1):
        origin = f"{name_of(path)}, line {number}"
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise NmtError(f"{origin} is not JSON ({error}); give one object on each line") from error
        if not isinstance(value, dict) or not isinstance(value.get("source"), str):
            raise NmtError(f'{origin} has no text as its "source"; give objects such as {{"source": "…"}}')
        yield value, origin
