"""Plain text: each line is translated by itself. Line ends and a byte order mark stay."""

from collections.abc import Sequence

from nmt.documents.document import Document, ReadOptions, decoded, encoded, lines_of
from nmt.text.marked import Token
from nmt.translate.units import Unit


def read(data: bytes, options: ReadOptions) -> Document:
    """Returns the lines in a file."""
    lines, _ = lines_of(decoded(data, options))
    ends = [end for _, end in lines]

    def write(translations: Sequence[Sequence[Token]]) -> bytes:
        return encoded("".join(map(str.__add__, translations[0][0].text.split("\n"), ends)), data)

    return Document([Unit("\n".join(line for line, _ in lines))], write)
