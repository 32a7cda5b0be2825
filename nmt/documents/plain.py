"""Plain text: each line is translated by itself. Line ends, indentation and a byte order mark stay."""

import re
from codecs import BOM_UTF8
from collections.abc import Sequence

from nmt.documents.document import Document, Passage, ReadOptions
from nmt.errors import NmtError

# Possessive repetition avoids quadratic time for long lines.
_LINE = re.compile(r"([^\S\r\n]*+)((?:[^\S\r\n]*+\S++)*+)([^\S\r\n]*+(?:\r\n|\n|\r|\Z))")


def read(data: bytes, options: ReadOptions) -> Document:
    """Returns the document in a file of plain text."""
    text = decoded(data, options)
    lines = "\n".join(line for _, line, _ in _LINE.findall(text))

    def write(translations: Sequence[str]) -> bytes:
        translated = zip(_LINE.finditer(text), translations[0].split("\n"), strict=True)
        return encoded("".join(f"{line[1]}{new}{line[3]}" for line, new in translated), data)

    return Document([Passage(lines)], write)


def decoded(data: bytes, options: ReadOptions) -> str:
    """Returns the text of a file in UTF-8. Raises NmtError if it is in another encoding or has NUL bytes."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise NmtError(
            f"{options.name} is not UTF-8 at byte {error.start:,}; convert it, such as with iconv --to-code UTF-8"
        ) from error
    if "\0" in text:
        raise NmtError(f"{options.name} has a NUL byte at character {text.index(chr(0)) + 1:,}; is it a text file?")
    return text


def encoded(text: str, data: bytes) -> bytes:
    """Returns text in UTF-8, with a byte order mark if `data` has one."""
    return BOM_UTF8 * data.startswith(BOM_UTF8) + text.encode(errors="replace")
