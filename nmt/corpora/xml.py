"""Units of TMX, XLIFF and dialects of XLIFF such as SDLXLIFF. The files are streamed, and they are not trusted."""

import codecs
import re
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain
from typing import IO, NoReturn
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from nmt.corpora.entries import FORBIDDEN, CorpusFile, Entry
from nmt.corpora.tmx import SCORE
from nmt.errors import NmtError
from nmt.text.corpus import utf_16_of
from nmt.text.markup_reading import BLOCKS

_BLOCK_BYTES = 1 << 14
_DEEPEST = 250  # more levels are no document, but an attack
_DECLARED = re.compile(rb"""(?:\xef\xbb\xbf)?<\?xml[^>]*encoding\s*=\s*["'](?!(?i:utf-?16))([\w.:-]+)""")
_MENDED = dict.fromkeys((*range(9), 11, 12, *range(14, 32), 0xFFFE, 0xFFFF), FORBIDDEN)
_FORBIDDEN_CHARACTERS = "".join(map(chr, _MENDED))
_REFERENCE = re.compile("&#(?:x([0-9A-Fa-f]{1,20})|([0-9]{1,20}));")
_LONGEST_REFERENCE = 24
# Inline elements that contain codes of the document's own format.
_CODES = {"bpt", "ept", "ph", "it", "ut"}
_BREAK = re.compile(
    rf"</?(?:{'|'.join(BLOCKS)})(?![\w-])|[\n\t]|\\(?:[nt]|line|par|softline|tab|e[nm]dash)(?![a-z])", re.IGNORECASE
)  # codes that separate words, also those of RTF
# What attributes of finished units say: approved, m:confirmed, translate, state of XLIFF 1 and 2, and SDL's conf.
_FINISHED = {None, "yes", "1", "2", "3", "translated", "signed-off", "final", "reviewed"}
_FINISHED |= {"Translated", "ApprovedTranslation", "ApprovedSignOff"}


def read_xml(corpus: CorpusFile) -> Iterator[Entry]:
    """Yields the units of a file.

    Raises:
        NmtError: the file is not well-formed, declares entities, or has elements in too many levels.
    """
    parser = expat.ParserCreate()
    parser.buffer_text = True
    tree, units = TreeBuilder(), list[tuple[Element, dict[str, str]]]()
    root = tree.start("units", {})
    # For each open element, the attributes of the elements `xliff`, `file` and `group` that it is or is in.
    inherited: list[dict[str, str]] = [{}]
    unit_depth = 0

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal unit_depth
        if len(inherited) > _DEEPEST:
            fail(f"elements are nested in more than {_DEEPEST} levels; export the file again")
        name = name.rpartition(":")[2]
        inherited.append(inherited[-1] | attributes if name in _AROUND else inherited[-1])
        if name in _READERS and not unit_depth:
            unit_depth, parser.CharacterDataHandler = len(inherited), tree.data
        if unit_depth:
            tree.start(name, attributes)

    def end(name: str) -> None:
        nonlocal unit_depth
        if unit_depth:
            element = tree.end(name.rpartition(":")[2])
            if unit_depth == len(inherited):
                units.append((element, inherited[-1]))
                unit_depth, parser.CharacterDataHandler = 0, None
        inherited.pop()

    def fail(reason: str) -> NoReturn:
        raise NmtError(f"{corpus.name}, line {parser.CurrentLineNumber:,}: {reason}")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.SkippedEntityHandler = lambda *_: tree.data(FORBIDDEN)
    parser.EntityDeclHandler = lambda entity, *_: fail(f"the entity {entity!r:.40} is declared; export without it")
    try:
        for text in _decoded(corpus.file):
            parser.Parse(text, not text)
            for element, attributes in units:
                yield from _READERS[element.tag](element, attributes, corpus)
            del root[: len(units)]
            units.clear()
    except expat.ExpatError as error:
        fail(f"this is not well-formed XML ({expat.ErrorString(error.code)}); export the file again")
    except UnicodeDecodeError as error:
        line = parser.CurrentLineNumber + bytes(error.object).count(b"\n", 0, error.start)
        problem = f"the byte {error.object[error.start]:#04x} is not {error.encoding}"
        raise NmtError(f"{corpus.name}, line {line:,}: {problem}; convert it") from error
    except (LookupError, UnicodeError) as error:
        fail(f"{error}; convert the file to UTF-8")


def _decoded(file: IO[bytes]) -> Iterator[str]:
    """Yields a file in parts, the last of them empty. FORBIDDEN stands for characters that XML does not allow."""
    block = file.read(_BLOCK_BYTES)
    declared = _DECLARED.match(block)
    encoding = utf_16_of(block) or (declared[1].decode() if declared else "utf-8")
    "".encode(encoding)  # raises LookupError if its characters are no text
    blocks = chain([block], iter(partial(file.read, _BLOCK_BYTES), b""))
    rest = ""
    for block_text in chain(codecs.iterdecode(blocks, encoding), [" " * _LONGEST_REFERENCE]):
        text = rest + block_text
        start = text.rfind("&", -_LONGEST_REFERENCE)  # a reference may go on in the next block
        text, rest = (text, "") if start < 0 else (text[:start], text[start:])
        if "&#" in text:
            text = _REFERENCE.sub(_allowed, text)
        if any(character in text for character in _FORBIDDEN_CHARACTERS):  # faster than a regular expression
            text = text.translate(_MENDED)
        if text:
            yield text
    yield ""


def _allowed(reference: re.Match[str]) -> str:
    """Returns a character reference, or FORBIDDEN if XML has no such character."""
    code = int(reference[1], 16) if reference[1] else int(reference[2])
    is_forbidden = code in _MENDED or 0xD800 <= code < 0xE000 or code > 0x10FFFF
    return FORBIDDEN if is_forbidden else reference[0]


def _content(element: Element | None, inline: str) -> str:
    """Returns the text of an element, with or without the codes of inline elements."""
    if element is None:
        return ""
    text = element.text or ""
    if not len(element):
        return text
    if inline == "keep":
        return "".join(element.itertext())
    for child in element:
        code = (child.text or "") * (child.tag in _CODES)
        is_break = "lb" in (child.get("type"), child.get("ctype")) or _BREAK.search(code)
        text += " " if is_break else "" if child.tag in _CODES else _content(child, inline)
        text += child.tail or ""
    return text


def _tmx(unit: Element, _: Mapping[str, str], corpus: CorpusFile) -> list[Entry]:
    score = unit.findtext(f"prop[@type='{SCORE}']")
    if not corpus.keeps(score, f"{corpus.name}: a unit", f"--least-score needs the property {SCORE} of all units"):
        return []
    variants = unit.findall("tuv")
    codes = tuple([variant.get("xml:lang") or variant.get("lang") or "und" for variant in variants])
    return [(codes, [_content(variant.find("seg"), corpus.config.inline) for variant in variants])]


def _xliff(unit: Element, file: Mapping[str, str], corpus: CorpusFile) -> list[Entry]:
    """Returns the segments of a unit of XLIFF 1 or 2 that are translated, as far as the file says so."""
    names = ("source-language", "srcLang"), ("target-language", "trgLang")
    codes = tuple([file.get(of_xliff_1) or file.get(of_xliff_2, "") for of_xliff_1, of_xliff_2 in names])
    confirmations = {segment.get("id"): segment.get("conf", "Draft") for segment in unit.iter("seg")}  # of SDL
    entries = list[Entry]()
    for segment in unit.findall("segment") or [unit]:
        source, target, segmented = (segment.find(name) for name in ("source", "target", "seg-source"))
        marks = _segments(target)
        sources = _segments(segmented) if marks else {}
        states = {unit.get("approved"), unit.get("m:confirmed"), segment.get("state")}
        states.add(unit.get("translate") or file.get("translate"))
        states |= set() if target is None else {target.get("state")}
        for mid, sentence in sources.items() or [(None, source)]:
            if states | {confirmations.get(mid)} <= _FINISHED:
                sides = sentence, marks.get(mid) if sources else target
                entries.append((codes, [_content(side, corpus.config.inline) for side in sides]))
            else:
                corpus.left_out["not translated or not approved"] += 1
    return entries


def _segments(element: Element | None) -> dict[str | None, Element]:
    marks = () if element is None else element.iter("mrk")
    return {mark.get("mid"): mark for mark in marks if mark.get("mtype") == "seg"}


_AROUND = ("xliff", "file", "group")
_READERS = {"tu": _tmx, "trans-unit": _xliff, "unit": _xliff}
