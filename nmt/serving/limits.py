"""Checks what a request asks for, before any work is done on it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from nmt.config import SearchConfig, ServeConfig
from nmt.errors import NmtError

# Fields of SearchConfig that the server sets.
_OF_SERVER = {"batch_tokens"}
_MOST_CONSTRAINTS = 16
_SURROGATE = re.compile("[\ud800-\udfff]")
# A translation may be this many pieces longer than its source at most.
_LARGEST_OFFSET = 256

# When clients may try again what was refused with 503.
RETRY = {"Retry-After": "1"}

SEARCH_FIELDS = [field for field in fields(SearchConfig) if field.name not in _OF_SERVER]


class Refused(NmtError):  # noqa: N818 (named after what happens)
    """A request that is answered with an HTTP status other than 400."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the answer."""
        return RETRY if self.status == 503 else {}


def search_config(values: Mapping[str, Any], limits: ServeConfig) -> SearchConfig:
    """Returns the options of search in a request.

    Raises:
        NmtError: a name is unknown, or a value is wrong or larger than the server allows.
    """
    known = {field.name for field in SEARCH_FIELDS}
    for name in values:
        if name not in known:
            raise NmtError(f"{name!r:.60} is no field of this request; /docs lists the fields")
    search = SearchConfig(**values)
    most = {"beam": limits.max_beam, "samples": limits.max_beam, "max_length_offset": _LARGEST_OFFSET}
    most["max_source_length"] = SearchConfig.max_source_length
    for name, largest in most.items():
        if getattr(search, name) > largest:
            raise NmtError(f"{name} must be at most {largest} on this server, but is {getattr(search, name)}")
    return search


def with_fields(message: str) -> str:
    """Returns a message that names flags with the names of the fields instead."""
    return re.sub(r"--([a-z][a-z-]*)", lambda flag: flag[1].replace("-", "_"), message)


def check_text(texts: Sequence[str], limits: ServeConfig) -> None:
    """Raises an error if a request has too much text, or text that is no Unicode."""
    characters = sum(map(len, texts))
    if characters > limits.max_characters:
        raise Refused(
            413,
            f"the request has {characters:,} characters of text, but at most {limits.max_characters:,} are allowed; "
            f"send it in parts",
        )
    if any(_SURROGATE.search(text) for text in texts):
        raise NmtError("the text has half of a surrogate pair, such as \\ud800; send whole characters")


def check_constraints(constraints: list[str]) -> None:
    """Raises NmtError if a request has too many constraints."""
    if len(constraints) > _MOST_CONSTRAINTS:
        raise NmtError(f"constraints must be at most {_MOST_CONSTRAINTS}, but are {len(constraints)}")
