"""The formats of documents by the names of files."""

from importlib import import_module
from pathlib import Path

from nmt.documents.document import Document, ReadOptions
from nmt.errors import NmtError

# The module that reads each format, by the last part of a file's name. Modules import their libraries when needed.
_MODULES = {"txt": "plain", "docx": "docx", "po": "po", "pot": "po", "xlf": "xliff", "xliff": "xliff"}
FORMATS = tuple(_MODULES)


def format_of(name: str) -> str:
    """Returns the format of a file. Raises NmtError if no format has this name."""
    suffix = Path(name).suffix.removeprefix(".").lower()
    if suffix not in _MODULES:
        raise NmtError(f"{name} has no known format; name the file *.{', *.'.join(FORMATS)}, or give --format")
    return suffix


def read_document(data: bytes, form: str, options: ReadOptions) -> Document:
    """Returns the document in a file of a format in `FORMATS`. Raises NmtError if the file is damaged."""
    document: Document = import_module(f"nmt.documents.{_MODULES[form]}").read(data, options)
    return document
