"""Plain text: each line is a passage of its own."""

from nmt.documents.document import Document, Passage, ReadOptions
from nmt.errors import NmtError


def read(data: bytes, options: ReadOptions) -> Document:
    """Returns the document in a file of plain text."""
    return Document([Passage(decoded(data, options))], lambda translations: "".join(translations).encode())


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
