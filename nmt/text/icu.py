"""Messages of ICU MessageFormat whose arguments have branches, such as `{n, plural, one {a dog} other {# dogs}}`.

What is translated is the text around such arguments and in their branches. Arguments without branches, `#` and what
apostrophes quote stay. See https://unicode-org.github.io/icu/userguide/format_parse/messages/.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape, unescape
from itertools import groupby

from nmt.text.languages import base_language
from nmt.text.markup_writing import MarkedText, Token
from nmt.text.words import AlignedWords

_BRANCHING = re.compile(r"\{\s*[\w.-]+\s*,\s*(?:plural|selectordinal|select)\s*,")
_ARGUMENT = re.compile(
    r"\{\s*[\w.-]+\s*(?:,\s*(?P<kind>plural|selectordinal|select)\s*,\s*(?:offset\s*:\s*\d+)?|,[^{}]*|(?=\}))"
)
_SELECTOR = re.compile(r"\s*(?P<name>=\d+|[^\s{}=#,']+)\s*\{")
_END = re.compile(r"\s*\}")
_PART = re.compile(r"(?P<kept>'[{}#<>|](?:[^']|'')*+(?:'|\Z))|(?P<text>(?:''|'(?![{}#<>|])|[^'{}#])++)|[{}#]")
_TWICE = "&#39;"
_DEEPEST = 20  # branches in branches
# The plural categories of languages beside `other`, from CLDR 48; most of the others have `one`.
_CATEGORIES = {
    "bo id ig ja jv km ko lo ms my su th to vi wo yo yue zh": "",
    "lv": "zero one",
    "he se": "one two",
    "bs hr ro sr": "one few",
    "ca es fr it pt": "one many",
    "be cs lt pl ru sk uk": "one few many",
    "dsb gd hsb sl": "one two few",
    "br ga gv mt": "one two few many",
    "ar cy": "zero one two few many",
}


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

    def restored(self, translation: str, alignment: Sequence[AlignedWords]) -> str:
        """Returns the translation as the message writes it, given the alignment of its words."""
        parts = re.split(r"<([^<>]*)>", MarkedText.restored(self, translation, alignment))
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
    added = [category for category in _categories(target_lang) if category not in _categories(source_lang)]
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


def _categories(lang: str) -> list[str]:
    base = base_language(lang) if lang else "en"
    return next((names for langs, names in _CATEGORIES.items() if base in langs.split()), "one").split()


def _kept(raw: str) -> Token:
    return Token("leaf", f"<{escape(raw)}>", text=raw)


def as_html(raw: str) -> str:
    """Returns text of a message as HTML, as `IcuText.written` reads it."""
    return escape(raw, quote=False).replace("''", _TWICE)


def _message(text: str, start: int, added: Sequence[str], depth: int) -> tuple[list[str | Token], int]:
    """Returns the skeleton and the tokens of a message.

    Also returns where it ends: at a brace that closes its branch, or at the end of the text.

    Raises:
        ValueError: an argument in a branch cannot be understood.
    """
    if depth > _DEEPEST:
        raise ValueError
    pieces, position = list[str | Token](), start
    while part := _PART.match(text, position):
        if part[0] == "}" and depth:
            break
        position = part.end()
        if part[0] == "{":
            try:
                inner, position = _argument(text, part.start(), added, depth)
            except ValueError:
                if depth:
                    raise
                position = _closed(text, part.start())
                raw = text[part.start() : position]
                inner = [raw if _BRANCHING.search(raw) else _kept(raw)]
            pieces += inner
        else:
            pieces.append(Token("text", as_html(part[0]), text=part[0]) if part["text"] else _kept(part[0]))
    return pieces, position


def _argument(text: str, start: int, added: Sequence[str], depth: int) -> tuple[list[str | Token], int]:
    """Returns the pieces of the argument that begins here, and where it ends."""
    argument = _ARGUMENT.match(text, start)
    if not argument:
        raise ValueError
    if not argument["kind"]:
        end = _closed(text, start)
        return [_kept(text[start:end])], end
    branches, position = list[tuple[str, str, list[str | Token]]](), argument.end()
    while selector := _SELECTOR.match(text, position):
        branch, end = _message(text, selector.end(), added, depth + 1)
        branches.append((selector["name"], selector[0], branch))
        position = end + 1
    closing = _END.match(text, position)
    if not branches or not closing:
        raise ValueError
    names = [name for name, _, _ in branches]
    pieces: list[str | Token] = [argument[0]]
    for name, opening, branch in branches:
        is_copied = name == "other" and argument["kind"] == "plural"
        copies = [category for category in added if category not in names] if is_copied else []
        for selected in (*copies, name):
            pieces += [opening.replace(name, selected), *branch, "}"]
    return [*pieces, closing[0]], closing.end()


def _closed(text: str, start: int) -> int:
    """Returns where the brace that opens here is closed, or the end of the text."""
    depth, position = 0, start
    while part := _PART.match(text, position):
        position = part.end()
        depth += (part[0] == "{") - (part[0] == "}")
        if not depth:
            break
    return position
