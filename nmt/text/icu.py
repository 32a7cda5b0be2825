"""Messages of ICU MessageFormat whose arguments have branches, such as `{n, plural, one {a dog} other {# dogs}}`.

What is translated is the text around such arguments and in their branches. Arguments without branches, `#` and
what apostrophes quote stay. See https://unicode-org.github.io/icu/userguide/format_parse/messages/.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Literal, NamedTuple

import regex as re

from nmt.text.languages import plural_categories
from nmt.text.marked import MarkedText, Token, merged
from nmt.text.protected import Protected
from nmt.text.words import has_letters

_BRANCHING = re.compile(r"\{\s*[\w.-]+\s*,\s*(plural|selectordinal|select)\s*,\s*(?:offset\s*:\s*\d+)?")
_SELECTOR = re.compile(r"\s*(=\d+|[^\s{}=#,']+)\s*\{")
_END = re.compile(r"\s*\}")
_QUOTED = r"'[{}#<>|](?:[^']|'')*+(?:'|\Z)"
# Braces and what is in them, to the end of the text if they are not closed
_BRACES = re.compile(rf"\{{(?:[^{{}}']++|{_QUOTED}|''?|(?0))*+(?:\}}|\Z)")
_PART = re.compile(rf"{_QUOTED}|(?P<text>(?:''|'(?![{{}}#<>|])|[^'{{}}#])++)|[{{}}#]")
_DEEPEST = 5  # branches in branches; those of plurals are copied at each level


class IcuPiece(NamedTuple):
    """A part of a message: text, what stays in a text, or the skeleton."""

    kind: Literal["text", "leaf", "skeleton"]
    raw: str
    start: int  # where it is in the message, or -1 if the message lacks it

    @property
    def token(self) -> Token:
        """The piece as a token."""
        if self.kind != "text":
            return Token("leaf", self.raw if self.kind == "leaf" else "", self.raw)
        written = re.findall("''|.", self.raw, re.DOTALL)
        spellings = [each if each == "''" else None for each in written]
        return Token("text", "".join(each[0] for each in written), spellings)


class IcuMessage(NamedTuple):
    """A message with an argument that branches."""

    pieces: Sequence[IcuPiece]
    doubles: bool  # whether it writes each apostrophe twice

    def content(self, protected: Protected) -> list[Token | MarkedText]:
        """Returns the texts that are translated, and what stands between them."""
        content: list[Token | MarkedText] = []
        for is_skeleton, group in groupby(self.pieces, lambda piece: piece.kind == "skeleton"):
            pieces = list(group)
            tokens = [piece.token for piece in pieces]
            is_text = not is_skeleton and any(piece.kind == "text" and has_letters(piece.raw) for piece in pieces)
            content += [MarkedText(tokens, protected)] if is_text else tokens
        return content

    def written(self, tokens: Iterable[Token]) -> str:
        """Returns tokens as the message writes them."""
        return "".join(self.written_text(token) if token.kind == "text" else token.raw for token in merged(tokens))

    def written_text(self, token: Token) -> str:
        """Returns text as the message writes it. Where the source has an apostrophe twice, it stays so."""
        written, spellings = "", token.item or [None] * len(token.text)
        for is_twice, pairs in groupby(zip(token.text, spellings, strict=True), lambda pair: pair[1] is not None):
            text = "".join(spelling or character for character, spelling in pairs)
            if not is_twice:
                text = text.replace("'", "''") if self.doubles else re.sub(r"'(?=[{}#<>|]|\Z)", "''", text)
                text = re.sub(r"[{}]+", r"'\g<0>'", text)
            written += text
        return written


def parse_icu(
    text: str, source_lang: str = "", target_lang: str = "", *, must_branch: bool = True
) -> IcuMessage | None:
    """Returns a message; None if no argument of the text branches, but must.

    A plural that lacks a category of the target language gets a copy of its branch `other`, unless the source
    language has the category too. An argument that cannot be understood stays as it is.
    """
    if must_branch and not _BRANCHING.search(text):
        return None
    known = plural_categories(source_lang)
    added = [category for category in plural_categories(target_lang) if category not in known]
    pieces, _ = _message(text, 0, len(text), added, 0)
    apostrophes = [mark for piece in pieces if piece.kind == "text" for mark in re.findall("''?", piece.raw)]
    return IcuMessage(pieces, bool(apostrophes) and "'" not in apostrophes)


def _message(text: str, start: int, stop: int, added: Sequence[str], depth: int) -> tuple[list[IcuPiece], int]:
    """Returns the pieces of a message that begins at `start`.

    Also returns where it ends: at a brace that closes its branch, or at `stop`.
    """
    pieces, position = list[IcuPiece](), start
    while (part := _PART.match(text, position, stop)) and not (depth and part[0] == "}"):
        begin, position = part.start(), (_BRACES.match(text, position, stop) or part).end()
        raw = text[begin:position]
        if branching := _BRANCHING.match(text, begin, position):
            pieces += _argument(text, branching, position, added, depth) or [IcuPiece("skeleton", raw, begin)]
        else:
            pieces.append(IcuPiece("text" if part["text"] else "leaf", raw, begin))
    return pieces, position


def _argument(text: str, branching: re.Match[str], stop: int, added: Sequence[str], depth: int) -> list[IcuPiece]:
    """Returns the pieces of an argument that branches and ends at `stop`; none if it cannot be understood."""
    branches, position = dict[str, list[IcuPiece]](), branching.end()
    while depth < _DEEPEST and (selector := _SELECTOR.match(text, position, stop)) and selector[1] not in branches:
        branch, end = _message(text, selector.end(), stop, added, depth + 1)
        opening = IcuPiece("skeleton", selector[0], position)
        branches[selector[1]] = [opening, *branch, IcuPiece("skeleton", text[end : end + 1], end)]
        position = end + 1
    if not branches or not _END.fullmatch(text, position, stop):
        return []
    pieces = [IcuPiece("skeleton", branching[0], branching.start())]
    for name, (opening, *branch) in branches.items():
        if name == "other" and branching[1] == "plural":
            for category in (category for category in added if category not in branches):
                pieces += [IcuPiece("skeleton", opening.raw.replace(name, category), -1), *branch]
        pieces += [opening, *branch]
    return [*pieces, IcuPiece("skeleton", text[position:stop], position)]
