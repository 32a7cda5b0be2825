"""XLIFF 1 and 2: the units without a translation. Each gets a target, which in XLIFF 1 needs review.

Inline elements travel with their words, and so do tags of HTML that are written as text. Elements that hold code of the
original file, such as ph, are not translated. Only targets and the attributes that describe them are written. All other
bytes of a file stay.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape, unescape
from typing import NamedTuple

from nmt.documents.content import Content, Ends, Group, Inline, Leaf, LeafKind, Slot, document_of, flattened
from nmt.documents.document import Document, ReadOptions
from nmt.documents.messages import grouped, parts, with_categories
from nmt.documents.trees import Element, XmlText, local_name, tag_with, text_only
from nmt.errors import NmtError
from nmt.text.languages import base_language
from nmt.text.words import is_blank

_CONTAINERS = ("g", "mrk", "pc")
# Elements that begin or end something, and the attribute of the end that names the beginning.
_OPENING = {"bpt": "t", "bx": "x", "sc": "c", "sm": "m"}
_CLOSING = {"ept": "t", "ex": "x", "ec": "c", "em": "m"}
_TAG_OF_ANGULAR = re.compile(r"(START|CLOSE)_(\w+?)(?:_\d+)?")
_SPACE = "{http://www.w3.org/XML/1998/namespace}space"
_ITS_TRANSLATE = "{http://www.w3.org/2005/11/its}translate"
# The identifier of a tag that may be repeated.
_REFERENCE = re.compile(
    r"""(?<=<)(?:\w+:)?(?:(?:pc|mrk|sc|sm)\s(?:[^>]*\s)?id|(?:ec|em)\s(?:[^>]*\s)?startRef)\s*=\s*["'][^"']*"""
)
_CDATA, _CDATA_END = "<![CDATA[", "]]>"
_NO_ELEMENT = re.compile(r"(<!\[CDATA\[.*?\]\]>|<!--.*?-->|<\?.*?\?>)", re.DOTALL)
# What stands for an element in the text of a segment. It is in no word, tag or address.
_STAND_IN = "<\ufffc>"


def read(data: bytes, options: ReadOptions) -> Document:
    """Returns the units in a file."""
    file = XmlText(data, options.name)
    version = file.root.get("version", "")
    if local_name(file.root) != "xliff" or version[:2] not in ("1.", "2."):
        root = local_name(file.root)
        other = f"XLIFF {version}" if root == "xliff" and version else f"the element {root}"
        raise NmtError(f"{options.name} has {other:.100}, not XLIFF 1 or 2; convert it to XLIFF 1.2 or 2.0")
    skipped, slots = Counter[str](), list[Slot]()
    changes: dict[tuple[int, int], str] = {}
    is_2 = version.startswith("2.")
    for unit in file.root.iter("{*}segment" if is_2 else "{*}trans-unit"):
        if reason := _reason_to_keep(unit, translate_all=options.all):
            skipped[reason] += 1
        else:
            slots.append(_Unit(file, unit, options, is_2=is_2).slot(changes))
            holder, name = (file.root, "trgLang") if is_2 else (_around(unit, "file"), "target-language")
            if holder is not None and base_language(holder.get(name, "")) != base_language(options.target_lang):
                place = file.places[holder]
                language = {name: options.target_lang.replace("_", "-")}
                changes[place.start, place.inside] = tag_with(file.text[place.start : place.inside], language)
    return document_of(slots, lambda: file.changed(changes), skipped)


def _around(element: Element, name: str) -> Element | None:
    return next((parent for parent in element.iterancestors() if local_name(parent) == name), None)


def _reason_to_keep(unit: Element, *, translate_all: bool) -> str | None:
    source, target = unit.find("{*}source"), unit.find("{*}target")
    if source is None or not (len(source) or source.text):
        return "without a source"
    if _is_kept(unit, inherits=True):
        return "not to be translated"
    if translate_all:
        return None
    if unit.get("approved") == "yes":
        return "translated already"
    is_new = unit.get("state") == "initial" or (target is not None and target.get("state") in _NEW)
    return None if is_new or any(_is_empty(segment) for segment in _segments(target)) else "translated already"


_NEW = ("new", "needs-translation")


def _segments(target: Element) -> list[Element]:
    """Returns the segments of a source or a target, or all of it if it is not segmented."""
    marks = [] if target is None else [mark for mark in target.iter("{*}mrk") if mark.get("mtype") == "seg"]
    return marks or [target]


def _is_empty(target: Element | None) -> bool:
    """Returns whether a target, or a segment of one, has no content yet. Some tools write elements without text."""
    if target is None or local_name(target) == "mrk":
        return target is None or is_blank("".join(target.itertext()))
    elements = [child for child in target.iter("*") if child is not target]
    return is_blank("".join(target.itertext())) and all(local_name(child) in _CONTAINERS for child in elements)


def _is_kept(element: Element, *, inherits: bool = False) -> bool:
    """Returns whether an element is not translated."""
    for holder in (element, *(element.iterancestors() if inherits else ())):
        value = holder.get("translate") or holder.get(_ITS_TRANSLATE)
        if value:
            return bool(value == "no")
    return element.get("mtype") in ("protected", "x-its-translate-no")


class _Atom(NamedTuple):
    """An element, or the beginning or end of one, in the text of a segment.

    Attributes:
        at: where it is in the text.
        leaf: what is written.
        step: 1 at the beginning of an element with text, and −1 at its end.
    """

    at: int
    leaf: Leaf
    step: int = 0


class _Segment:
    """The content of an element: its text, with the elements in it."""

    def __init__(self, file: XmlText, element: Element, options: ReadOptions) -> None:
        self._file, self._options = file, options
        self._is_exact = next((e.get(_SPACE) for e in (element, *element.iterancestors()) if e.get(_SPACE)), "")
        # The decoded text, in which stand-ins are for elements, and where each of its characters is in the file.
        self._text, self._places = list[str](), list[int]()
        self._atoms: list[_Atom] = []
        self._read(element)
        self._places.append(file.places[element].end)
        self.content = Content(self._content())

    def _read(self, element: Element) -> None:
        place = self._file.places[element]
        start = place.inside
        children = list(element.iterchildren("*"))
        for child in children:
            inner = self._file.places[child]
            if inner.start < start:  # in a marker that is not translated
                continue
            self._read_text(start, inner.start)
            name, stop, words = local_name(child), inner.stop, ""
            if _is_kept(child):
                ends = (e for e in children if local_name(e) == "em" and e.get("startRef") == child.get("id"))
                end = next(ends, child) if name == "sm" else child
                stop = self._file.places[end].stop
                words = unescape(re.sub("<[^>]*>", "", self._file.text[inner.inside : stop]))
            if name in _CONTAINERS and not words and not is_blank("".join(child.itertext())):
                self._add(Leaf(self._file.text[inner.start : inner.inside]), inner.start, inner.inside, 1)
                self._read(child)
                self._add(Leaf(self._file.text[inner.end : stop]), inner.end, stop, -1)
            else:
                item = self._file.text[inner.start : stop]
                leaf = Leaf(item, escape(" ".join(words.split()))) if words else _leaf(child, name, item)
                self._add(leaf, inner.start, stop)
            start = stop
        self._read_text(start, place.end)

    def _read_text(self, start: int, stop: int) -> None:
        for number, raw in enumerate(_NO_ELEMENT.split(self._file.text[start:stop])):
            if number % 2 and not raw.startswith(_CDATA):
                self._add(Leaf(raw), start, start + len(raw))
            elif number % 2:
                end = start + len(raw) - len(_CDATA_END)
                self._add(Leaf(_CDATA), start, start + len(_CDATA), 1)
                self._text += raw[len(_CDATA) : -len(_CDATA_END)]
                self._places += range(start + len(_CDATA), end)
                self._add(Leaf(_CDATA_END), end, start + len(raw), -1)
            else:
                for character in re.finditer(r"&[^;]*;|[\s\S]", raw):
                    self._text.append(unescape(character[0]))
                    self._places.append(start + character.start())
            start += len(raw)

    def _add(self, leaf: Leaf, start: int, stop: int, step: int = 0) -> None:
        self._atoms.append(_Atom(len(self._text), leaf, step))
        self._text += _STAND_IN
        self._places += [start, stop, stop]

    def _content(self) -> list[Inline]:
        text = "".join(self._text)
        events = dict[int, tuple[int, _Atom]]()
        for start, stop, leaf in parts(text, self._options.protected):
            is_whole = all(not atom.step for atom in self._atoms if start <= atom.at < stop)
            if is_whole:
                item = self._file.text[self._places[start] : self._places[stop]]
                events[start] = stop, _Atom(start, replace(leaf, item=item, kind=self._kind(leaf)))
        for atom in self._atoms:
            events[atom.at] = atom.at + len(_STAND_IN), atom
        levels: list[list[Inline]] = [[]]
        opened: list[Leaf] = []
        end = 0
        for start, (stop, atom) in sorted(events.items()):
            if start < end:
                continue
            levels[-1] += self._between(text, end, start, opened)
            end = stop
            if atom.step > 0:
                levels.append([])
                opened.append(atom.leaf)
            elif atom.step < 0:
                inner = grouped(levels.pop())
                levels[-1].append(Group(Ends(opened.pop(), atom.leaf), inner))
            else:
                levels[-1].append(atom.leaf)
        return grouped([*levels[0], *self._between(text, end, len(text), opened)])

    def _between(self, text: str, start: int, stop: int, opened: Sequence[Leaf]) -> list[str]:
        """Returns text as HTML, spelt as in the file."""
        if opened and opened[-1].item == _CDATA:
            return list(filter(None, [escape(text[start:stop], quote=False)]))
        return list(filter(None, [self._file.text[self._places[start] : self._places[stop]]])) if start < stop else []

    def _kind(self, leaf: Leaf) -> LeafKind:
        # Where spaces are not preserved, indented lines are for those who read the file.
        is_layout = leaf.kind == "break" and re.search(r"\n[ \t]", leaf.item) and self._is_exact != "preserve"
        return "space" if is_layout else leaf.kind

    def written(self, translations: Iterator[str], *, has_unique_ids: bool) -> str:
        """Returns the content of the target."""
        written, is_cdata, numbers = "", False, Counter[str]()
        for inline in flattened(self.content.translated(translations)):
            if isinstance(inline, Leaf):
                is_cdata = (is_cdata or inline.item == _CDATA) and inline.item != _CDATA_END
                item = inline.item
                numbers[item] += 1
                if has_unique_ids and numbers[item] > 1:
                    item = _REFERENCE.sub(rf"\g<0>-{numbers[item]}", item, count=1)
                written += item
            elif is_cdata:
                written += text_only(unescape(inline)).replace("]]>", "]]]]><![CDATA[>")
            else:
                written += text_only(inline)
        return with_categories(written, self._options)


def _leaf(element: Element, name: str, item: str) -> Leaf:
    ends = _TAG_OF_ANGULAR.fullmatch(element.get("id", "")) if name == "x" else None
    if element.get("ctype") == "lb" or element.get("subType") == "xlf:lb" or element.get("equiv") == "LINE_BREAK":
        return Leaf(item, kind="break")
    if ends:
        return Leaf(item, kind="open" if ends[1] == "START" else "close", key=ends[2])
    if name in _OPENING or name in _CLOSING:
        number = element.get("rid") or element.get("startRef") or element.get("id")
        kind: LeafKind = "open" if name in _OPENING else "close"
        return Leaf(item, kind=kind, key=((_OPENING | _CLOSING)[name], number))
    return Leaf(item)


class _Unit:
    """A unit of XLIFF 1, or a segment of XLIFF 2, without a translation."""

    def __init__(self, file: XmlText, unit: Element, options: ReadOptions, *, is_2: bool) -> None:
        self._file, self._unit, self._is_2 = file, unit, is_2
        self._source, self._target = unit.find("{*}source"), unit.find("{*}target")
        segmented = None if is_2 else unit.find("{*}seg-source")
        self._model = self._source if segmented is None else segmented
        is_new = options.all or (self._target is not None and self._target.get("state") in _NEW)
        old = {} if is_new else {mark.get("mid"): mark for mark in _segments(self._target) if not _is_empty(mark)}
        # What stands in each segment: a translation that is there, or one that is made.
        self._segments: list[tuple[Element, str | _Segment]] = []
        for element in _segments(self._model):
            kept = old.get(element.get("mid")) if element is not self._model else None
            self._segments.append((element, _Segment(file, element, options) if kept is None else self._inside(kept)))

    def _inside(self, element: Element) -> str:
        place = self._file.places[element]
        return self._file.text[place.inside : place.end]

    def slot(self, changes: dict[tuple[int, int], str]) -> Slot:
        """Returns the slot of the unit, which notes in `changes` what is written."""
        made = [segment for _, segment in self._segments if isinstance(segment, _Segment)]

        def put(translations: Iterator[str]) -> None:
            place = self._file.places[self._model]
            content, start = "", place.inside
            for element, segment in self._segments:
                inner = self._file.places[element]
                new = segment
                if isinstance(segment, _Segment):
                    new = segment.written(translations, has_unique_ids=self._is_2)
                content += f"{self._file.text[start : inner.inside]}{new}"
                start = inner.end
            self._put(changes, content + self._file.text[start : place.end])

        return Slot([passage for segment in made for passage in segment.content.passages], put)

    def _put(self, changes: dict[tuple[int, int], str], content: str) -> None:
        text, unit, model = self._file.text, *(self._file.places[element] for element in (self._unit, self._model))
        source = self._file.places[self._source]
        name = re.sub(r"source$", "target", re.split(r"[\s/>]", text[source.start + 1 : source.inside], maxsplit=1)[0])
        about: Mapping[str, str | None] = (
            {"state": "translated", "subState": None} if self._is_2 else {"approved": None}
        )
        changes[unit.start, unit.inside] = tag_with(text[unit.start : unit.inside], about)
        state: Mapping[str, str | None] = {"state": "needs-review-translation", "state-qualifier": None}
        state = {} if self._is_2 else state
        if self._target is None:
            space = self._source.get(_SPACE)
            tag = tag_with(f"<{name}>", {**state, **({"xml:space": space} if space else {})})
            indent = re.search(r"\s*\Z", text[max(unit.inside, model.start - 1000) : model.start])
            changes[model.stop, model.stop] = f"{indent[0] if indent else ''}{tag}{content}</{name}>"
        else:
            old = self._file.places[self._target]
            tag = tag_with(re.sub(r"\s*/>$", ">", text[old.start : old.inside]), state)
            changes[old.start, old.stop] = f"{tag}{content}</{name}>"
