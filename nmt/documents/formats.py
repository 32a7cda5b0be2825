"""The formats of documents by the names of files."""

from importlib import import_module
from pathlib import Path

from nmt.documents.document import Document, ReadOptions
from nmt.errors import NmtError

# The module that reads each format, and the last parts of its files' names.
_SUFFIXES = {
    "text": ["txt"],
    "markdown": ["md", "markdown", "mdx", "qmd", "rmd"],
    "html": ["html", "htm", "xhtml"],
    "docx": ["docx"],
    "subtitles": ["srt", "vtt"],
    "po": ["po", "pot"],
    "xliff": ["xlf", "xliff", "sdlxliff", "mxliff", "mqxliff"],
    "json": ["json", "arb"],
}
_READERS = {suffix: module for module, suffixes in _SUFFIXES.items() for suffix in suffixes}
FORMATS = tuple(_READERS)


def suffix_of(name: str) -> str:
    """Returns the last part of a file's name, by which its format is known."""
    return Path(name).suffix.removeprefix(".").lower()


def format_of(name: str) -> str:
    """Returns the format of a file. Raises NmtError if no format has this name."""
    if suffix_of(name) not in FORMATS:
        raise NmtError(f"{name} has no known format; name the file *.{', *.'.join(FORMATS)}, or give --format")
    return suffix_of(name)


def read_document(data: bytes, form: str, options: ReadOptions) -> Document:
    """Returns the document in a file of a format in `FORMATS`. Raises NmtError if the file is damaged."""
    reader = import_module(f"nmt.documents.{_READERS[form]}")  # only now, because some need other packages
    document: Document = reader.read(data, options._replace(form=form))
    return document
