"""DOCX: the paragraphs, the alternative texts of pictures and the title of a text document.

Translated are the body, headers, footers, footnotes, endnotes and text boxes. Comments are remarks between authors and
not a part of the text; they stay as they are, as do deleted text, code, formulas, and the results of fields. The text
of a link is translated, whether the link is a field or an element.
"""

import re
import struct
import zlib
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from copy import deepcopy
from functools import partial
from html import escape, unescape
from io import BytesIO
from itertools import accumulate, groupby
from lzma import LZMAError
from operator import itemgetter
from typing import NamedTuple
from zipfile import BadZipFile, ZipFile, ZipInfo

from nmt.documents.content import Content, Ends, Group, Inline, Leaf, LeafKind, Slot, document_of, paired, plain
from nmt.documents.document import Document, ReadOptions, has_letters, literal
from nmt.documents.trees import Element, etree, local_name, parsed, written
from nmt.errors import NmtError
from nmt.text.languages import FAR_EASTERN, RIGHT_TO_LEFT, base_language, is_among
from nmt.text.markup_writing import text_only
from nmt.text.protected import Protected, Span

_BYTES = 512 * 2**20  # the size of all parts
_SMALL, _RATIO = 32 * 2**20, 200  # larger documents must not be compressed further than by this ratio
_ENCRYPTED = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"  # the beginning of an OLE container
# What zipfile raises for damaged packages.
_DAMAGES = (BadZipFile, EOFError, LookupError, LZMAError, OSError, RuntimeError, ValueError, struct.error, zlib.error)
_TYPES = "application/vnd.openxmlformats-officedocument.wordprocessingml"
_MAIN = (f"{_TYPES}.document.main+xml", f"{_TYPES}.template.main+xml")
_WITH_TEXT = (*_MAIN, *(f"{_TYPES}.{name}+xml" for name in ("header", "footer", "footnotes", "endnotes")))
_STYLES = f"{_TYPES}.styles+xml"
_PROPERTIES = "application/vnd.openxmlformats-package.core-properties+xml"
_TITLE = "{http://purl.org/dc/elements/1.1/}title"
# The names of styles for code in Word, LibreOffice and pandoc, in lower case and without spaces.
_CODE = re.compile(
    r"(source|html|inline|block)?code(char|block|inline|text|listing)?|verbatim\w*|\w+tok|sourcetext|preformattedtext"
    r"|html(preformatted|keyboard|sample|typewriter|variable)(char)?|macrotext|listing"
)
_DROPPED = ("rPr", "pPr", "proofErr", "lastRenderedPageBreak", "softHyphen", "smartTagPr", "customXmlPr")
_GROUPS = ("hyperlink", "ins", "moveTo", "dir", "bdo")
_RANGE = re.compile(r"(\w+?)(?:Start|End)")
_FILE_NAME = re.compile(r"\S+\.\w{2,5}")  # some programs write it as alternative text


class _Run(NamedTuple):
    """The properties of characters. Runs with the same key look the same."""

    key: bytes
    properties: Element | None


class _RunPart(NamedTuple):
    """A child of a run, such as a tab or a picture."""

    run: _Run
    child: Element


def read(data: bytes, options: ReadOptions) -> Document:
    """Returns the text document in a file."""
    package = _unpacked(data, options.name)
    contents = {info.filename: content for info, content in package}
    trees: dict[str, Element] = {}
    slots: list[Slot] = []
    for name, content_type in _types(contents, options.name).items():
        if content_type in (*_WITH_TEXT, _STYLES, _PROPERTIES):
            tree = trees[name] = parsed(contents[name], f"{options.name}, part {name},")
            if content_type == _PROPERTIES:
                slots += [_slot_of(title, "text") for title in tree.iter(_TITLE)]
            else:
                part = _TextPart(tree, options.protected)
                part.set_language(options)
                slots += part.slots() if content_type != _STYLES else ()

    def packed() -> bytes:
        file = BytesIO()
        with ZipFile(file, "w") as archive:
            for old, content in package:  # in order, and each part compressed as before
                content = written(trees[old.filename]) if old.filename in trees else content
                archive.writestr(ZipInfo(old.filename, old.date_time), content, old.compress_type)
        return file.getvalue()

    return document_of([slot for slot in slots if slot.passages], packed, {})


def _unpacked(data: bytes, name: str) -> list[tuple[ZipInfo, bytes]]:
    """Returns the parts of a package in order. Raises NmtError if it is damaged, or so large that it may be a bomb."""
    if data.startswith(_ENCRYPTED):
        raise NmtError(f"{name} is encrypted or in the old .doc format; save it as .docx without a password")
    try:
        with ZipFile(BytesIO(data)) as package:
            infos = package.infolist()
            size = sum(info.file_size for info in infos)
            if size > _BYTES or size > max(_SMALL, _RATIO * len(data)):
                raise NmtError(
                    f"{name} holds {size:,} bytes in {len(data):,}, which is not plausible; split the document"
                )
            contents = []
            for info in infos:
                with package.open(info) as part:  # no more is unpacked than the entry says, which a bomb may understate
                    contents.append((info, part.read(info.file_size + 1)))
    except _DAMAGES as e:
        raise NmtError(f"{name} is not a whole DOCX file ({e!s:.100}); save or download it again") from e
    twice = [filename for filename, count in Counter(info.filename for info in infos).items() if count > 1]
    if twice:
        raise NmtError(f"{name} has two parts {twice[0]}; save the document again")
    return contents


def _types(contents: dict[str, bytes], name: str) -> dict[str, str]:
    """Returns the content type of each part. Raises NmtError if this is no text document."""
    listing = "[Content_Types].xml"
    if listing not in contents:
        raise NmtError(f"{name} has no part {listing}, so that it is not a DOCX file; save it as .docx")
    root = parsed(contents[listing], f"{name}, part {listing},")
    overrides, defaults = (
        {e.get(key, "").lower(): e.get("ContentType", "") for e in root.iterfind(f"{{*}}{tag}")}
        for tag, key in (("Override", "PartName"), ("Default", "Extension"))
    )
    # Names that differ in capitals only are the same.
    types = {
        part: overrides.get(f"/{part}".lower()) or defaults.get(part.rpartition(".")[2].lower(), "")
        for part in contents
    }
    if any("macro" in kind or "vbaProject" in kind for kind in types.values()) or "word/vbaProject.bin" in contents:
        raise NmtError(f"{name} has macros, which may depend on the text; save it as .docx without macros")
    if not set(types.values()) & set(_MAIN):
        raise NmtError(f"{name} has no part with the text of a document; save it as .docx")
    return types


def _slot_of(element: Element, name: str) -> Slot:
    """Returns the slot of an attribute, or of the text, of an element."""
    text = _text_of(element) if name == "text" else element.get(name, "")
    lines = list(map(literal, text.split("\n"))) if has_letters(text) and not _FILE_NAME.fullmatch(text) else []

    def put(translations: Iterator[str]) -> None:
        translation = text_only("\n".join(unescape(next(translations)) for _ in lines))
        if name == "text":
            element[:], element.text = [], translation
        else:
            element.set(name, translation)

    return Slot(lines, put)


def _text_of(element: Element) -> str:
    """Returns the text directly in an element, also behind comments and instructions."""
    return "".join(element.xpath("text()"))


class _TextPart:
    """A part of the package with paragraphs."""

    def __init__(self, root: Element, protected: Protected) -> None:
        self._root, self._protected = root, protected
        self._word = f"{{{etree.QName(root).namespace}}}"  # the strict variant of the format has another namespace

    def set_language(self, options: ReadOptions) -> None:
        """Replaces the source language in all properties of characters."""
        source, target = base_language(options.source_lang), options.target_lang
        script = "bidi" if is_among(target, RIGHT_TO_LEFT) else "eastAsia" if is_among(target, FAR_EASTERN) else "val"
        for element in self._root.iter(f"{self._word}lang"):
            if source in map(base_language, element.attrib.values()):
                element.set(self._word + script, target.replace("_", "-"))

    def slots(self) -> Iterator[Slot]:
        """Yields the slots with text, in order. Paragraphs in text boxes are inside others.

        Paragraphs of code and choices from lists stay.
        """
        for element in self._root.iter():
            name = local_name(element)
            is_code = name == "p" and self._is_code(element.find(f"{self._word}pPr/{self._word}pStyle"))
            kinds = element.iterfind(f"../{self._word}sdtPr/*") if name == "sdtContent" else ()
            is_kept = is_code or any(local_name(kind) in ("comboBox", "dropDownList") for kind in kinds)
            if element.tag in (f"{self._word}p", f"{self._word}sdtContent") and not is_kept:
                inline, base = _without_base(self._inline(element))
                content = Content(inline)
                yield Slot(content.passages, partial(self._fill, element, content, base))
            elif name in ("docPr", "cNvPr", "textpath"):  # a picture, or the text of a watermark
                yield from (_slot_of(element, attribute) for attribute in ("title", "descr", "string"))

    def _is_code(self, style: Element | None) -> bool:
        name = "" if style is None else style.get(f"{self._word}val", "")
        return bool(_CODE.fullmatch(re.sub(r"[\W_]", "", name.lower())))

    def _inline(self, parent: Element) -> list[Inline]:
        content: list[Inline] = []
        for child in parent:
            name = local_name(child)
            if name == "r":
                content += self._run(child)
            elif name in ("smartTag", "customXml"):
                content += self._inline(child)
            elif name in _GROUPS or (child.get(f"{self._word}instr") or "").split()[:1] == ["HYPERLINK"]:
                content.append(Group(child, self._inline(child)))
            elif name in ("fldSimple", "oMath"):
                content.append(Leaf(child, escape("".join(map(_text_of, child.iter("{*}t"))))))
            elif name not in _DROPPED:
                ends = _RANGE.fullmatch(name)
                content.append(Leaf(child, key=(ends[1], child.get(f"{self._word}id")) if ends else None))
        return list(map(self._resolved, paired(_with_whole_words(list(self._joined(content)), self._protected))))

    def _run(self, run: Element) -> Iterator[Inline]:
        properties = run.find(f"{self._word}rPr")
        key = b"" if properties is None else etree.tostring(properties, method="c14n", exclusive=True, with_tail=False)
        own = _Run(key, properties)
        for child in run:
            name = local_name(child)
            if name in ("t", "noBreakHyphen"):
                yield Group(own, [escape(_text_of(child), quote=False) if name == "t" else "\u2011"])
            elif name == "ruby":  # its reading aid explains the source text
                for base in child.iterfind("{*}rubyBase/{*}r"):
                    yield from self._run(base)
            elif name not in _DROPPED:
                is_field = name in ("fldChar", "instrText")
                yield Leaf(_RunPart(own, child), kind=self._kind(child), key="field" if is_field else None)

    def _kind(self, child: Element) -> LeafKind:
        """Returns what a child of a run does to the text around it."""
        match local_name(child), child.get(f"{self._word}type", "textWrapping"), child.get(f"{self._word}fldCharType"):
            case ("cr", _, _) | ("br", "textWrapping", _):
                return "break"
            case ("br" | "tab" | "ptab", _, _):
                return "end"
            case _, _, "begin":
                return "open"
            case _, _, "end":
                return "close"
        return "mark"

    def _joined(self, content: Sequence[Inline]) -> Iterator[Inline]:
        """Yields the content with adjacent runs of equal properties as one. Code becomes a leaf."""
        keys = [i if run is None else run.key for i, run in enumerate(map(_run_of, content))]
        for _, pairs in groupby(zip(keys, content, strict=True), key=lambda pair: pair[0]):
            joined = [inline for _, inline in pairs]
            run = _run_of(joined[0])
            if run is None:
                yield joined[0]
            elif run.properties is not None and self._is_code(run.properties.find(f"{self._word}rStyle")):
                yield Leaf(joined, plain(joined))
            else:
                yield Group(run, [plain(joined)])

    def _resolved(self, inline: Inline) -> Inline:
        """Returns a field as a link with text, or as a leaf."""
        if not isinstance(inline, Group) or not isinstance(inline.item, Ends):
            return inline
        start, end = inline.item
        content = list(map(self._resolved, inline.content))
        items = [leaf.item if isinstance(leaf, Leaf) else None for leaf in content]
        children = [item.child if isinstance(item, _RunPart) else None for item in items]
        kinds = [None if child is None else child.get(f"{self._word}fldCharType") for child in children]
        stop = kinds.index("separate") + 1 if "separate" in kinds else len(kinds)
        code = "".join(_text_of(child) for child in children[:stop] if child is not None)
        if code.split()[:1] == ["HYPERLINK"]:
            return Group(([start, *content[:stop]], end), content[stop:])
        return Leaf([start, *content, end], plain(content[stop:]))

    def _fill(self, element: Element, content: Content, base: _Run, translations: Iterator[str]) -> None:
        translated = content.translated(translations)
        for child in list(element):
            if local_name(child) != "pPr":
                element.remove(child)
        element.extend(self._elements(translated, base))

    def _elements(self, content: Sequence[Inline], run: _Run) -> Iterator[Element]:
        """Yields the elements of a paragraph. `run` has the properties of text without other ones."""
        for inline in content:
            if isinstance(inline, str):
                text = etree.Element(f"{self._word}t", {"{http://www.w3.org/XML/1998/namespace}space": "preserve"})
                text.text = text_only(unescape(inline))
                yield self._new_run(run, text)
            elif isinstance(inline.item, _RunPart):
                yield self._new_run(*inline.item)
            elif isinstance(inline.item, list):
                yield from self._elements(inline.item, run)
            elif isinstance(inline, Leaf):
                yield inline.item
            elif isinstance(inline.item, _Run):
                yield from self._elements(inline.content, inline.item)
            elif isinstance(inline.item, tuple):  # what is before the text of a field, and what is behind it
                start, end = inline.item
                yield from self._elements([*start, *inline.content, end], run)
            else:
                element = etree.Element(inline.item.tag, inline.item.attrib, self._root.nsmap)
                element.extend(self._elements(inline.content, run))
                yield element

    def _new_run(self, run: _Run, child: Element) -> Element:
        element = etree.Element(f"{self._word}r")
        element.extend([] if run.properties is None else [deepcopy(run.properties)])
        element.append(child)
        return element


def _with_whole_words(content: Sequence[Inline], protected: Protected) -> Iterator[Inline]:
    """Yields runs and leaves, with one leaf for each protected word that is in several runs.

    The ends of bookmarks and the like that are in the word move behind it.
    """
    texts = [_text_across(inline) for inline in content]
    starts, text = list(accumulate(map(len, texts), initial=0)), "".join(texts)
    owner: dict[int, Span] = {}  # the word of each character
    for start, stop, _ in protected.spans(text):
        if bisect_right(starts, start) < bisect_left(starts, stop) and "\0" not in text[start:stop]:
            owner |= dict.fromkeys(range(start, stop), (start, stop))
    if not owner:
        yield from content
        return

    def owned() -> Iterator[tuple[Span | None, Inline]]:
        for start, inline, own in zip(starts, content, texts, strict=False):
            run, word = _run_of(inline), owner.get(start)
            if run and own:
                for word, indices in groupby(range(start, start + len(own)), owner.get):
                    yield word, Group(run, [escape("".join(text[i] for i in indices), quote=False)])
            else:
                yield word if word == owner.get(start - 1) else None, inline

    for word, pairs in groupby(owned(), itemgetter(0)):
        inlines = [inline for _, inline in pairs]
        if word:
            yield Leaf(list(filter(_run_of, inlines)), escape(text[slice(*word)], quote=False))
        yield from (inline for inline in inlines if not (word and _run_of(inline)))


def _text_across(inline: Inline) -> str:
    """Returns the text of a run, nothing for what may stand within a word, or NUL for other things."""
    if _run_of(inline):
        return unescape(plain([inline]))
    name = local_name(inline.item) if isinstance(inline, Leaf) and etree.iselement(inline.item) else None
    return "" if name == "" or (name and _RANGE.fullmatch(name)) else "\0"


def _run_of(inline: Inline) -> _Run | None:
    return inline.item if isinstance(inline, Group) and isinstance(inline.item, _Run) else None


def _without_base(content: Sequence[Inline]) -> tuple[list[Inline], _Run]:
    """Finds the most frequent character properties.

    Returns the content with the text that has them taken out of its groups, and these properties.
    """
    runs, lengths = dict[bytes, _Run](), Counter[bytes]()

    def count(inlines: Sequence[Inline]) -> None:
        for inline in inlines:
            if run := _run_of(inline):
                lengths[run.key] += len(unescape(plain([inline])).strip())
                runs.setdefault(run.key, run)
            else:
                count(getattr(inline, "content", ()))

    def stripped(inline: Inline) -> Inline:
        if (run := _run_of(inline)) and run.key == base:
            return plain([inline])
        return Group(inline.item, list(map(stripped, inline.content))) if isinstance(inline, Group) else inline

    count(content)
    base = max(lengths, key=lengths.__getitem__, default=b"")
    return list(map(stripped, content)), runs.get(base, _Run(b"", None))
