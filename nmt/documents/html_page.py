"""HTML: the text of a page, and the attributes that users see."""

from collections.abc import Sequence
from html import unescape

from nmt.documents.document import Document, Passage, ReadOptions, literal
from nmt.documents.plain import decoded, encoded
from nmt.errors import naming
from nmt.text.markup import with_attributes

_ATTRIBUTES = ("alt", "title", "placeholder", "aria-label")


def read(data: bytes, options: ReadOptions) -> Document:
    """Returns the document in a file of HTML."""
    page = decoded(data, options)
    values: dict[str, None] = {}

    def noted(_: str, attribute: str, value: str) -> str:
        if attribute in _ATTRIBUTES and value.strip():
            values[value] = None
        return value

    def write(translations: Sequence[str]) -> bytes:
        body, *others = translations
        new = dict(zip(values, map(unescape, others), strict=True))

        def changed(element: str, attribute: str, value: str) -> str:
            if element == "html" and attribute in ("lang", "xml:lang"):
                return options.target_lang
            return new.get(value, value) if attribute in _ATTRIBUTES else value

        return encoded(with_attributes(body, changed), data)

    with naming(options.name):
        with_attributes(page, noted)
    return Document([Passage(page, "html"), *map(literal, values)], write)
