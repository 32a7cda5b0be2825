"""Messages of ICU MessageFormat whose arguments have branches, such as `{n, plural, one {a dog} other {# dogs}}`.

What is translated is the text around such arguments and in their branches. Arguments without branches, `#` and what
apostrophes quote stay. See https://unicode-org.github.io/icu/userguide/format_parse/messages/.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from html import escape, unescape
from itertools import groupby

import regex as re

from nmt.text.languages import plural_categories
from nmt.text.markup_writing import MarkedText, Token
from nmt.text.words import AlignedWords

_BRANCHING = re.compile(r"\{\s*[\w.-]+\s*,\s*(plural|selectordinal|select)\s*,\s*(?:offset\s*:\s*\d+)?")
_SELECTOR = re.compile(r"\s*(=\d+|[^\s{}=#,']+)\s*\{")
_END = re.compile(r"\s*\}")
_QUOTED = r"'[{}#<>|](?:[^']|'')*+(?:'|\Z)"
# Braces and what is in them, to the end of the text if they are not closed
_BRACES = re.compile(rf"\{{(?:[^{{}}']++|{_QUOTED}|''?|(?0))*+(?:\}}|\Z)")
_PART = re.compile(rf"{_QUOTED}|(?P<text>(?:''|'(?![{{}}#<>|])|[^'{{}}#])++)|[{{}}#]")
_TWICE = "&#39;"
_DEEPEST = 5  # branches in branches; those of plurals are copied at each level


@dataclass(frozen=True, slots=True)
class IcuText(MarkedText):
    """Text in a message, whose leaves stay as they are.

    Attributes:
        doubles: whether the message writes each apostrophe twice.
    """

    doubles: bool = False

    def written(self, html: str) -> str:
        """Returns text without leaves, given as HTML, as the message writes it. `&#39;` is an apostrophe twice."""
        quoted = []
        for text in map(unescape, html.split(_TWICE)):
            doubled = text.replace("'", "''") if self.doubles else re.sub(r"'(?=[{}#<>|]|\Z)", "''", text)
            quoted.append(re.sub(r"[{}]+", r"'\g<0>'", doubled))
        return "''".join(quoted)

    def restored(self, translation: str, alignment: Sequence[AlignedWords], optional: Container[str] = ()) -> str:
        """Returns the translation as the message writes it, given the alignment of its words."""
        parts = re.split(r"<([^<>]*)>", MarkedText.restored(self, translation, alignment, optional))
        return "".join(unescape(part) if i % 2 else self.written(part) for i, part in enumerate(parts))


def is_icu(text: str) -> bool:
    """Returns whether a text is a message with an argument that branches."""
    return bool(_BRANCHING.search(text))


def parse_icu(text: str, source_lang: str = "", target_lang: str = "") -> list[str | IcuText] | None:
    """Returns the texts of a message that are translated and what stands between them; None if no argument branches.

    A plural that lacks a category of the target language gets a copy of its branch `other`, unless the source language
    has the category too. An argument that cannot be understood stays as it is.
    """
    if not is_icu(text):
        return None
    known = plural_categories(source_lang)
    added = [category for category in plural_categories(target_lang) if category not in known]
    pieces, _ = _message(text, 0, added, 0)
    texts = [piece.text for piece in pieces if isinstance(piece, Token) and piece.kind == "text"]
    apostrophes = [mark for text in texts for mark in re.findall("''?", text)]
    doubles = bool(apostrophes) and "'" not in apostrophes
    parts: list[str | IcuText] = []
    for _, group in groupby(pieces, lambda piece: isinstance(piece, Token)):
        run = list(group)
        tokens = [piece for piece in run if isinstance(piece, Token)]
        if any(token.kind == "text" and any(map(str.isalpha, token.text)) for token in tokens):
            parts.append(IcuText(tokens, doubles))
        else:
            parts.append("".join(piece.text if isinstance(piece, Token) else piece for piece in run))
    return parts


def as_html(raw: str) -> str:
    """Returns text of a message as HTML, as `IcuText.written` reads it."""
    return escape(raw, quote=False).replace("''", _TWICE)


def _message(text: str, start: int, added: Sequence[str], depth: int) -> tuple[list[str | Token], int]:
    """Returns the skeleton and the tokens of a message that begins here.

    Also returns where it ends: at a brace that closes its branch, or at the end of the text.
    """
    pieces, position = list[str | Token](), start
    while (part := _PART.match(text, position)) and not (depth and part[0] == "}"):
        position = (_BRACES.match(text, position) or part).end()
        raw = text[part.start() : position]
        if branching := _BRANCHING.match(raw):
            pieces += _argument(raw, branching, added, depth) or [raw]
        elif part["text"]:
            pieces.append(Token("text", as_html(raw), text=raw))
        else:
            pieces.append(Token("leaf", f"<{escape(raw)}>", text=raw))
    return pieces, position


def _argument(raw: str, branching: re.Match[str], added: Sequence[str], depth: int) -> list[str | Token]:
    """Returns the pieces of an argument that branches; none if it cannot be understood."""
    branches, position = dict[str, list[str | Token]](), branching.end()
    while depth < _DEEPEST and (selector := _SELECTOR.match(raw, position)) and selector[1] not in branches:
        branch, end = _message(raw, selector.end(), added, depth + 1)
        branches[selector[1]] = [selector[0], *branch, "}"]
        position = end + 1
    if not branches or not _END.fullmatch(raw, position):
        return []
    pieces: list[str | Token] = [branching[0]]
    for name, (opening, *branch) in branches.items():
        is_copied = name == "other" and branching[1] == "plural"
        for category in [*(category for category in added if is_copied and category not in branches), name]:
            pieces += [str(opening).replace(name, category), *branch]
    return [*pieces, raw[position:]]
