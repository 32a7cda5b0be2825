"""DOCX: the paragraphs, the alternative texts of pictures and the title of a text document.

Translated are the body, headers, footers, footnotes, endnotes and text boxes. Comments are remarks between authors
and not a part of the text; they stay as they are, as do deleted text, code, formulas, and the results of fields.
The text of a link is translated, whether the link is a field or an element.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from functools import partial
from io import BytesIO
from itertools import accumulate, groupby
from lzma import LZMAError
from struct import error as StructError
from typing import NamedTuple
from zipfile import BadZipFile, ZipFile, ZipInfo
from zlib import error as ZlibError

from nmt.documents.content import Content, Slot, document_of, paired, passage, plain
from nmt.documents.document import Document, ReadOptions
from nmt.documents.trees import Element, etree, local_name, parsed
from nmt.errors import NmtError
from nmt.text.languages import FAR_EASTERN, base_language, is_among, is_right_to_left
from nmt.text.marked import Role, Token
from nmt.text.markup_reading import text_only
from nmt.text.protected import Protected
from nmt.text.words import has_letters

_BYTES = 512 * 2**20  # the size of all parts
_SMALL, _RATIO = 32 * 2**20, 200  # larger documents must not be compressed further than by this ratio
_ENCRYPTED = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"  # the beginning of an OLE container
# What zipfile raises for damaged packages.
_DAMAGES = (BadZipFile, EOFError, LookupError, LZMAError, OSError, RuntimeError, ValueError, StructError, ZlibError)
_TYPES = "application/vnd.openxmlformats-officedocument.wordprocessingml"
_MAIN = (f"{_TYPES}.document.main+xml", f"{_TYPES}.template.main+xml")
_WITH_TEXT = (*_MAIN, *(f"{_TYPES}.{name}+xml" for name in ("header", "footer", "footnotes", "endnotes")))
_STYLES = f"{_TYPES}.styles+xml"
_PROPERTIES = "application/vnd.openxmlformats-package.core-properties+xml"
_TITLE = "{http://purl.org/dc/elements/1.1/}title"
# The names of styles for code in Word, LibreOffice and pandoc, in lower case and without spaces.
_CODE = re.compile(
    r"(source|html|inline|block)?code(char|block|inline|text|listing)?|verbatim\w*|\w+tok|sourcetext|macrotext|listing"
    r"|preformattedtext|html(preformatted|keyboard|sample|typewriter|variable)(char)?"
)
_DROPPED = ("rPr", "pPr", "proofErr", "lastRenderedPageBreak", "softHyphen", "smartTagPr", "customXmlPr")
_ROLES: dict[str, Role] = {"br": "end", "tab": "end", "ptab": "end", "cr": "break", "begin": "open", "end": "close"}
_LATER_PROPERTIES = re.compile(
    "u|effect|bdr|shd|fitText|vertAlign|rtl|cs|em|lang|eastAsianLayout|specVanish|oMath|rPrChange"
)
_SHAPES = ("shape", "rect", "oval", "roundrect", "image", "group")
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
                slots += [_slot_of(title, "text", options.protected) for title in tree.iter(_TITLE)]
            else:
                part = _TextPart(tree, options.protected)
                part.set_language(options)
                part.unbind()
                slots += part.slots() if content_type != _STYLES else ()

    def packed() -> bytes:
        file = BytesIO()
        with ZipFile(file, "w") as archive:
            for old, content in package:  # in order, and each part compressed as before
                if old.filename in trees:
                    tree = trees[old.filename].getroottree()
                    standalone = tree.docinfo.standalone or None
                    content = etree.tostring(tree, xml_declaration=True, encoding="UTF-8", standalone=standalone)
                archive.writestr(ZipInfo(old.filename, old.date_time), content, old.compress_type)
        return file.getvalue()

    return document_of([slot for slot in slots if slot.passages], packed, {})


def _unpacked(data: bytes, name: str) -> list[tuple[ZipInfo, bytes]]:
    """Returns the parts of a package in order. Raises NmtError if it is damaged, or unpacks to much more."""
    if data.startswith(_ENCRYPTED):
        raise NmtError(f"{name} is encrypted or in the old .doc format; save it as .docx without a password")
    try:
        with ZipFile(BytesIO(data)) as package:
            infos = package.infolist()
            size = sum(info.file_size for info in infos)
            if size > _BYTES or size > max(_SMALL, _RATIO * len(data)):
                problem = f"{name} holds {size:,} bytes in {len(data):,}, which is not plausible"
                raise NmtError(f"{problem}; split the document")
            # No more is unpacked than an entry says, which an attacker may understate.
            contents = [(info, package.open(info).read(info.file_size + 1)) for info in infos]
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
    suffixes = {part: part.rpartition(".")[2].lower() for part in contents}
    types = {part: overrides.get(f"/{part}".lower()) or defaults.get(suffixes[part], "") for part in contents}
    kinds = types.values()
    if "word/vbaProject.bin" in contents or any("macro" in kind or "vbaProject" in kind for kind in kinds):
        raise NmtError(f"{name} has macros, which may depend on the text; save it as .docx without macros")
    if not set(kinds) & set(_MAIN):
        raise NmtError(f"{name} has no part with the text of a document; save it as .docx")
    return types


def _slot_of(element: Element, name: str, protected: Protected) -> Slot:
    """Returns the slot of an attribute, or of the text, of an element."""
    text = _text_of(element) if name == "text" else element.get(name, "")
    lines = text.split("\n") if has_letters(text) and not _FILE_NAME.fullmatch(text) else []

    def put(translations: Iterator[Sequence[Token]]) -> None:
        translation = text_only("\n".join(plain(next(translations)) for _ in lines))
        if name == "text":
            element[:], element.text = [], translation
        else:
            element.set(name, translation)

    return Slot([passage([Token("text", line)], protected) for line in lines], put)


def _text_of(element: Element) -> str:
    """Returns the text directly in an element, also behind comments and instructions."""
    return "".join(element.xpath("text()"))


class _TextPart:
    """A part of the package with paragraphs."""

    def __init__(self, root: Element, protected: Protected) -> None:
        self._root, self._protected = root, protected
        self._word = f"{{{etree.QName(root).namespace}}}"  # the strict variant of the format has another namespace

    def set_language(self, options: ReadOptions) -> None:
        """Replaces the source language in all properties of characters, and the direction from right to left."""
        source, target = base_language(options.source_lang), options.target_lang
        script = "eastAsia" if is_among(target, FAR_EASTERN) else "val"
        script = "bidi" if is_right_to_left(target) else script
        for element in self._root.iter(f"{self._word}lang"):
            if source in map(base_language, element.attrib.values()):
                element.set(self._word + script, target.replace("_", "-"))
        if is_right_to_left(options.source_lang) and not is_right_to_left(target):
            for element in [*self._root.iter(f"{self._word}rtl", f"{self._word}bidi")]:
                element.getparent().remove(element)

    def unbind(self) -> None:
        """Removes what makes Word replace text of controls by that of another part, except for the title."""
        for binding in [*self._root.iter("{*}dataBinding")]:
            kinds = set(map(local_name, binding.getparent()))
            path = next((value for name, value in binding.items() if name.endswith("}xpath")), "")
            if not kinds & {"comboBox", "dropDownList"} and not re.search(r"coreProperties.*:title(\[1\])?$", path):
                binding.getparent().remove(binding)

    def slots(self) -> Iterator[Slot]:
        """Yields the slots with text, in order. Paragraphs in text boxes are inside others.

        Paragraphs of code and choices from lists stay.
        """
        for element in self._root.iter():
            name = local_name(element)
            is_code = name == "p" and self._is_code(element.find(f"{self._word}pPr/{self._word}pStyle"))
            kinds = element.iterfind(f"../{self._word}sdtPr/*") if name == "sdtContent" else ()
            is_kept = is_code or any(local_name(kind) in ("comboBox", "dropDownList") for kind in kinds)
            is_kept = is_kept or self._initial(element.getnext()) is not None  # read with the paragraph of its word
            if element.tag in (f"{self._word}p", f"{self._word}sdtContent") and not is_kept:
                tokens, base = _without_base(self._tokens(element))
                content = Content(tokens, self._protected)
                yield Slot(content.passages, partial(self._fill, element, content, base))
            elif name in ("docPr", "cNvPr", "textpath"):  # a picture, or the text of a watermark
                names = ("title", "descr", "string")
                yield from (_slot_of(element, attribute, self._protected) for attribute in names)
            elif name in _SHAPES:  # as converted from the old .doc format
                yield _slot_of(element, "alt", self._protected)

    def _is_code(self, style: Element | None) -> bool:
        name = "" if style is None else style.get(f"{self._word}val", "")
        return bool(_CODE.fullmatch(re.sub(r"[\W_]", "", name.lower())))

    def _tokens(self, paragraph: Element) -> list[Token]:
        """Returns the tokens of a paragraph. The item of each text is its run."""
        tokens = list[Token]()
        inline = list(self._inline(paragraph))
        initial = self._initial(paragraph)
        if initial is not None:
            run = next((token.item for token in inline if token.kind == "text"), _Run(b"", None))
            inline.insert(0, Token("text", _text_of(initial), run))
        for is_text, group in groupby(inline, lambda token: token.kind == "text" and token.item.key):
            joined = list(group)
            text, run = plain(joined), joined[0].item
            if is_text is False:
                tokens += joined
            elif run.properties is not None and self._is_code(run.properties.find(f"{self._word}rStyle")):
                tokens.append(Token("leaf", text, joined))
            elif text:
                tokens.append(Token("text", text, run))
        return self._resolved(paired(_with_whole_words(tokens, self._protected)))

    def _initial(self, paragraph: Element | None) -> Element | None:
        """Returns the text of the drop cap of a paragraph, which is a paragraph before it."""
        frame = None if paragraph is None or local_name(paragraph) != "p" else paragraph.getprevious()
        form = None if frame is None else frame.find(f"{self._word}pPr/{self._word}framePr[@{self._word}dropCap]")
        return None if frame is None or form is None else frame.find(f".//{self._word}t")

    def _inline(self, parent: Element) -> Iterator[Token]:
        for child in parent:
            name = local_name(child)
            if name == "r":
                yield from self._run(child)
            elif name in ("smartTag", "customXml"):
                yield from self._inline(child)
            elif name in _GROUPS or (child.get(f"{self._word}instr") or "").split()[:1] == ["HYPERLINK"]:
                yield from (Token("start", item=child), *self._inline(child), Token("end", item=child))
            elif name in ("fldSimple", "oMath"):
                yield Token("leaf", "".join(map(_text_of, child.iter("{*}t"))), child)
            elif name not in _DROPPED:
                ends = _RANGE.fullmatch(name)
                yield Token("leaf", item=child, key=(ends[1], child.get(f"{self._word}id")) if ends else None)

    def _run(self, run: Element) -> Iterator[Token]:
        properties = run.find(f"{self._word}rPr")
        form = {"method": "c14n", "exclusive": True, "with_tail": False}
        own = _Run(b"" if properties is None else etree.tostring(properties, **form), properties)
        for child in run:
            name = local_name(child)
            if name in ("t", "noBreakHyphen"):
                yield Token("text", _text_of(child) if name == "t" else "\u2011", own)
            elif name == "ruby":  # its reading aid explains the source text
                for base in child.iterfind("{*}rubyBase/{*}r"):
                    yield from self._run(base)
            elif name not in _DROPPED:
                role = _ROLES.get(child.get(f"{self._word}fldCharType") or name, "mark")
                if name == "br" and child.get(f"{self._word}type", "textWrapping") == "textWrapping":
                    role = "break"
                key = "field" if name in ("fldChar", "instrText") else None
                yield Token("leaf", item=_RunPart(own, child), role=role, key=key)

    def _resolved(self, tokens: Iterable[Token]) -> list[Token]:
        """Returns tokens in which each field is a link with text, or a leaf."""
        resolved, starts = list[Token](), list[int]()
        for token in tokens:
            resolved.append(token)
            if not isinstance(token.item, _RunPart) or token.kind == "leaf":
                continue
            if token.kind == "start":
                starts.append(len(resolved) - 1)
                continue
            field = resolved[(start := starts.pop()) :]
            children = [part.item.child if isinstance(part.item, _RunPart) else None for part in field]
            kinds = [None if child is None else child.get(f"{self._word}fldCharType") for child in children]
            stop = kinds.index("separate") + 1 if "separate" in kinds else len(kinds) - 1
            code = "".join(_text_of(child) for child in children[1:stop] if child is not None)
            if code.split()[:1] == ["HYPERLINK"]:
                resolved[start:] = [Token("start", item=field[:stop]), *field[stop:]]
            else:
                resolved[start:] = [Token("leaf", plain(field[stop:]), field)]
        return resolved

    def _fill(self, element: Element, content: Content, base: _Run, translations: Iterator[Sequence[Token]]) -> None:
        element[:] = element.findall(f"{self._word}pPr")
        self._append(element, content.translated(translations), base)
        initial, text = self._initial(element), element.find(f".//{self._word}t")
        if initial is not None and text is not None:
            initial.text, text.text = text.text[:1], text.text[1:]

    def _append(self, parent: Element, tokens: Iterable[Token], base: _Run) -> None:
        """Appends tokens to an element. `base` has the properties of text without other ones."""
        runs, parents = [base], [parent]
        for token in tokens:
            kind, words, item = token.kind, token.text, token.item
            if kind == "text":
                text = etree.Element(f"{self._word}t", {"{http://www.w3.org/XML/1998/namespace}space": "preserve"})
                text.text = text_only(words)
                run = self._new_run(item or runs[-1], text)
                parents[-1].append(run)
                if token.role == "doubtful" and run.find(f"{self._word}rPr/{self._word}highlight") is None:
                    self._highlight(run)
            elif isinstance(item, _RunPart):
                parents[-1].append(self._new_run(*item))
            elif isinstance(item, list):
                self._append(parents[-1], item, runs[-1])
            elif kind == "leaf":
                parents[-1].append(item)
            elif kind == "end":
                (runs if isinstance(item, _Run) else parents).pop()
            elif isinstance(item, _Run):
                runs.append(item)
            else:
                element = etree.Element(item.tag, item.attrib, self._root.nsmap)
                parents[-1].append(element)
                parents.append(element)

    def _highlight(self, run: Element) -> None:
        """Puts a yellow background behind a run that has none. Properties have a fixed order."""
        properties = run.find(f"{self._word}rPr")
        if properties is None:
            properties = etree.Element(f"{self._word}rPr")
            run.insert(0, properties)
        behind = (i for i, child in enumerate(properties) if _LATER_PROPERTIES.fullmatch(local_name(child)))
        highlight = etree.Element(f"{self._word}highlight", {f"{self._word}val": "yellow"})
        properties.insert(next(behind, len(properties)), highlight)

    def _new_run(self, run: _Run, child: Element) -> Element:
        element = etree.Element(f"{self._word}r")
        element.extend([] if run.properties is None else [deepcopy(run.properties)])
        # A link whose words are apart in the translation is repeated.
        element.append(deepcopy(child) if local_name(child) in ("fldChar", "instrText") else child)
        return element


def _with_whole_words(tokens: list[Token], protected: Protected) -> list[Token]:
    """Returns tokens with one leaf for each protected word that is in several runs.

    The ends of bookmarks and the like that are in the word move behind it.
    """
    texts = list[str]()
    for token in tokens:
        name = local_name(token.item) if token.kind == "leaf" and etree.iselement(token.item) else "\0"
        is_hidden = not name or _RANGE.fullmatch(name)  # what may stand within a word
        texts.append(token.text if token.kind == "text" else "" if is_hidden else "\0")
    starts, text = list(accumulate(map(len, texts), initial=0)), "".join(texts)
    for span in reversed(protected.spans(text)):
        word = span.word(text)
        first, last = (bisect_right(starts, position) - 1 for position in (span.start, span.stop - 1))
        if first == last or "\0" in word:
            continue
        for i, column in ((last, span.stop - starts[last]), (first, span.start - starts[first])):
            parts = tokens[i].text[:column], tokens[i].text[column:]
            tokens[i : i + 1] = [tokens[i]._replace(text=part) for part in parts]
        inside = tokens[first + 1 : last + 2]
        runs = [token for token in inside if token.kind == "text"]
        others = [token for token in inside if token.kind != "text"]
        tokens[first + 1 : last + 2] = [Token("leaf", word, runs), *others]
    return [token for token in tokens if token.text or token.kind != "text"]


def _without_base(tokens: Sequence[Token]) -> tuple[list[Token], _Run]:
    """Puts text that does not look like most of the paragraph into elements.

    Also returns the run that looks like most of it.
    """
    runs, lengths = dict[bytes, _Run](), Counter[bytes]()
    for token in tokens:
        if token.kind == "text":
            lengths[token.item.key] += len(token.text.strip())
            runs.setdefault(token.item.key, token.item)
    base = runs[max(lengths, key=lengths.__getitem__)] if lengths else _Run(b"", None)
    elements: list[Token] = []
    for token in tokens:
        own = [token._replace(item=None)] if token.kind == "text" else [token]
        has_base = token.kind != "text" or token.item.key == base.key
        elements += own if has_base else [Token("start", item=token.item), *own, Token("end", item=token.item)]
    return elements, base
