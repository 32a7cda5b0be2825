"""JSON: the strings that are values. Keys, numbers and the layout of the file stay."""

import json
import re
from collections.abc import Sequence
from html import unescape
from itertools import chain

from nmt.documents.document import Document, Passage, ReadOptions, has_letters, is_sound, literal
from nmt.documents.plain import decoded, encoded
from nmt.errors import NmtError

_STRING = re.compile(r'("(?:[^"\\]|\\.)*+")(\s*:)?')
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")


def read(data: bytes, options: ReadOptions) -> Document:
    """Returns the document in a file of JSON."""
    text = decoded(data, options)
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NmtError(f"{options.name} is not JSON ({error}); correct it") from error
    strings = (json.loads(match[1]) for match in _STRING.finditer(text) if not match[2])
    values = [value for value in dict.fromkeys(strings) if _is_text(value)]
    passages = [[_passage(line) for line in value.split("\n")] for value in values]
    to_ascii = data.isascii() and b"\\u" in data

    def write(translations: Sequence[str]) -> bytes:
        found = iter(translations)
        new = {
            value: "\n".join(_translation(passage, next(found)) for passage in lines)
            for value, lines in zip(values, passages, strict=True)
        }

        def written(match: re.Match[str]) -> str:
            value = None if match[2] else json.loads(match[1])
            if value is None or new.get(value, value) == value:
                return match[0]
            return json.dumps(new[value], ensure_ascii=to_ascii)

        return encoded(_STRING.sub(written, text), data)

    return Document(list(chain.from_iterable(passages)), write)


def _is_text(value: str) -> bool:
    """Returns whether a string has letters, and no half of a surrogate pair, which is no text."""
    return has_letters(value) and not re.search("[\ud800-\udfff\0]", value)


def _passage(line: str) -> Passage:
    """Returns a line of a string, which may be HTML."""
    return Passage(line, "html") if _TAG.search(line) and is_sound(line) else literal(line)


def _translation(passage: Passage, translation: str) -> str:
    is_html = "<" in passage.text  # which a literal writes as &lt;
    return translation if is_html else unescape(translation)
