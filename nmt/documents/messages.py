"""The texts of programs, as JSON, PO and XLIFF have them: what stands in them and is not translated.

Tags, line breaks, protected words, the placeholders of formats, and the syntax of ICU keep their text. A newline ends a
sentence unless a lower-case letter follows it.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from html import escape, unescape
from itertools import count
from operator import itemgetter

from nmt.documents.content import Content, Group, Inline, Leaf, flattened, is_untranslated, paired, plain
from nmt.documents.document import Passage, ReadOptions
from nmt.text.icu import IcuText, as_html, parse_icu
from nmt.text.markup_reading import BLOCKS
from nmt.text.protected import Protected
from nmt.text.words import is_blank

_BRACES = r"\{(?:[^{}]|\{[^{}]*\})*\}"
# Placeholders that may have a space, or letters behind them, and those without braces.
_PERCENT = (
    r"%(?:\(\w+\)|\d+\$)?[-+ #0'I]{0,6}(?:\d{1,9}|\*)?(?:\.(?:\d+|\*))?(?:hh?|ll?|[qLjzt])?[a-zA-Z@%]"
    r"|%<\w+>|%L?\d+|\$\{?\w+\}?"
)
_OTHERS = (
    r"(?P<tag><(?P<end>/?)(?P<name>[a-zA-Z][^\s<>/]*+|\d++(?=/?>))(?P<rest>(?:\"[^\"<]*\"|'[^'<]*'|[^<>])*+)>)"
    r"|(?P<line>(?<![ \t\r])[ \t\r]*\n\s*)|(?P<spaces>[ ]{2,})"
    r"|(?P<reference>&(?:[a-zA-Z]\w*|\#\d+|\#[xX][\da-fA-F]+);)"
    # The forms of plurals stand between bars, those of Symfony behind the numbers that they are for.
    r"|(?P<bar>(?<![\s|])[ ]?\|[ ]?(?![\s|]))|[\[\]](?:-Inf|\d+),\s*(?:Inf|\d+)[\[\]]"
    r"|(?P<code>``[^`]+``|:[\w:+-]{1,99}:`[^`]+`)"
    "|(?P<hidden><!--(?:[^<>-]|-(?!->))*+-->|[\0-\t\x0b-\x1f\x7f\ufffe\uffff])"
)
# Names of elements that programs also give to inline elements of their own are left out.
_BLOCKS = BLOCKS - {"body", "br", "link", "menu", "search", "title"}
# Elements that may stand in a word. What follows the end of another element directly is another word.
_IN_WORDS = (
    "abbr acronym b big cite code del em font i ins mark s small span strike strong sub sup tt u var "
    "bold_text italic_text underlined_text tag_span emphasised_text"
)


class Message:
    """A text that a program shows.

    Args:
        flags: of a PO message; they may name formats.
    """

    def __init__(self, text: str, options: ReadOptions, flags: Iterable[str] = ()) -> None:
        self._text, self._options = text, options
        of_icu = [part for part in parse_icu(text) or () if isinstance(part, IcuText)]
        self._raw_of: Callable[[str], str] = of_icu[0].written if of_icu else unescape
        to_html = as_html if of_icu else partial(escape, quote=False)
        leaves = parts(text, options.protected, flags)
        self.kept = sorted(leaf.words for _, _, leaf in leaves)
        content, start = list[Inline](), 0
        for begin, stop, leaf in leaves:
            content += [*filter(None, [to_html(text[start:begin])]), leaf]
            start = stop
        self._content = Content(grouped([*content, to_html(text[start:])], self._raw_of))

    @property
    def passages(self) -> list[Passage]:
        """What is translated."""
        return self._content.passages

    def written(self, translations: Iterator[str]) -> str:
        """Returns the text with the next translations. It stays as it is if its letters do."""
        text = with_categories(self._written(self._content.translated(translations), set()), self._options)
        return self._text if "".join(text.split()) == "".join(self._text.split()) else text

    def _written(self, content: Iterable[Inline], written: set[Leaf]) -> str:
        """Returns text with tags. One with a placeholder is not repeated, because a program counts placeholders."""
        text = ""
        for inline in content:
            if not isinstance(inline, Group):
                text += self._without_surplus(self._raw_of(inline)) if isinstance(inline, str) else inline.item
                continue
            start, end = inline.item
            is_repeated = start in written and re.search("[%{$]", start.item)
            written.add(start)
            inner = self._written(inline.content, written)
            text += inner if is_repeated else f"{start.item}{inner}{end.item}"
        return text

    def _without_surplus(self, raw: str) -> str:
        """Returns text without placeholders like `%s`. Those of the source are leaves, and a program has no others."""
        for start, stop in reversed(self._options.protected.spans(raw)):
            raw = raw if not _NEXT.fullmatch(raw[start:stop]) else raw[:start].rstrip(" ") + raw[stop:]
        return raw


# A placeholder without a name or a number, which a program fills in by the order of placeholders.
_NEXT = re.compile(r"%[^%($]*[a-zA-Z@>]")


def parts(text: str, protected: Protected, flags: Iterable[str] = ()) -> list[tuple[int, int, Leaf]]:
    """Returns what of a text is not translated and where it begins and ends, in order."""
    formats = {flag for flag in flags if flag.endswith("-format") and not flag.startswith("no-")}
    with_braces = {flag for flag in formats if re.search("brace|csharp|java-|javascript|rust", flag)}
    patterns = [_OTHERS, *[_BRACES] * bool(with_braces), *[_PERCENT] * bool(formats - with_braces)]
    leaves, start = list[tuple[int, int, Leaf]](), 0
    for part in parse_icu(text) or ():
        for kind, raw in [("", part)] if isinstance(part, str) else [(token.kind, token.text) for token in part.tokens]:
            if kind != "text":
                leaves.append((start, start + len(raw), _kept(raw) if kind else Leaf(raw, kind="end")))
            start += len(raw)
    leaves += [(*match.span(), _leaf(match)) for match in re.finditer("|".join(patterns), text)]
    leaves += [(start, stop, _kept(text[start:stop])) for start, stop in protected.spans(text)]
    apart: list[tuple[int, int, Leaf]] = []
    for leaf in sorted(leaves, key=itemgetter(0)):  # of those that begin together, the first
        if not apart or leaf[0] >= apart[-1][1]:
            apart.append(leaf)
    return apart


def with_categories(text: str, options: ReadOptions) -> str:
    """Returns a message of ICU with the plural categories that the target language has, and other text as it is."""
    tags, numbers = re.findall("<[^<>]*>", text), count(0xF0000)  # characters for private use; tags may have braces
    without_tags = re.sub("<[^<>]*>", lambda _: chr(next(numbers)), text)
    message = parse_icu(without_tags, options.source_lang, options.target_lang) or [without_tags]
    written = (part if isinstance(part, str) else "".join(token.text for token in part.tokens) for part in message)
    return "".join(written).translate(dict(enumerate(tags, 0xF0000)))


def grouped(content: Iterable[Inline], raw_of: Callable[[str], str] = str) -> list[Inline]:
    """Returns content with groups, whose items are strings. One that stays, or has no words, is a leaf.

    An empty leaf separates adjacent elements, except for those that may stand in a word.

    Args:
        raw_of: returns how the format writes text.
    """
    separated, ended = list[Inline](), ""  # the element that the last leaf ends
    for inline in content:
        kind, name = (inline.kind, inline.key) if isinstance(inline, Leaf) else ("", "")
        if kind == "open" and ended and isinstance(name, str) and not {ended, name} & set(_IN_WORDS.split()):
            separated.append(Leaf("", kind="end"))
        separated.append(inline)
        ended = name if kind == "close" and isinstance(name, str) else ""
    return [_solid(inline, raw_of) for inline in paired(separated)]


def _solid(inline: Inline, raw_of: Callable[[str], str]) -> Inline:
    if not isinstance(inline, Group):  # the end of a block that does not stay separates texts
        return replace(inline, kind="end") if isinstance(inline, Leaf) and inline.key in _BLOCKS else inline
    leaf = Leaf("".join(raw_of(each) if isinstance(each, str) else each.item for each in flattened([inline])))
    if is_untranslated(inline.item.start.item):
        words = "".join(each if isinstance(each, str) else each.words for each in flattened(inline.content))
        return replace(leaf, words=" ".join(words.split()))
    inner = [_solid(each, raw_of) for each in inline.content]
    is_kept = any(isinstance(i, Group) or (isinstance(i, Leaf) and (i.words or i.separates)) for i in inner)
    return Group(inline.item, inner) if is_kept or not is_blank(plain(inner)) else leaf


def _leaf(match: re.Match[str]) -> Leaf:
    raw, name = match[0], (match["name"] or "").lower()
    if match["line"] or name == "br":
        return Leaf(raw, kind="end" if raw.count("\n") > 1 else "break")
    if match["spaces"] or name == "input":
        return Leaf(raw, kind="space")
    is_block = name in _BLOCKS and not match["end"] and not is_untranslated(raw)
    if is_block or match["bar"] or raw == "\t":
        return Leaf(raw, kind="end")
    if match["end"] or (match["tag"] and match["rest"]):
        return Leaf(raw, kind="close" if match["end"] else "open", key=name)
    if match["tag"]:
        return Leaf(raw, escape(raw), "open", name)
    return Leaf(raw, "" if match["hidden"] else raw) if match["hidden"] or match["reference"] else _kept(raw)


def _kept(raw: str) -> Leaf:
    return Leaf(raw, escape(" ".join(raw.split()), quote=False), key="next" if _NEXT.fullmatch(raw) else None)
