"""The texts of programs, as PO and XLIFF have them: what stands in them and is not translated.

Tags, line breaks, protected words, the placeholders of formats, and the syntax of ICU keep their text. A newline ends a
sentence unless a lower-case letter follows it.
"""

import re
from collections.abc import Iterable, Iterator
from html import escape
from itertools import chain, count
from typing import NamedTuple

from nmt.documents.content import Group, Inline, Leaf, flattened, paired, plain
from nmt.documents.document import ReadOptions
from nmt.text.icu import parse_icu
from nmt.text.protected import Protected
from nmt.text.words import is_blank

_PERCENT = (
    r"%(?:\(\w+\)|\d+\$)?[-+ #0'I]{0,6}(?:\d{1,9}|\*)?(?:\.(?:\d+|\*))?(?:hh?|ll?|[qLjzt])?[a-zA-Z@%]"
    r"|%<\w+>|%L?\d+|\$\{?\w+\}?"
)
_BRACES = r"\{(?:[^{}]|\{[^{}]*\})*\}"
_OTHERS = (
    r"(?P<tag><(?P<end>/?)(?P<name>[a-zA-Z][^\s<>/]*+|\d++(?=/?>))(?P<rest>[^<>]*)>)"
    r"|(?P<comment><!--(?:[^<>-]|-(?!->))*+-->)|(?P<line>(?<![ \t\r])[ \t\r]*\n\s*)"
    r"|(?P<code>``[^`]+``|:[\w:+-]{1,99}:`[^`]+`)"
    r"|(?P<reference>&(?:[a-zA-Z]+|\#\d+|\#x[\da-fA-F]+);)"
    # The forms of Symfony's plurals stand between bars, behind the numbers that they are for.
    r"|(?P<bar>(?<=[^\s|])\|(?=[^\s|]))|[\[\]](?:-Inf|\d+),\s*(?:Inf|\d+)[\[\]]"
    r"|(?P<spaces>[ ]{2,})|%\([^()%]{1,99}\)[-+#0]*\d*(?:\.\d+)?[a-zA-Z]"
    r"|(?<![\w%])%[-_0^]?[a-zA-Z](?![^\W\d_])"
    "|(?P<control>[\0-\t\x0b-\x1f\ufffe\uffff])"
)
_BLOCKS = (
    "blockquote button caption dd div dl dt fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 header hr "
    "label legend li nav ol optgroup option p pre section select table tbody td textarea tfoot th thead tr ul"
)
# Elements that may stand in a word. What follows the end of another element directly is another word.
_IN_WORDS = (
    "abbr acronym b big cite code del em font i ins mark s small span strike strong sub sup tt u var "
    "bold_text italic_text underlined_text tag_span emphasised_text"
)


class Part(NamedTuple):
    """A leaf of a text, and where it stands."""

    start: int
    stop: int
    leaf: Leaf


def parts(text: str, protected: Protected, flags: Iterable[str] = ()) -> list[Part]:
    """Returns what of a text is not translated, in order.

    Args:
        flags: of a PO message; they may name formats.
    """
    formats = {flag for flag in flags if flag.endswith("-format") and not flag.startswith("no-")}
    with_braces = {flag for flag in formats if re.search("brace|csharp|java-|javascript|rust", flag)}
    placeholders = [_BRACES] * bool(with_braces) + [_PERCENT] * bool(formats - with_braces)
    matches = re.finditer("|".join([_OTHERS, *placeholders]), text)
    ranked = sorted(
        chain(
            _syntax(text),
            ((match.start(), 1, -match.end(), _leaf(match)) for match in matches),
            ((start, 2, -stop, _kept(text[start:stop])) for start, stop in protected.spans(text)),
        ),
        key=lambda rank: rank[:3],
    )
    apart: list[Part] = []
    for start, _, stop, leaf in ranked:
        if not apart or start >= apart[-1].stop:
            apart.append(Part(start, -stop, leaf))
    return apart


def _syntax(text: str) -> Iterator[tuple[int, int, int, Leaf]]:
    """Yields the syntax of a message of ICU, and what it keeps: each start, rank, and negative end."""
    start = 0
    for part in parse_icu(text) or ():
        leaves = [Leaf(part, kind="end")] if isinstance(part, str) else [_kept(token.text) for token in part.tokens]
        kinds = ["syntax"] if isinstance(part, str) else [token.kind for token in part.tokens]
        for leaf, kind in zip(leaves, kinds, strict=True):
            stop = start + len(leaf.item)
            if kind != "text":
                yield start, 0, -stop, leaf
            start = stop


def with_categories(text: str, options: ReadOptions) -> str:
    """Returns a message of ICU with the plural categories that the target language has, and other text as it is."""
    tags, numbers = re.findall("<[^<>]*>", text), count(0xF0000)  # characters for private use; tags may have braces
    message = parse_icu(
        re.sub("<[^<>]*>", lambda _: chr(next(numbers)), text), options.source_lang, options.target_lang
    )
    if message is None:
        return text
    written = (part if isinstance(part, str) else "".join(token.text for token in part.tokens) for part in message)
    hidden = {0xF0000 + number: tag for number, tag in enumerate(tags)}
    return "".join(written).translate(hidden)


def grouped(content: Iterable[Inline]) -> list[Inline]:
    """Returns content with groups, whose items are strings. One without words is a leaf.

    An empty leaf separates adjacent elements, except for those that may stand in a word.
    """
    return list(map(_solid, paired(_separated(content))))


def _solid(inline: Inline) -> Inline:
    if not isinstance(inline, Group):
        return inline
    inner = list(map(_solid, inline.content))
    if not is_blank(plain(inner)) or any(
        isinstance(i, Group) or (isinstance(i, Leaf) and _separates(i)) for i in inner
    ):
        return Group(inline.item, inner)
    return Leaf("".join(part if isinstance(part, str) else part.item for part in flattened([inline])))


def _separates(leaf: Leaf) -> bool:
    return bool(leaf.words) or leaf.kind in ("space", "break", "end")


def _separated(content: Iterable[Inline]) -> Iterator[Inline]:
    ends = ""  # the element that the last leaf ends
    for inline in content:
        name = inline.key.lower() if isinstance(inline, Leaf) and isinstance(inline.key, str) else ""
        kind = inline.kind if isinstance(inline, Leaf) else ""
        is_apart = kind == "open" and ends and not {ends, name} & set(_IN_WORDS.split())
        yield from [Leaf("", kind="end")] * bool(is_apart and name)
        yield inline
        ends = name if kind == "close" else ""


def _leaf(match: re.Match[str]) -> Leaf:
    raw, name = match[0], (match["name"] or "").lower()
    if match["line"]:
        return Leaf(raw, kind="end" if raw.count("\n") > 1 else "break")
    if match["spaces"]:
        return Leaf(raw, kind="space")
    if match["control"] or match["comment"] or match["bar"]:
        return Leaf(raw, kind="end" if raw in "\t|" else "mark")
    if name in ("br", "input"):
        return Leaf(raw, kind="break" if name == "br" else "space")
    if name in _BLOCKS.split():
        return Leaf(raw, kind="end")
    if match["end"] or (match["tag"] and match["rest"]):
        return Leaf(raw, kind="close" if match["end"] else "open", key=name)
    if match["tag"]:
        return Leaf(raw, escape(raw), "open", name)
    return Leaf(raw, raw) if match["reference"] else _kept(raw)


def _kept(raw: str) -> Leaf:
    # A program fills in placeholders without a name or a number in their order.
    is_next = re.fullmatch(r"%[^%($]*[a-zA-Z@>]", raw)
    return Leaf(raw, escape(" ".join(raw.split()), quote=False), key="next" if is_next else None)
