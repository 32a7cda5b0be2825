"""XLIFF 1.2: the units without a translation. Each gets a target that needs review.

Inline elements travel with their words. Those that hold code of the original file, such as ph, are not translated.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from copy import deepcopy
from functools import partial
from html import escape, unescape

from nmt.documents.content import Content, Ends, Group, Inline, Leaf, Slot, document_of, paired
from nmt.documents.document import Document, ReadOptions
from nmt.documents.trees import Element, etree, local_name, parsed, text_only, written
from nmt.errors import NmtError
from nmt.text.languages import base_language

_OPENING, _CLOSING = ("bpt", "bx"), ("ept", "ex")
_TAG_OF_ANGULAR = re.compile(r"(START|CLOSE)_(\w+?)(?:_\d+)?")
_SPACE = "{http://www.w3.org/XML/1998/namespace}space"


def read(data: bytes, options: ReadOptions) -> Document:
    """Returns the units in a file."""
    root = parsed(data, options.name)
    version = root.get("version", "")
    if local_name(root) != "xliff" or not version.startswith("1."):
        other = f"XLIFF {version}" if local_name(root) == "xliff" and version else f"the element {local_name(root)}"
        raise NmtError(f"{options.name} has {other:.100}, not XLIFF 1.2; convert it to XLIFF 1.2")
    for file in root.iter("{*}file"):
        if base_language(file.get("target-language", "")) != base_language(options.target_lang):
            file.set("target-language", options.target_lang.replace("_", "-"))
    skipped = Counter[str]()
    slots: list[Slot] = []
    for unit in root.iter("{*}trans-unit"):
        if reason := _reason_to_keep(unit, translate_all=options.all):
            skipped[reason] += 1
        else:
            slots += _slots(unit)
    return document_of(slots, lambda: written(root), skipped)


def _reason_to_keep(unit: Element, *, translate_all: bool) -> str | None:
    target = unit.find("{*}target")
    if unit.find("{*}source") is None:
        return "without a source"
    if _inherited(unit, "translate") == "no":
        return "not to be translated"
    if translate_all:
        return None
    is_new = target is None or target.get("state") in ("new", "needs-translation")
    has_target = not is_new and (len(target) or (target.text or "").strip())
    return "translated already" if has_target or unit.get("approved") == "yes" else None


def _inherited(element: Element, name: str) -> str | None:
    """Returns an attribute of an element or of the nearest element around it that has it."""
    while element is not None and element.get(name) is None:
        element = element.getparent()
    return None if element is None else str(element.get(name))


def _slots(unit: Element) -> Iterator[Slot]:
    """Replaces the target by a copy of the source. Yields a slot for each segment of it, or for the whole."""
    source, old = unit.find("{*}source"), unit.find("{*}target")
    model = unit.find("{*}seg-source")
    model = source if model is None else model
    target = etree.Element(source.tag[: -len("source")] + "target", {} if old is None else old.attrib)
    target.attrib.pop("state-qualifier", "")
    unit.attrib.pop("approved", "")  # of the old target
    target.set("state", "needs-review-translation")
    copy = deepcopy(model)
    target.text, target.tail = copy.text, model.tail if old is None else old.tail
    target.extend(copy)
    if old is None:
        model.tail = unit.text  # the indentation
        unit.insert(unit.index(model) + 1, target)
    else:
        unit.replace(old, target)
    is_exact = _inherited(source, _SPACE) == "preserve"
    for segment in [mark for mark in target.iter("{*}mrk") if mark.get("mtype") == "seg"] or [target]:
        content = Content(_inline(segment, is_exact))
        yield Slot(content.passages, partial(_fill, segment, content))


def _inline(element: Element, is_exact: bool) -> list[Inline]:
    content: list[Inline] = [*_lines(element.text, is_exact)]
    for child in element:
        name = local_name(child)
        ends = _TAG_OF_ANGULAR.fullmatch(child.get("id", "")) if name == "x" and child.get("ctype") != "lb" else None
        if name == "mrk" and child.get("mtype") == "protected":
            content.append(Leaf(child, escape("".join(child.itertext()))))
        elif name in ("g", "mrk"):
            content.append(Group(child, _inline(child, is_exact)))
        elif name in (*_OPENING, *_CLOSING):
            key = (name[-1], child.get("rid") or child.get("id"))
            content.append(Leaf(child, kind="open" if name in _OPENING else "close", key=key))
        elif ends:
            content.append(Leaf(child, kind="open" if ends[1] == "START" else "close", key=ends[2]))
        else:
            content.append(Leaf(child, kind="break" if child.get("ctype") == "lb" else "mark"))
        content += _lines(child.tail, is_exact)
    return paired(content)


def _lines(text: str | None, is_exact: bool) -> Iterator[Inline]:
    """Yields text. If spaces are preserved, line breaks are leaves."""
    for i, line in enumerate(re.split(r"((?<![ \t])[ \t]*\n\s*)", text or "") if is_exact else [text or ""]):
        yield Leaf(line, kind="break") if i % 2 else escape(line, quote=False)


def _fill(element: Element, content: Content, translations: Iterator[str]) -> None:
    translated = content.translated(translations)
    element.text = None
    del element[:]
    _add(element, translated)


def _add(element: Element, content: Sequence[Inline]) -> None:
    for inline in content:
        if isinstance(inline, str) or isinstance(inline.item, str):
            text = text_only(unescape(inline)) if isinstance(inline, str) else inline.item
            if len(element):
                element[-1].tail = (element[-1].tail or "") + text
            else:
                element.text = (element.text or "") + text
        elif isinstance(inline, Leaf):
            copy = deepcopy(inline.item)
            copy.tail = None
            element.append(copy)
        elif isinstance(inline.item, Ends):
            _add(element, [inline.item.start, *inline.content, inline.item.end])
        else:
            _add(etree.SubElement(element, inline.item.tag, inline.item.attrib), inline.content)
