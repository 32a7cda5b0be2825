"""The texts of programs, as JSON, PO and XLIFF have them: what stands in them and is not translated.

Tags, line breaks, protected words, the placeholders of formats, and the syntax of ICU keep their text. A newline ends a
sentence unless a lower-case letter follows it.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from html import escape, unescape
from itertools import count
from operator import itemgetter

import regex as re

from nmt.documents.content import Content, Group, Inline, Leaf, flattened, is_untranslated, paired, plain
from nmt.documents.document import Passage, ReadOptions, spliced
from nmt.text.icu import IcuText, as_html, parse_icu
from nmt.text.markup_reading import BLOCKS
from nmt.text.protected import SURPLUS, Protected
from nmt.text.words import is_blank

# Placeholders that may have a space, or letters behind them, and those without braces.
_PERCENT = (
    r"%(?:\(\w+\)|\d+[$:]|\[\d+\])?[-+ #0'I]{0,6}(?:\d{1,9}|\*)?(?:\.(?:\d+|\*))?(?:hh?|ll?|[qLjzvt])?[a-zA-Z@%]"
    r"|%<\w+>(?:[-+0]*\d*(?:\.\d+)?[a-zA-Z](?![a-zA-Z]))?|%\|[^|]*\||%L?\d+%?|\$\{?\w+\}?"
)
_BRACES, _WITH_BRACES = r"\{(?:[^{}]|\{[^{}]*\})*\}", "brace|csharp|java-|javascript|rust"
_OF_FORMATS = {"qt": r"%L?\d{1,2}", "lisp|scheme": r"~[\d,:@']*[a-zA-Z%&~^{}()\[\];]", _WITH_BRACES: _BRACES}
_OF_FORMATS[f"^(?!.*(?:{_WITH_BRACES}))"] = _PERCENT
# Formats in which `%%` stands for a sign that is no placeholder.
_PRINTF = re.compile("(?:awk|c|gcc-internal|go|lua|objc|object-pascal|perl|php|python|ruby|tcl)-format")
_OTHERS = (
    r"(?P<tag><(?P<end>/?)(?P<name>[a-zA-Z][^\s<>/]*+|\d++(?=/?>))(?P<rest>(?:\"[^\"<]*\"|'[^'<]*'|[^<>])*+)>)"
    r"|(?P<line>(?<![ \t\r])[ \t\r]*\n\s*)|(?P<spaces>[ ]{2,})"
    r"|(?P<reference>&(?:[a-zA-Z]\w*|\#\d+|\#[xX][\da-fA-F]+);)"
    # The forms of plurals stand between bars, and may stand behind the numbers that they are for.
    r"|(?P<bar>(?<![\s|])[ ]?\|[ ]?(?![\s|]))|[\[\]](?:-Inf|\d+),\s*(?:Inf|\d+|\*)[\[\]]"
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
        flags: of a PO message; they may name formats. Without them, bars may separate the forms of plurals.
    """

    def __init__(self, text: str, options: ReadOptions, flags: Iterable[str] | None = None) -> None:
        self._text, self._options = text, options
        of_icu = [part for part in parse_icu(text) or () if isinstance(part, IcuText)]
        self._raw_of: Callable[[str], str] = of_icu[0].written if of_icu else unescape
        to_html = as_html if of_icu else partial(escape, quote=False)
        leaves = parts(text, options.protected, flags)
        has_others = re.search(r"%%\w", text) or "%" in spliced(text, {leaf[:2]: "" for leaf in leaves})
        self._is_printf = not has_others and any(map(_PRINTF.fullmatch, flags or ()))
        self.kept = sorted(leaf.words for _, _, leaf in leaves)
        content, start = list[Inline](), 0
        for begin, stop, leaf in leaves:
            is_sign = self._is_printf and leaf.item == "%%"
            content += [*filter(None, [to_html(text[start:begin])]), "%" if is_sign else leaf]
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
        for start, stop, _ in reversed(self._options.protected.spans(raw)):
            is_percentage = raw[start] == "%" and not SURPLUS.match(raw, start)
            if _NEXT.fullmatch(raw[start:stop]) and not is_percentage:
                raw = raw[:start].rstrip(" ") + raw[stop:]
        return re.sub("%+", "%%", raw) if self._is_printf else raw


# A placeholder without a name or a number, which a program fills in by the order of placeholders.
_NEXT = re.compile(r"%[^%($\[:]*[a-zA-Z@>]|~.*[a-zA-Z]")
# A placeholder of strftime that is none of printf. Those of strftime are names, and their order is free.
_DATE = re.compile(r"%[-_^#0]?[aAbBHIjMmUWwYyZ](?![a-zA-Z])")
# A few short forms of a plural: for certain numbers, the last one with the number, or all with the stem of a word.
_FORMS = re.compile(
    r"(?!.*(?:[`<$/\\]|\s-|\|\||[^|]{99}))(?:(?:\{\d+\}|[\[\]](?:-Inf|\d+),).*|[^|]*(?:\|[^|]*)?\|[^|]*[{:%](?:n|count)\b[^|]*"
    r"|[^|]*?\b([^\W\d_]{3})[^|]*(?:\|[^|]*\b\1[^|]*){1,2})",
    re.DOTALL | re.IGNORECASE,
)


def parts(text: str, protected: Protected, flags: Iterable[str] | None = ()) -> list[tuple[int, int, Leaf]]:
    """Returns what of a text is not translated and where it begins and ends, in order."""
    has_forms = flags is None and _FORMS.fullmatch(text)
    formats = {flag for flag in flags or () if flag.endswith("-format") and not flag.startswith("no-")}
    patterns = [pattern for names, pattern in _OF_FORMATS.items() if any(re.search(names, flag) for flag in formats)]
    leaves, start = list[tuple[int, int, Leaf]](), 0
    for part in parse_icu(text) or ():
        for kind, raw in [("", part)] if isinstance(part, str) else [(token.kind, token.text) for token in part.tokens]:
            if kind != "text":
                leaves.append((start, start + len(raw), _kept(raw) if kind else Leaf(raw, kind="end")))
            start += len(raw)
    matches = re.finditer("|".join([_OTHERS, *patterns]), text)
    leaves += [(*match.span(), _leaf(match)) for match in matches if has_forms or not match["bar"]]
    leaves += [(start, stop, _kept(text[start:stop])) for start, stop, _ in protected.spans(text)]
    apart: list[tuple[int, int, Leaf]] = []
    is_date = _DATE.search(text)
    for start, stop, leaf in sorted(leaves, key=itemgetter(0)):  # of those that begin together, the first
        if not apart or start >= apart[-1][1]:
            apart.append((start, stop, replace(leaf, key=None) if is_date and leaf.key == "next" else leaf))
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

    An empty leaf separates adjacent elements, except for those that may stand in a word. `raw_of` writes text.
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
    tag = inline.item.start.item  # of XLIFF, it may have a tag of HTML inside
    if any(map(is_untranslated, [tag, *re.findall(r"<\w[^<>]*>", unescape(tag))])):
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
