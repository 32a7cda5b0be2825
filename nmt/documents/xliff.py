"""XLIFF 1 and 2: the units without a translation. Each gets a target, which in XLIFF 1 needs review.
With --doubtful, only doubtful ones need it, and have a subState in XLIFF 2.

Inline elements travel with their words, and so do tags of HTML that are written as text. Elements that hold code
of the original file, such as ph, are not translated. Only targets and the attributes that describe them are
written. All other bytes of a file stay.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape, unescape
from itertools import tee
from typing import NamedTuple

from nmt.documents.content import Content, Slot, document_of, has_doubts
from nmt.documents.document import Document, ReadOptions, marked_encoding, other_language, spliced
from nmt.documents.messages import grouped, with_leaves
from nmt.documents.trees import Element, etree, local_name, parsed
from nmt.errors import NmtError
from nmt.memories.matching import Match
from nmt.text.languages import base_language
from nmt.text.marked import Role, Token
from nmt.text.markup_reading import text_only, text_token
from nmt.text.markup_reading import written as written_xml
from nmt.text.words import has_letters, is_blank

_CONTAINERS = ("g", "mrk", "pc")
# Elements that begin or end something. The last letters of both are equal.
_ENDS: dict[str, Role] = {
    **dict.fromkeys(("bpt", "bx", "sc", "sm"), "open"), **dict.fromkeys(("ept", "ex", "ec", "em"), "close"),
}  # fmt: skip
_TAG_OF_ANGULAR = re.compile(r"(START|CLOSE)_(\w+?)(?:_\d+)?")
_SPACE = "{http://www.w3.org/XML/1998/namespace}space"
_IS_EXACT = "ancestor-or-self::*[@xml:space][1]/@xml:space = 'preserve'"
_ITS_TRANSLATE = "{http://www.w3.org/2005/11/its}translate"
# The identifier of a tag of XLIFF 2 that may be repeated.
_REFERENCE = re.compile(
    r"""(?<=<)(?:\w+:)?(?:(?:pc|mrk|sc|sm)\s(?:[^>]*\s)?id|(?:ec|em)\s(?:[^>]*\s)?startRef)\s*=\s*["'][^"']*"""
)
_CDATA, _CDATA_END = "<![CDATA[", "]]>"
# Phrase writes the tags of a text as {1&gt; and &lt;1}.
_TOKEN = re.compile(
    r"<!\[CDATA\[(?P<cdata>.*?)\]\]>|\{(?P<open>\w+)(?:>|&gt;)|&lt;(?P<close>\w+)\}"
    r"|(?P<text>(?:[^<{&]|\{(?!\w+(?:>|&gt;))|&(?!lt;\w+\}))+)|<!--.*?-->|<\?.*?\?>",
    re.DOTALL,
)
_MARKUP = re.compile(
    r"""<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>|</[^>]*>|<(?:[^<>"']|"[^"]*"|'[^']*')*+>""", re.DOTALL
)
_NEW = ("new", "needs-translation")
_DONE = "translated already"


class _Place(NamedTuple):
    """Where an element is in a file: its start tag, its content from `inside` to `end`, its end tag."""

    start: int
    inside: int
    end: int
    stop: int


class _XmlText:
    """A file in XML as text, of which parts can be changed."""

    def __init__(self, data: bytes, origin: str) -> None:
        self.root = parsed(data, origin)
        self._encoding = marked_encoding(data) or self.root.getroottree().docinfo.encoding or "utf-8"
        try:
            self.text = data.decode(self._encoding)  # with its byte order mark and its declaration
        except (UnicodeError, LookupError) as error:
            raise NmtError(f"{origin} is not in {self._encoding} ({error!s:.100}); convert it to UTF-8") from error
        self.changes: dict[tuple[int, int], str] = {}  # other text at places, given by their beginnings and ends
        places, opened = list[_Place](), list[int]()
        for markup in _MARKUP.finditer(self.text):
            tag = markup[0]
            if tag.startswith("</"):
                number = opened.pop()
                places[number] = places[number]._replace(end=markup.start(), stop=markup.end())
            elif not tag.startswith(("<!", "<?")):
                opened += [len(places)] * (not tag.endswith("/>"))
                places.append(_Place(markup.start(), *[markup.end()] * 3))
        self.places = dict(zip(self.root.iter("*"), places, strict=True))

    def set(self, element: Element, attributes: Mapping[str, str | None]) -> None:
        """Changes attributes, or takes away those that are None."""
        place = self.places[element]
        self.changes[place.start, place.inside] = _tag_with(self.text[place.start : place.inside], attributes)

    def changed(self) -> bytes:
        """Returns the file with the changes."""
        text = re.sub(r"<!\[CDATA\[.*?\]\]>", self._encodable, spliced(self.text, self.changes), flags=re.DOTALL)
        return text.encode(self._encoding, "xmlcharrefreplace")

    def _encodable(self, section: re.Match[str]) -> str:
        """Returns a CDATA section, or its text if characters of it need references, which CDATA cannot have."""
        try:
            section[0].encode(self._encoding)
        except UnicodeEncodeError:
            return escape(section[0][9:-3])
        return section[0]


def _tag_with(tag: str, attributes: Mapping[str, str | None]) -> str:
    """Returns a start tag with other values of attributes, or without those that are None."""
    for name, value in attributes.items():
        new = "" if value is None else f' {name}="{escape(value)}"'
        tag = new.join(re.split(rf"""\s+{name}\s*=\s*(?:"[^"]*"|'[^']*')|(?=\s*/?>$)""", tag, maxsplit=1))
    return tag


def read(data: bytes, options: ReadOptions) -> Document:
    """Returns the units in a file: of XLIFF 2, its segments."""
    file = _XmlText(data, options.name)
    root, namespace = local_name(file.root), etree.QName(file.root).namespace or ""
    version = file.root.get("version") or namespace.rpartition(":")[2]  # some programs leave out the version
    if root != "xliff" or version[:2] not in ("1.", "2."):
        other = f"XLIFF {version or 'without a version'}" if root == "xliff" else f"the element {root}"
        raise NmtError(f"{options.name} has {other:.100}, not XLIFF 1 or 2; convert it to XLIFF 1.2 or 2.0")
    skipped, slots, unreached = Counter[str](), list[Slot](), list[int]()
    target = base_language(options.target_lang)
    is_2 = version.startswith("2.")
    units, checked = "{*}segment" if is_2 else "{*}trans-unit", set[Element]()
    for unit in file.root.iter(units):
        if reason := _reason_to_keep(unit, translate_all=options.all):
            skipped[reason] += 1
            continue
        slots.append(_slot(file, unit, options))
        subs = unit.iterfind("{*}source//{*}sub")
        unreached += [sub.sourceline for sub in subs if has_letters("".join(sub.itertext()))]
        holder = file.root if is_2 else next(unit.iterancestors("{*}file"), file.root)
        name = "trgLang" if is_2 else "target-language"
        if holder not in checked and base_language(named := holder.get(name, "")) != target:
            if named and any(_reason_to_keep(each, translate_all=options.all) == _DONE for each in holder.iter(units)):
                raise other_language(named, options)
            file.set(holder, {name: options.target_lang.replace("_", "-")})
        checked.add(holder)
    obstacle = "text in the element sub stands in code; translate it by hand"
    return replace(document_of(slots, file.changed, skipped), unreached=unreached, obstacle=obstacle)


def _reason_to_keep(unit: Element, *, translate_all: bool) -> str | None:
    source, target = unit.find("{*}source"), unit.find("{*}target")
    if source is None or not (len(source) or source.text):
        return "without a source"
    # Attributes of Phrase and of memoQ
    is_locked = any(name.endswith("}locked") and value in ("true", "locked") for name, value in unit.items())
    if is_locked or _is_kept(unit):
        return "not to be translated"
    if translate_all:
        return None
    is_new = unit.get("state") == "initial" or (target is not None and target.get("state") in _NEW)
    is_new |= any(map(_is_empty, _segments(target)))
    return None if is_new and unit.get("approved") != "yes" else _DONE


def _segments(target: Element) -> list[Element]:
    """Returns the segments of a source or a target, or all of it if it is not segmented."""
    marks = [] if target is None else [mark for mark in target.iter("{*}mrk") if mark.get("mtype") == "seg"]
    return marks or [target]


def _is_empty(target: Element | None) -> bool:
    """Returns whether a target, or a segment of one, has no text yet. Some tools write elements without text."""
    if target is None:
        return True
    inner = () if local_name(target) == "mrk" else target.iterdescendants("*")
    return all(local_name(child) in _CONTAINERS for child in inner) and is_blank("".join(target.itertext()))


def _is_kept(element: Element) -> bool:
    """Returns whether an element is not translated."""
    holders = (element, *element.iterancestors())
    values = (value for holder in holders if (value := holder.get("translate") or holder.get(_ITS_TRANSLATE)))
    return element.get("mtype") in ("protected", "x-its-translate-no") or next(values, "") == "no"


def _tokens(file: _XmlText, element: Element) -> Iterator[Token]:
    """Yields the content of an element."""
    text, places, start = file.text, file.places, file.places[element].inside
    for child in element.iterchildren("*"):
        place, name, words = file.places[child], local_name(child), ""
        if place.start < start:  # in a marker that is not translated
            continue
        yield from _text_tokens(text[start : place.start])
        start = place.stop
        if _is_kept(child):
            ends = element.iterchildren("{*}em") if name == "sm" else ()
            stops = (places[end].stop for end in ends if end.get("startRef") == child.get("id"))
            start = next(stops, start)
            words = unescape(re.sub("<[^>]*>", "", text[place.inside : start]))
        if name in _CONTAINERS and not words and not is_blank("".join(child.itertext())):
            yield Token("start", item=text[place.start : place.inside])
            yield from _tokens(file, child)
            yield Token("end", item=text[place.end : start])
        else:
            item = text[place.start : start]
            yield Token("leaf", words, item) if words else _leaf(child, name, item)
    yield from _text_tokens(text[start : places[element].end])


def _text_tokens(raw: str) -> Iterator[Token]:
    """Yields text, tags of Phrase, comments and the like, and CDATA sections as elements."""
    for token in _TOKEN.finditer(raw):
        if token["cdata"] is not None:
            inside = [Token("text", token["cdata"])] if token["cdata"] else []
            yield from (Token("start", item=_CDATA), *inside, Token("end", item=_CDATA_END))
        else:
            role: Role = "open" if token["open"] else "close" if token["close"] else "mark"
            leaf = Token("leaf", item=token[0], role=role, key=token["open"] or token["close"])
            yield text_token(token[0]) if token["text"] else leaf


def _leaf(element: Element, name: str, item: str) -> Token:
    if element.get("ctype") == "lb" or element.get("subType") == "xlf:lb" or element.get("equiv") == "LINE_BREAK":
        return Token("leaf", item=item, role="break")
    if name == "x" and (tag := _TAG_OF_ANGULAR.fullmatch(element.get("id", ""))):
        return Token("leaf", item=item, role="open" if tag[1] == "START" else "close", key=tag[2])
    if name not in _ENDS:
        return Token("leaf", item=item)
    number = element.get("rid") or element.get("startRef") or element.get("id")
    return Token("leaf", item=item, role=_ENDS[name], key=(name[-1], number))


def _content(file: _XmlText, element: Element, options: ReadOptions) -> Content:
    """Returns the content of an element: its text, with the elements in it."""
    tokens, is_exact = with_leaves(list(_tokens(file, element)), options), element.xpath(_IS_EXACT)
    for i, token in enumerate(tokens):
        # Where spaces are not preserved, indented lines are for those who read the file.
        if not is_exact and token.role == "break" and re.search(r"\n[ \t]", token.item):
            tokens[i] = token._replace(role="space")
    return Content(grouped(tokens), options.protected)


def _written(content: Content, translations: Iterator[Sequence[Token]]) -> str:
    """Returns the content of a target."""
    written, is_cdata, repeated = "", False, Counter[str]()
    for token in content.translated(translations):
        if token.kind == "text":
            cdata = token.text.replace(_CDATA_END, f"]]{_CDATA_END}{_CDATA}>")
            written += text_only(cdata if is_cdata else written_xml([token]))
            continue
        is_cdata = (is_cdata or token.item == _CDATA) and token.item != _CDATA_END
        repeated[token.item] += 1
        number = f"-{repeated[token.item]}" if repeated[token.item] > 1 else ""
        written += _REFERENCE.sub(rf"\g<0>{number}", token.item, count=1)
    return written


def _slot(file: _XmlText, unit: Element, options: ReadOptions) -> Slot:
    """Returns the slot of a unit of XLIFF 1, or a segment of XLIFF 2."""
    text, places = file.text, file.places
    source, target, segmented = (unit.find(f"{{*}}{name}") for name in ("source", "target", "seg-source"))
    model = source if segmented is None else segmented
    is_new = options.all or (target is not None and target.get("state") in _NEW)
    old = {} if is_new else {mark.get("mid"): mark for mark in _segments(target) if not _is_empty(mark)}
    # What stands in each segment: a translation that is there, or content that is translated.
    segments: dict[tuple[int, int], str | Content] = {}
    start, inside, end, stop = places[model]
    for element in _segments(model):
        kept = places.get(old.get(element.get("mid"))) if element is not model else None
        content = text[kept.inside : kept.end] if kept else _content(file, element, options)
        segments[places[element].inside - inside, places[element].end - inside] = content
    is_2, offered = local_name(unit) == "segment", list[Match]()
    prefix = f"{source.prefix}:" if source.prefix else ""
    before = text[places[unit].inside : start]
    space = before[len(before.rstrip()) :]

    def put(translations: Iterator[Sequence[Token]]) -> None:
        translations, passages = tee(translations)
        is_doubtful = has_doubts(passages)
        changes = {
            span: content if isinstance(content, str) else _written(content, translations)
            for span, content in segments.items()
        }
        name = "translated" if options.doubtful and not is_doubtful else "needs-review-translation"
        state: dict[str, str | None] = {} if is_2 else {"state": name, "state-qualifier": None}
        doubt = {"state": "translated", "subState": "nmt:doubtful" if is_doubtful else None}
        file.set(unit, doubt if is_2 else {"approved": None})
        if target is None:
            tag = space + _tag_with(f"<{prefix}target>", {**state, "xml:space": source.get(_SPACE)})
            span = stop, stop
        else:
            span = places[target].start, places[target].stop
            tag = _tag_with(re.sub(r"\s*/>$", ">", text[span[0] : places[target].inside]), state)
        new = f"{tag}{spliced(text[inside:end], changes)}</{prefix}target>"
        for match in offered:
            both = (("source", match.source), ("target", match.target))
            sides = (f"<{prefix}{name}>{text_only(escape(side, quote=False))}</{prefix}{name}>" for name, side in both)
            new += f'{space}<{prefix}alt-trans match-quality="{match.percent}%" origin="memory">'
            new += f"{''.join(sides)}</{prefix}alt-trans>"
        file.changes[span] = new

    contents = [content for content in segments.values() if isinstance(content, Content)]
    passages = [passage for content in contents for passage in content.passages]
    return Slot(passages, put, None if is_2 else offered.extend)
