"""XLIFF 1 and 2: the units without a translation. Each gets a target, which in XLIFF 1 needs review.

Inline elements travel with their words, and so do tags of HTML that are written as text. Elements that hold code of the
original file, such as ph, are not translated. Only targets and the attributes that describe them are written. All other
bytes of a file stay.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from html import escape, unescape

from nmt.documents.content import Content, Ends, Group, Inline, Leaf, LeafKind, Slot, document_of, flattened
from nmt.documents.document import Document, ReadOptions
from nmt.documents.messages import grouped, parts, with_categories
from nmt.documents.trees import Element, Place, XmlText, local_name, tag_with, text_only
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
            slots.append(_slot(file, unit, options, changes, is_2=is_2))
            holder, name = file.root, "trgLang"
            if not is_2:
                holder, name = next(unit.iterancestors("{*}file"), None), "target-language"
            if holder is not None and base_language(holder.get(name, "")) != base_language(options.target_lang):
                place = file.places[holder]
                language = {name: options.target_lang.replace("_", "-")}
                changes[place.start, place.inside] = tag_with(file.text[place.start : place.inside], language)
    return document_of(slots, lambda: file.changed(changes), skipped)


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
    is_bare = all(local_name(child) in _CONTAINERS for child in target.iterdescendants("*"))
    return is_bare and is_blank("".join(target.itertext()))


def _is_kept(element: Element, *, inherits: bool = False) -> bool:
    """Returns whether an element is not translated."""
    for holder in (element, *(element.iterancestors() if inherits else ())):
        value = holder.get("translate") or holder.get(_ITS_TRANSLATE)
        if value:
            return bool(value == "no")
    return element.get("mtype") in ("protected", "x-its-translate-no")


class _Segment:
    """The content of an element: its text, with the elements in it."""

    def __init__(self, file: XmlText, element: Element, options: ReadOptions) -> None:
        self._file, self._options = file, options
        self._is_exact = next((e.get(_SPACE) for e in (element, *element.iterancestors()) if e.get(_SPACE)), "")
        # The decoded text, in which stand-ins are for elements, and where each of its characters is in the file.
        self._text, self._places = list[str](), list[int]()
        # By the places of stand-ins: what is written, and 1 at the beginning of an element with text, −1 at its end.
        self._elements: dict[int, tuple[Leaf, int]] = {}
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
        self._elements[len(self._text)] = leaf, step
        self._text += _STAND_IN
        self._places += [start, stop, stop]

    def _content(self) -> list[Inline]:
        text = "".join(self._text)
        edges = {at for at, (_, step) in self._elements.items() if step}
        leaves = dict[int, tuple[int, Leaf, int]]()
        for start, stop, leaf in parts(text, self._options.protected):
            if edges.isdisjoint(range(start, stop)):
                item = self._file.text[self._places[start] : self._places[stop]]
                leaves[start] = stop, replace(leaf, item=item, kind=self._kind(leaf)), 0
        leaves |= {at: (at + len(_STAND_IN), *element) for at, element in self._elements.items()}
        levels: list[tuple[Leaf, list[Inline]]] = [(Leaf(""), [])]  # the start of each element around, and its content
        end = 0

        def add_text(stop: int) -> None:
            opening, inlines = levels[-1]
            if end < stop:  # HTML, spelt as in the file
                raw = self._file.text[self._places[end] : self._places[stop]]
                inlines.append(escape(text[end:stop], quote=False) if opening.item == _CDATA else raw)

        for start, (stop, leaf, step) in sorted(leaves.items(), key=lambda pair: pair[0]):
            if start < end:
                continue
            add_text(start)
            end = stop
            if step > 0:
                levels.append((leaf, []))
            elif step < 0:
                opening, inner = levels.pop()
                levels[-1][1].append(Group(Ends(opening, leaf), grouped(inner)))
            else:
                levels[-1][1].append(leaf)
        add_text(len(text))
        return grouped(levels[0][1])

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


def _slot(
    file: XmlText, unit: Element, options: ReadOptions, changes: dict[tuple[int, int], str], *, is_2: bool
) -> Slot:
    """Returns the slot of a unit of XLIFF 1, or a segment of XLIFF 2. It notes in `changes` what is written."""
    text, places = file.text, file.places
    source, target = unit.find("{*}source"), unit.find("{*}target")
    segmented = None if is_2 else unit.find("{*}seg-source")
    model = source if segmented is None else segmented
    is_new = options.all or (target is not None and target.get("state") in _NEW)
    old = {} if is_new else {mark.get("mid"): mark for mark in _segments(target) if not _is_empty(mark)}
    # What stands in each segment: a translation that is there, or one that is made.
    segments: list[tuple[Place, str | _Segment]] = []
    for element in _segments(model):
        kept = places.get(old.get(element.get("mid"))) if element is not model else None
        content = text[kept.inside : kept.end] if kept else _Segment(file, element, options)
        segments.append((places[element], content))

    def put(translations: Iterator[str]) -> None:
        content, start = "", places[model].inside
        for place, segment in segments:
            new = segment if isinstance(segment, str) else segment.written(translations, has_unique_ids=is_2)
            content += f"{text[start : place.inside]}{new}"
            start = place.end
        content += text[start : places[model].end]
        about: Mapping[str, str | None] = {"state": "translated", "subState": None} if is_2 else {"approved": None}
        state: dict[str, str | None] = {} if is_2 else {"state": "needs-review-translation", "state-qualifier": None}
        around = places[unit]
        changes[around.start, around.inside] = tag_with(text[around.start : around.inside], about)
        name = re.split(r"[\s/>]", text[places[source].start + 1 : places[source].inside], maxsplit=1)[0]
        name = re.sub(r"source$", "target", name)
        if target is None:
            space = {"xml:space": source.get(_SPACE)} if source.get(_SPACE) else {}
            stop = places[model].stop
            indent = re.search(r"\s*\Z", text[max(around.inside, places[model].start - 1000) : places[model].start])
            tag = tag_with(f"<{name}>", {**state, **space})
            changes[stop, stop] = f"{indent[0] if indent else ''}{tag}{content}</{name}>"
        else:
            place = places[target]
            tag = tag_with(re.sub(r"\s*/>$", ">", text[place.start : place.inside]), state)
            changes[place.start, place.stop] = f"{tag}{content}</{name}>"

    made = [segment for _, segment in segments if isinstance(segment, _Segment)]
    return Slot([passage for segment in made for passage in segment.content.passages], put)
