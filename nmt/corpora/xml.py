"""Units of TMX, XLIFF, SDLXLIFF and other dialects of XLIFF. The files are streamed and not trusted."""

import codecs
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import IO
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from nmt.config import CorpusConfig
from nmt.corpora.units import Unit
from nmt.errors import NmtError

_BLOCK_BYTES = 1 << 16
# More levels are no document, but an attack.
_DEEPEST = 250
# Stands for what XML forbids or does not know. Unicode has no character of this number.
_FORBIDDEN = "\ufdd0"
_FORBIDDEN_CHARACTER = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_REFERENCE = re.compile("&#(?:x([0-9A-Fa-f]{1,20})|([0-9]{1,20}));")
# Inline elements that contain codes of the document's own format.
_CODES = {"bpt", "ept", "ph", "it", "ut"}
# What attributes of finished units say: approved, m:confirmed, translate, state of XLIFF 1 and 2, and SDL's conf.
_FINISHED = {None, "yes", "1", "translated", "signed-off", "final", "reviewed"}
_FINISHED |= {"Translated", "ApprovedTranslation", "ApprovedSignOff"}
_Attributes = Mapping[str, dict[str, str]]  # those of the elements around a unit, by the names of these elements


def read_xml(
    file: IO[bytes], name: str, config: CorpusConfig, left_out: Counter[str], _: Sequence[str]
) -> Iterator[Unit]:
    """Yields the units of a file. `name` is what messages call it.

    Raises:
        NmtError: the file is not well-formed, declares entities, or has elements in too many levels.
    """
    parser = _Parser(name)
    for text in _text(file, parser):
        for element in parser.units(text):
            for unit in _UNITS[element.tag](element, parser.attributes, config, left_out):
                if any(_FORBIDDEN in text for text in unit.texts):
                    left_out["with characters or entities that XML does not have"] += 1
                else:
                    yield unit


class _Parser:
    """Makes a small tree of each unit in a file. The names of its elements have no prefixes."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.attributes: dict[str, dict[str, str]] = {}
        self._tree: TreeBuilder | None = None
        self._units: list[Element] = []
        self._depth = 0
        self._expat = expat.ParserCreate()
        self._expat.buffer_text = True
        self._expat.StartElementHandler = self._start
        self._expat.EndElementHandler = self._end
        self._expat.CharacterDataHandler = self._data
        self._expat.SkippedEntityHandler = lambda *_: self._data(_FORBIDDEN)
        self._expat.EntityDeclHandler = self._refuse_entity

    @property
    def line(self) -> int:
        """The line that is being read."""
        return self._expat.CurrentLineNumber

    def units(self, text: str) -> list[Element]:
        """Returns the units that end in the next part of the file; an empty part is its end."""
        self._units = []
        try:
            self._expat.Parse(text, not text)
        except expat.ExpatError as error:
            reason = expat.ErrorString(error.code)
            raise NmtError(
                f"{self._name}, line {error.lineno:,}: this is not well-formed XML ({reason}); export the file again"
            ) from error
        return self._units

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise NmtError(
                f"{self._name}, line {self.line:,}: elements are nested in more than {_DEEPEST} levels; "
                f"export the file again"
            )
        name = name.rpartition(":")[2]
        if self._tree is None:
            if name not in _UNITS:
                if name in ("xliff", "file"):
                    self.attributes[name] = attributes
                return
            self._tree = TreeBuilder()
            self._unit_depth = self._depth
        self._tree.start(name, attributes)

    def _end(self, name: str) -> None:
        self._depth -= 1
        if self._tree is not None:
            self._tree.end(name.rpartition(":")[2])
            if self._depth < self._unit_depth:
                self._units.append(self._tree.close())
                self._tree = None

    def _data(self, text: str) -> None:
        if self._tree is not None:
            self._tree.data(text)

    def _refuse_entity(self, entity: str, *_: object) -> None:
        raise NmtError(
            f"{self._name}, line {self.line:,} declares the entity {entity!r:.40}, which could stand for any text or "
            f"file; export the file without it"
        )


def _text(file: IO[bytes], parser: _Parser) -> Iterator[str]:
    """Yields a file in parts, and an empty one at its end. `_FORBIDDEN` stands for characters that XML forbids."""
    block = file.read(_BLOCK_BYTES)
    declared = re.match(rb"""(?:\xef\xbb\xbf)?<\?xml[^>]*encoding\s*=\s*["']([\w.:-]+)""", block)
    encoding = declared[1].decode() if declared else "utf-8"
    if block.startswith((codecs.BOM_UTF16_BE, codecs.BOM_UTF16_LE)):
        encoding = "utf-16"
    elif b"\0" in block[:2]:
        encoding = "utf-16-be" if block[0] == 0 else "utf-16-le"
    rest = ""
    try:
        decoder = codecs.getincrementaldecoder(encoding)()
        while block or rest:
            text = rest + decoder.decode(block, final=not block)
            # A reference may go on in the next block.
            start = text.rfind("&", -24) if block else -1
            text, rest = (text, "") if start < 0 else (text[:start], text[start:])
            if "&#" in text:
                text = _REFERENCE.sub(_allowed, text)
            if text:
                yield _FORBIDDEN_CHARACTER.sub(_FORBIDDEN, text)
            block = file.read(_BLOCK_BYTES)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        line = parser.line + bytes(error.object).count(b"\n", 0, error.start)
        byte = error.object[error.start]
        raise NmtError(
            f"{parser._name}, line {line:,}: the byte {byte:#04x} is not {encoding}; convert the file to UTF-8"
        ) from error
    except LookupError as error:
        raise NmtError(
            f"{parser._name} says that its encoding is {encoding!r:.40}, which is not known; convert it to UTF-8"
        ) from error
    yield ""


def _allowed(reference: re.Match[str]) -> str:
    """Returns a character reference, or `_FORBIDDEN` if XML has no such character."""
    number = int(reference[1], 16) if reference[1] else int(reference[2])
    is_allowed = number in (9, 10, 13) or 0x20 <= number < 0xD800 or 0xE000 <= number < 0xFFFE
    return reference[0] if is_allowed or 0x10000 <= number < 0x110000 else _FORBIDDEN


def _content(element: Element | None, config: CorpusConfig) -> str:
    """Returns the text of an element, with or without the codes of inline elements."""
    if element is None:
        return ""
    if not len(element):
        return element.text or ""
    if config.inline == "keep":
        return "".join(element.itertext())
    text = element.text or ""
    for child in element:
        is_break = "lb" in (child.get("type"), child.get("ctype"))
        text += " " if is_break else "" if child.tag in _CODES else _content(child, config)
        text += child.tail or ""
    return text


def _tmx(unit: Element, _: _Attributes, config: CorpusConfig, __: Counter[str]) -> Iterator[Unit]:
    variants = unit.findall("tuv")
    codes = tuple(variant.get("xml:lang") or variant.get("lang") or "" for variant in variants)
    yield Unit(codes, [_content(variant.find("seg"), config) for variant in variants])


def _xliff(unit: Element, around: _Attributes, config: CorpusConfig, left_out: Counter[str]) -> Iterator[Unit]:
    """Yields the segments of a unit of XLIFF 1 or 2 that are translated, as far as the file says so."""
    file = around.get("xliff", {}) | around.get("file", {})
    codes = (
        file.get("source-language") or file.get("srcLang", ""),
        file.get("target-language") or file.get("trgLang", ""),
    )
    confirmations = {segment.get("id"): segment.get("conf", "Draft") for segment in unit.iter("seg")}  # of SDLXLIFF
    for segment in unit.findall("segment") or [unit]:
        source, target, segmented = (segment.find(name) for name in ("source", "target", "seg-source"))
        marks = {} if target is None else _segments(target)
        sources = {} if segmented is None or not marks else _segments(segmented)
        states = {unit.get("approved"), unit.get("m:confirmed"), unit.get("translate"), segment.get("state")}
        states |= set() if target is None else {target.get("state")}
        for mid, part in sources.items() or [(None, source)]:
            if states | {confirmations.get(mid)} <= _FINISHED:
                translation = marks.get(mid) if sources else target
                yield Unit(codes, [_content(part, config), _content(translation, config)])
            else:
                left_out["not translated or not approved"] += 1


def _segments(element: Element) -> dict[str | None, Element]:
    return {mark.get("mid"): mark for mark in element.iter("mrk") if mark.get("mtype") == "seg"}


_UNITS = {"tu": _tmx, "trans-unit": _xliff, "unit": _xliff}
