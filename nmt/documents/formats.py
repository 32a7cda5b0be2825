"""The formats of documents by the names of files. The module of a format is imported when a document of it is read."""

from importlib import import_module
from pathlib import Path

from nmt.documents.document import Document, ReadOptions
from nmt.errors import NmtError

# The module that reads each format, by the last part of a file's name.
_READERS = {
    "txt": "text",
    "md": "markdown",
    "markdown": "markdown",
    "mdx": "markdown",
    "qmd": "markdown",
    "rmd": "markdown",
    "html": "html",
    "htm": "html",
    "xhtml": "html",
    "docx": "docx",
    "srt": "subtitles",
    "vtt": "subtitles",
    "po": "po",
    "pot": "po",
    "xlf": "xliff",
    "xliff": "xliff",
    "sdlxliff": "xliff",
    "mxliff": "xliff",
    "mqxliff": "xliff",
    "json": "json",
    "arb": "json",
}
FORMATS = tuple(_READERS)


def suffix_of(name: str) -> str:
    """Returns the last part of a file's name, by which its format is known."""
    return Path(name).suffix.removeprefix(".").lower()


def check_format(form: str | None) -> None:
    """Raises NmtError if --format names no format."""
    if form is not None and form not in FORMATS:
        raise NmtError(f"--format must be one of {', '.join(FORMATS)}, but is {form!r:.40}")


def format_of(name: str) -> str:
    """Returns the format of a file. Raises NmtError if no format has this name."""
    if suffix_of(name) not in FORMATS:
        raise NmtError(f"{name} has no known format; name the file *.{', *.'.join(FORMATS)}, or give --format")
    return suffix_of(name)


def read_document(data: bytes, form: str, options: ReadOptions) -> Document:
    """Returns the document in a file of a format in `FORMATS`. Raises NmtError if the file is damaged."""
    reader = import_module(f"nmt.documents.{_READERS[form]}")
    document: Document = reader.read(data, options._replace(form=form))
    return document
