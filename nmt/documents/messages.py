"""The texts of programs, as JSON, PO and XLIFF have them: what stands in them and is not translated.

Tags, line breaks, protected words, the placeholders of formats, and the syntax of ICU keep their text. A newline
ends a sentence unless a lower-case letter follows it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from html import unescape
from itertools import accumulate
from operator import itemgetter

import regex as re

from nmt.documents.content import DIVIDING, SEPARATING, Content, paired, plain
from nmt.documents.document import ReadOptions
from nmt.text.icu import IcuPiece, parse_icu
from nmt.text.marked import Role, Token, merged
from nmt.text.markup_reading import BLOCKS, is_kept
from nmt.text.protected import SURPLUS
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
    r"|(?P<bar>(?<![\s|])[ ]?(?!(?<!\w)\|[A-Za-z][\w.-]*\|(?!\w))\|[ ]?(?![\s|]))"
    r"|[\[\]](?:-Inf|\d+),\s*(?:Inf|\d+|\*)[\[\]]"
    # Code of RST, Markdown and POD, addresses of links, substitutions, citations, and names of Drupal and LibreOffice
    r"|(?P<code>``[^`]+``|:[\w:+-]{1,99}:`[^`]+`|`[^`'\n<]+`(?!_)|(?<=\])\((?:[^()\s]+|inflect: true)\)"
    r"|(?<![\w|])\|[A-Za-z][\w.-]*\|(?![\w|])|\[[\w.-]+\]_(?!\w)"
    r"|(?<![\w%])(?<!\d )%(?:[a-z_]{3,}|[A-Z]{3,})(?!\w)|(?<!\S)![a-z_]{2,}(?!\w)|\$\[\w+\])"
    "|(?P<hidden><!--(?:[^<>-]|-(?!->))*+-->|[\0-\t\x0b-\x1f\x7f\ufffe\uffff])"
)
# Marks of POD, which text with tags does not have
_POD = r"(?P<pod>(?<!\w)[BINS]<)(?=[^<>\n]+>)|(?<!\w)[CEFLXZ]<[^<>\n]+>"
_MARKUP = "<\ufffc"  # what stands for markup in a text
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
        flags: those of PO; without them, bars may separate forms of plurals.
        is_icu: whether an apostrophe before a brace quotes, as in messages of ICU, even if no argument branches.
    """

    def __init__(
        self, text: str, options: ReadOptions, flags: Iterable[str] | None = None, *, is_icu: bool = False
    ) -> None:
        self._text, self._protected = text, options.protected
        self._icu = parse_icu(text, must_branch=not is_icu)
        tokens = with_leaves([Token("text", text)], options, flags, is_icu=is_icu)
        self.kept = sorted(token.text for token in tokens if token.kind == "leaf")
        has_others = re.search(r"%%\w", text) or "%" in plain(tokens)
        self._is_printf = not has_others and any(map(_PRINTF.fullmatch, flags or ()))
        for i, token in enumerate(tokens):
            if token.kind == "text" and self._icu:
                tokens[i] = IcuPiece("text", token.text, 0).token
            elif self._is_printf and token.item == "%%":
                tokens[i] = Token("text", "%")
        self._content = Content(grouped(tokens), options.protected)
        self.passages = self._content.passages  # what is translated

    def written(self, translations: Iterator[Sequence[Token]]) -> str:
        """Returns the text with the next translations. It stays as it is if its letters do.

        An element with a placeholder is not repeated, because a program counts placeholders.
        """
        text, seen, are_written = "", set[int](), list[bool]()
        for token in self._content.translated(translations):
            if token.kind == "text":
                text += self._without_surplus(self._icu.written_text(token) if self._icu else token.text)
                continue
            if token.kind == "start":
                are_written.append(id(token) not in seen or not re.search("[%{$]", token.item))
                seen.add(id(token))
            is_written = token.kind == "leaf" or (are_written.pop() if token.kind == "end" else are_written[-1])
            text += token.item if is_written else ""
        return self._text if "".join(text.split()) == "".join(self._text.split()) else text

    def _without_surplus(self, raw: str) -> str:
        """Returns text without placeholders like `%s`. Those of the source are leaves; a program has no others."""
        for start, stop, _ in reversed(self._protected.spans(raw)):
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
    r"(?!.*(?:[`<$/\\]|\s-|\|\||[^|]{99}))(?:(?:\{\d+\}|[\[\]](?:-Inf|\d+),).*"
    r"|[^|]*(?:\|[^|]*)?\|[^|]*[{:%](?:n|count)\b[^|]*|[^|]*?\b([^\W\d_]{3})[^|]*(?:\|[^|]*\b\1[^|]*){1,2})",
    re.DOTALL | re.IGNORECASE,
)


def with_leaves(
    tokens: list[Token], options: ReadOptions, flags: Iterable[str] | None = (), *, is_icu: bool = False
) -> list[Token]:
    """Returns tokens of a message in which what is not translated is a leaf, unless it is partly in an element.

    A message of ICU gets the plural categories that the target language has.
    """
    text = _joined_text(tokens)
    if message := parse_icu(text, options.source_lang, options.target_lang, must_branch=not is_icu):
        copied, starts = list[Token](), _starts(tokens)
        for _, raw, start in message.pieces:
            copied += [Token("text", raw)] if start < 0 else _sliced(tokens, starts, start, start + len(raw))
        depths = list(accumulate((token.kind == "start") - (token.kind == "end") for token in copied))
        is_nested = min(depths) >= 0 == depths[-1]
        tokens, message = (copied, message) if is_nested else (tokens, parse_icu(text, must_branch=not is_icu))
        text = _joined_text(tokens)
    has_forms = flags is None and _FORMS.fullmatch(text)
    formats = {flag for flag in flags or () if flag.endswith("-format") and not flag.startswith("no-")}
    patterns = [pattern for names, pattern in _OF_FORMATS.items() if any(map(re.compile(names).search, formats))]
    leaves, start = list[tuple[int, int, Token]](), 0
    for kind, raw, _ in message.pieces if message else ():
        kept = _kept(raw) if kind == "leaf" else Token("leaf", role="end", key=DIVIDING)
        leaves += [(start, start + len(raw), kept)] if kind != "text" else []
        start += len(raw)
    if not re.search("</|/>|<br>", text):
        for match in re.finditer(_POD, text):
            leaves.append((*match.span(), Token("leaf", role="open", key="pod") if match["pod"] else _kept(match[0])))
            end = text.index(">", match.start())
            leaves += [(end, end + 1, Token("leaf", role="close", key="pod"))] * bool(match["pod"])
    matches = re.finditer("|".join([_OTHERS, *patterns]), text)
    leaves += [(*match.span(), _leaf(match)) for match in matches if has_forms or not match["bar"]]
    leaves += [(start, stop, _kept(text[start:stop])) for start, stop, _ in options.protected.spans(text)]
    result, end, is_date, starts = list[Token](), 0, _DATE.search(text), _starts(tokens)
    for start, stop, leaf in [*sorted(leaves, key=itemgetter(0)), (len(text), len(text), None)]:
        inside = _sliced(tokens, starts, start, stop)
        if start < end or any(token.kind in ("start", "end") for token in inside):
            continue  # of those that begin together, the first
        result += _sliced(tokens, starts, end, start)
        if leaf:
            key = None if is_date and leaf.key == "next" else leaf.key
            result.append(leaf._replace(item="".join(token.raw for token in inside), key=key))
        end = stop
    return list(merged(result))


def _joined_text(tokens: Iterable[Token]) -> str:
    """Returns the text of tokens, in which markup is in no word, tag or address."""
    return "".join(token.text if token.kind == "text" else _MARKUP for token in tokens)


def _length(token: Token) -> int:
    """Returns the length of a token in the text across it and others."""
    return len(token.text) if token.kind == "text" else len(_MARKUP)


def _starts(tokens: Iterable[Token]) -> list[int]:
    """Returns where each token begins in the text across them, and where the last one ends."""
    return list(accumulate(map(_length, tokens), initial=0))


def _sliced(tokens: Sequence[Token], starts: Sequence[int], start: int, stop: int) -> list[Token]:
    """Returns the tokens in a part of the text across them.

    Args:
        starts: those of `_starts`.
    """
    sliced = list[Token]()
    for i in range(max(0, bisect_right(starts, start) - 1), bisect_left(starts, stop, hi=len(tokens))):
        token, position = tokens[i], starts[i]
        if position + _length(token) > start:
            is_text = token.kind == "text"
            sliced.append(token.cut(max(0, start - position), stop - position) if is_text else token)
    return sliced


def grouped(tokens: Iterable[Token]) -> list[Token]:
    """Returns tokens with elements, whose items are strings. An element that stays, or has no words, is a leaf.

    An empty leaf separates adjacent elements, except for those that may stand in a word.
    """
    in_words, separated, ended = set(_IN_WORDS.split()), list[Token](), ""  # the element that the last leaf ends
    for token in tokens:
        name = token.key if isinstance(token.key, str) else ""
        if token.role == "open" and ended and name and not {ended, name} & in_words:
            separated.append(Token("leaf", item="", role="end"))
        separated.append(token)
        ended = name if token.role == "close" else ""
    solid, starts = list[Token](), list[int]()
    for token in paired(separated):
        # The end of a block that does not stay separates texts.
        solid.append(token._replace(role="end") if token.kind == "leaf" and token.key in _BLOCKS else token)
        if token.kind == "start":
            starts.append(len(solid) - 1)
        elif token.kind == "end":
            element = solid[(start := starts.pop()) :]
            tag, inner = element[0].item, element[1:-1]  # of XLIFF, the tag may have a tag of HTML inside
            stays = any(map(is_kept, [tag, *re.findall(r"<\w[^<>]*>", unescape(tag))]))
            is_empty = all(is_blank(t.text) and t.kind != "start" and t.role not in SEPARATING for t in inner)
            if stays or is_empty:
                words = "".join(each.text for each in inner) if stays else ""
                solid[start:] = [Token("leaf", words, "".join(each.raw for each in element))]
    return solid


def _leaf(match: re.Match[str]) -> Token:
    raw, name = match[0], (match["name"] or "").lower()
    role: Role | None = None
    if match["line"] or name == "br":
        role = "end" if raw.count("\n") > 1 else "break"
    elif match["spaces"] or name == "input":
        role = "space"
    elif (name in _BLOCKS and not match["end"] and not is_kept(raw)) or match["bar"] or raw == "\t":
        role = "end"
    elif match["tag"]:
        words = "" if match["end"] or match["rest"] else raw
        return Token("leaf", words, role="close" if match["end"] else "open", key=name)
    elif match["hidden"] or match["reference"]:
        return Token("leaf", "" if match["hidden"] else unescape(raw))
    return Token("leaf", role=role) if role else _kept(raw)


def _kept(raw: str) -> Token:
    return Token("leaf", " ".join(raw.split()), key="next" if _NEXT.fullmatch(raw) else None)
