"""Parses JSON files strictly and checks their content against a schema, because files may be damaged.

A schema is one of
    a Kind         a test of a single value
    {key: schema}  an object with these keys; a key that ends with "?" may be missing; other keys are ignored
    [schema]       a list whose items all follow one schema
    Each           an object with any keys of one Kind, whose values all follow one schema
"""

import json
import math
import re
import reprlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

_LARGEST = 2**63 - 1
# The deepest nesting that is accepted. No valid file comes near it, and Python can write much deeper nesting.
_LEVELS = 100
_SHA256 = re.compile("[0-9a-f]{64}")


class Kind(NamedTuple):
    """A condition on a value: the function that tests it, and its description for messages."""

    accepts: Callable[[Any], bool]
    description: str


class Each(NamedTuple):
    """The schema of an object whose keys are all of one kind and whose values all follow one schema."""

    key: Kind
    value: "Schema"


Schema: TypeAlias = Kind | Each | Mapping[str, "Schema"] | list["Schema"]


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _LARGEST


def _is_number(value: Any) -> bool:
    return (type(value) is int and abs(value) <= _LARGEST) or (type(value) is float and math.isfinite(value))


COUNT = Kind(_is_count, "a whole number of at least 0")
POSITIVE = Kind(lambda value: _is_count(value) and value > 0, "a whole number of at least 1")
NUMBER = Kind(_is_number, "a number")
NUMBER_OR_NULL = Kind(lambda value: value is None or _is_number(value), "a number or null")
TEXT = Kind(lambda value: isinstance(value, str), "text")
TEXT_OR_NULL = Kind(lambda value: value is None or isinstance(value, str), "text or null")
SHA256 = Kind(lambda value: isinstance(value, str) and bool(_SHA256.fullmatch(value)), "a SHA-256 in hexadecimal")


def parse_json(data: bytes) -> Any:
    """Returns the value of a JSON text.

    Raises:
        ValueError: the text is not JSON in UTF-8, is nested too deeply, or contains a number that is not finite or a
            character that UTF-8 cannot encode.
    """
    try:
        value = json.loads(data.decode("utf-8"))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if _is_deeper(value, _LEVELS):
        raise ValueError("it is nested too deeply")
    json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
    return value


def _is_deeper(value: Any, levels: int) -> bool:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(levels == 0 or _is_deeper(part, levels - 1) for part in parts)


def first_problem(value: Any, schema: Schema) -> str | None:
    """Returns, in words, the first difference between `value` and the schema, or None if it follows the schema."""
    return next(_problems(value, schema, ""), None)


def _problems(value: Any, schema: Schema, name: str) -> Iterator[str]:
    """Yields every difference in words; `name` is the path of keys that leads to `value`."""
    if isinstance(schema, Kind):
        if not schema.accepts(value):
            yield _wrong(name, value, schema.description)
    elif isinstance(schema, list):
        if not isinstance(value, list):
            yield _wrong(name, value, "a list")
            return
        for number, item in enumerate(value):
            yield from _problems(item, schema[0], f"{name}[{number}]")
    elif not isinstance(value, dict):
        yield _wrong(name, value, "an object")
    elif isinstance(schema, Each):
        for key, item in value.items():
            yield from _problems(key, schema.key, f"a key of {name}")
            yield from _problems(item, schema.value, f"{name}.{key}")
    else:
        yield from _problems_of_keys(value, schema, name)


def _problems_of_keys(value: dict[str, Any], schema: Mapping[str, Schema], name: str) -> Iterator[str]:
    for declared, part in schema.items():
        key = declared.removesuffix("?")
        path = f"{name}.{key}" if name else key
        if key in value:
            yield from _problems(value[key], part, path)
        elif key == declared:
            yield f"{path} is missing"


def _wrong(name: str, value: Any, expected: str) -> str:
    return f"{name or 'it'} is {reprlib.repr(value)} instead of {expected}"
