"""Files in XML, which are not trusted: no DTD, no entities, no network."""

from typing import Any

from nmt.errors import NmtError, importing

with importing("lxml", "a document in XML", extra="documents"):
    from lxml import etree

# Typed so that no stubs are needed.
Element = Any


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


def local_name(element: Element) -> str:
    """Returns the name without its namespace; of a comment or an instruction, an empty one."""
    return str(etree.QName(element).localname) if isinstance(element.tag, str) else ""
