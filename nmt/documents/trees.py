"""Files in XML, which are not trusted: no DTD, no entities, no network."""

import re
from collections.abc import Mapping
from html import escape
from typing import Any, NamedTuple

from nmt.documents.document import marked_encoding, spliced
from nmt.errors import NmtError, importing

with importing("lxml", "a document in XML", extra="documents"):
    from lxml import etree

# Typed so that no stubs are needed.
Element = Any

_MARKUP = re.compile(
    r"""<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>|</[^>]*>|<(?:[^<>"']|"[^"]*"|'[^']*')*+>""", re.DOTALL
)


def parsed(data: bytes, origin: str) -> Element:
    """Returns the root of the tree in a file. Raises NmtError if it is not well-formed or has a DTD."""
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
    try:
        root = etree.fromstring(data, parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        reason = " ".join(f"{error}".split())
        raise NmtError(f"{origin} is not well-formed XML ({reason:.100}); save the document again") from error
    if root.getroottree().docinfo.doctype:
        raise NmtError(f"{origin} has a document type declaration, which could hide text; save it without one")
    return root


def written(root: Element) -> bytes:
    """Returns the content of a file with this tree."""
    tree = root.getroottree()
    standalone = tree.docinfo.standalone or None
    return bytes(etree.tostring(tree, xml_declaration=True, encoding="UTF-8", standalone=standalone))


class Place(NamedTuple):
    """Where an element is in the text of a file: its start tag, its content from `inside` to `end`, its end tag."""

    start: int
    inside: int
    end: int
    stop: int


class XmlText:
    """A file in XML as text, of which parts can be changed.

    Raises:
        NmtError: as for `parsed`, or the encoding is not known.
    """

    def __init__(self, data: bytes, origin: str) -> None:
        self.root = parsed(data, origin)
        self._encoding = marked_encoding(data) or self.root.getroottree().docinfo.encoding or "utf-8"
        try:
            self.text = data.decode(self._encoding)  # with its byte order mark and its declaration
        except (UnicodeError, LookupError) as error:
            raise NmtError(f"{origin} is not in {self._encoding} ({error!s:.100}); convert it to UTF-8") from error
        self.changes: dict[tuple[int, int], str] = {}  # other text at places, given by their beginnings and ends
        places, opened = list[Place](), list[int]()
        for markup in _MARKUP.finditer(self.text):
            tag = markup[0]
            if tag.startswith("</"):
                number = opened.pop()
                places[number] = places[number]._replace(end=markup.start(), stop=markup.end())
            elif not tag.startswith(("<!", "<?")):
                opened += [len(places)] * (not tag.endswith("/>"))
                places.append(Place(markup.start(), *[markup.end()] * 3))
        self.places = dict(zip(self.root.iter("*"), places, strict=True))

    def set(self, element: Element, attributes: Mapping[str, str | None]) -> None:
        """Changes attributes, or takes away those that are None."""
        place = self.places[element]
        self.changes[place.start, place.inside] = tag_with(self.text[place.start : place.inside], attributes)

    def changed(self) -> bytes:
        """Returns the file with the changes."""
        return spliced(self.text, self.changes).encode(self._encoding, "xmlcharrefreplace")


def tag_with(tag: str, attributes: Mapping[str, str | None]) -> str:
    """Returns a start tag with other values of attributes, or without those that are None."""
    for name, value in attributes.items():
        new = "" if value is None else f' {name}="{escape(value)}"'
        tag = new.join(re.split(rf"""\s+{name}\s*=\s*(?:"[^"]*"|'[^']*')|(?=\s*/?>$)""", tag, maxsplit=1))
    return tag


def local_name(element: Element) -> str:
    """Returns the name without its namespace; of a comment or an instruction, an empty one."""
    return str(etree.QName(element).localname) if isinstance(element.tag, str) else ""
