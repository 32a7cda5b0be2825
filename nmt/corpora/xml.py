"""Units of TMX, XLIFF and dialects of XLIFF such as SDLXLIFF. The files are streamed, and they are not trusted."""

import codecs
import re
from collections.abc import Iterator, Mapping
from typing import IO, NoReturn
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from nmt.corpora.units import FORBIDDEN, CorpusFile, Unit
from nmt.errors import NmtError

_BLOCK_BYTES = 1 << 14
_DEEPEST = 250  # more levels are no document, but an attack
_DECLARED = re.compile(rb"""(?:\xef\xbb\xbf)?<\?xml[^>]*encoding\s*=\s*["']([\w.:-]+)""")
_FORBIDDEN_CHARACTER = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_REFERENCE = re.compile("&#(?:x([0-9A-Fa-f]{1,20})|([0-9]{1,20}));")
# Inline elements that contain codes of the document's own format.
_CODES = {"bpt", "ept", "ph", "it", "ut"}
# What attributes of finished units say: approved, m:confirmed, translate, state of XLIFF 1 and 2, and SDL's conf.
_FINISHED = {None, "yes", "1", "2", "3", "translated", "signed-off", "final", "reviewed"}
_FINISHED |= {"Translated", "ApprovedTranslation", "ApprovedSignOff"}
_Around = Mapping[str, dict[str, str]]  # the attributes of the elements around a unit, by the names of these elements


def read_xml(corpus: CorpusFile) -> Iterator[Unit]:
    """Yields the units of a file.

    Raises:
        NmtError: the file is not well-formed, declares entities, or has elements in too many levels.
    """
    parser = expat.ParserCreate()
    parser.buffer_text = True
    names, around, units = _LocalNames(), dict[str, dict[str, str]](), list[Element]()
    tree = TreeBuilder()
    root = tree.start("units", {})
    depth = unit_depth = 0

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth, unit_depth
        depth += 1
        if depth > _DEEPEST:
            fail(f"elements are nested in more than {_DEEPEST} levels; export the file again")
        name = names[name]
        if unit_depth:
            tree.start(name, attributes)
        elif name in _READERS:
            tree.start(name, attributes)
            unit_depth, parser.CharacterDataHandler = depth, tree.data
        elif name in ("xliff", "file"):
            around[name] = attributes

    def end(name: str) -> None:
        nonlocal depth, unit_depth
        if unit_depth:
            element = tree.end(names[name])
            if depth == unit_depth:
                units.append(element)
                unit_depth, parser.CharacterDataHandler = 0, None
        depth -= 1

    def fail(reason: str) -> NoReturn:
        raise NmtError(f"{corpus.name}, line {parser.CurrentLineNumber:,}: {reason}")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.SkippedEntityHandler = lambda *_: tree.data(FORBIDDEN)
    parser.EntityDeclHandler = lambda entity, *_: fail(
        f"the entity {entity!r:.40} is declared, which may stand for any text; export the file without it"
    )
    try:
        for text in _decoded(corpus.file):
            parser.Parse(text, not text)
            for unit in units:
                yield from _READERS[unit.tag](unit, around, corpus)
            del root[: len(units)]
            units.clear()
    except expat.ExpatError as error:
        fail(f"this is not well-formed XML ({expat.ErrorString(error.code)}); export the file again")
    except UnicodeDecodeError as error:
        line = parser.CurrentLineNumber + bytes(error.object).count(b"\n", 0, error.start)
        byte = error.object[error.start]
        raise NmtError(
            f"{corpus.name}, line {line:,}: the byte {byte:#04x} is not {error.encoding}; convert it"
        ) from error
    except LookupError as error:
        fail(f"{error}; convert the file to UTF-8")


class _LocalNames(dict[str, str]):
    """The names of elements without their prefixes, by the names with them."""

    def __missing__(self, name: str) -> str:
        self[name] = name.rpartition(":")[2]
        return self[name]


def _decoded(file: IO[bytes]) -> Iterator[str]:
    """Yields a file in parts, and an empty one at its end. FORBIDDEN stands for characters that XML does not allow."""
    block = file.read(_BLOCK_BYTES)
    declared = _DECLARED.match(block)
    encoding = declared[1].decode() if declared else "utf-8"
    if block.startswith((codecs.BOM_UTF16_BE, codecs.BOM_UTF16_LE)):
        encoding = "utf-16"
    elif b"\0" in block[:2]:
        encoding = "utf-16-le" if block[0] else "utf-16-be"
    decoder, rest = codecs.getincrementaldecoder(encoding)(), ""
    while block:
        text, block = rest + decoder.decode(block), file.read(_BLOCK_BYTES)
        # A reference may go on in the next block.
        start = text.rfind("&", -24) if block else -1
        text, rest = (text, "") if start < 0 else (text[:start], text[start:])
        if "&#" in text:
            text = _REFERENCE.sub(_allowed, text)
        if text:
            yield _FORBIDDEN_CHARACTER.sub(FORBIDDEN, text)
    decoder.decode(b"", final=True)
    yield ""


def _allowed(reference: re.Match[str]) -> str:
    """Returns a character reference, or FORBIDDEN if XML has no such character."""
    number = int(reference[1], 16) if reference[1] else int(reference[2])
    is_allowed = number < 0x110000 and not _FORBIDDEN_CHARACTER.match(chr(number))
    return reference[0] if is_allowed else FORBIDDEN


def _content(element: Element | None, inline: str) -> str:
    """Returns the text of an element, with or without the codes of inline elements."""
    if element is None:
        return ""
    if inline == "keep":
        return "".join(element.itertext())
    text = element.text or ""
    for child in element:
        is_break = "lb" in (child.get("type"), child.get("ctype"))
        text += " " if is_break else "" if child.tag in _CODES else _content(child, inline)
        text += child.tail or ""
    return text


def _tmx(unit: Element, _: _Around, corpus: CorpusFile) -> list[Unit]:
    variants = unit.findall("tuv")
    codes = tuple([variant.get("xml:lang") or variant.get("lang") or "" for variant in variants])
    return [(codes, [_content(variant.find("seg"), corpus.config.inline) for variant in variants])]


def _xliff(unit: Element, around: _Around, corpus: CorpusFile) -> list[Unit]:
    """Returns the segments of a unit of XLIFF 1 or 2 that are translated, as far as the file says so."""
    file = around.get("xliff", {}) | around.get("file", {})
    codes = (
        file.get("source-language") or file.get("srcLang", ""),
        file.get("target-language") or file.get("trgLang", ""),
    )
    confirmations = {segment.get("id"): segment.get("conf", "Draft") for segment in unit.iter("seg")}  # of SDLXLIFF
    units = list[Unit]()
    for segment in unit.findall("segment") or [unit]:
        source, target, segmented = (segment.find(name) for name in ("source", "target", "seg-source"))
        marks = _segments(target)
        sources = _segments(segmented) if marks else {}
        states = {unit.get("approved"), unit.get("m:confirmed"), unit.get("translate"), segment.get("state")}
        states |= set() if target is None else {target.get("state")}
        for mid, part in sources.items() or [(None, source)]:
            if states | {confirmations.get(mid)} <= _FINISHED:
                translation = marks.get(mid) if sources else target
                units.append(
                    (codes, [_content(part, corpus.config.inline), _content(translation, corpus.config.inline)])
                )
            else:
                corpus.left_out["not translated or not approved"] += 1
    return units


def _segments(element: Element | None) -> dict[str | None, Element]:
    marks = () if element is None else element.iter("mrk")
    return {mark.get("mid"): mark for mark in marks if mark.get("mtype") == "seg"}


_READERS = {"tu": _tmx, "trans-unit": _xliff, "unit": _xliff}
