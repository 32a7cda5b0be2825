"""Marked-up text of any format as tokens, and the texts in it that are translated.

Text in tokens is plain text. How a format writes it is the concern of that format alone.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, groupby, pairwise
from typing import Any, Literal, NamedTuple

import regex as re

from nmt.errors import NmtError
from nmt.text.protected import Protected, ProtectedSpan, Span, unprotected
from nmt.text.words import RAW_WORD, is_blank

_LINE = re.compile("[^\n]+")
_SPACE, _CHARACTER = re.compile(r"\s+", re.ASCII), re.compile(r"\s+|\S", re.ASCII)
# Elements that may be within a word, and those without a name, such as comments. XLIFF has most of them.
_IN_WORD = re.compile(r"[gx]\d*|bpt|bx|cp|ec|ept|ex|it|mrk|ph|sc|sub|sup|wbr|")
# Characters that no space separates from the word before them, or behind them.
_CLOSING, _OPENING = ".,;:!?…)]}»”’'/-–_%", "([{«“„‘¿¡/-–_@#"
# Each change between words in an element and others may close and open all elements around it again.
_DEEPEST = 100

# "hidden" markup separates no words, such as a comment; a "mark" may. A "space" separates words. An "end" separates
# texts, such as a tab, and so does a "break", such as the end of a line, unless a lower-case letter follows it. "open"
# and "close" are the ends of an element whose other end is not known yet. "protected" is a protected word in text.
# Text of a translation that is likely to be wrong is "doubtful".
Role = Literal["mark", "hidden", "space", "break", "end", "open", "close", "protected", "doubtful"]


class Token(NamedTuple):
    """A token of marked-up text. `a <b>dog</b><br>` is text, start, text, end and leaf.

    Attributes:
        kind: start and end are those of an element. A leaf has no content that is translated.
        text: of text, what a reader sees; of a leaf, what stands for it in a sentence.
        item: what the format writes, in a form of its own. For text, how it writes each character, or None for
            those written as usual; None if that holds for all.
        name: of an element.
        kept_by: for each attribute around it that decides on translation, whether it forbids it.
        role: what a leaf does to the text around it, or whether a text is doubtful.
        key: leaves with the same key keep their order, such as both ends of a bookmark. An "open" and a "close"
            with the same key are the ends of one element.
        around: the spaces before and behind a leaf in the source, as texts, if the translation must have the same.
    """

    kind: Literal["start", "end", "text", "leaf"]
    text: str = ""
    item: Any = None
    name: str = ""
    kept_by: Mapping[str, bool] = {}
    role: Role = "mark"
    key: object = None
    around: tuple[Any, Any] | None = None

    @property
    def is_kept(self) -> bool:
        """Whether it is in an element that is not translated."""
        return any(self.kept_by.values())

    @property
    def is_visible_text(self) -> bool:
        """Whether it is text that is not blank."""
        return self.kind == "text" and not is_blank(self.text)

    @property
    def raw(self) -> str:
        """How the source writes it, in a format that is text."""
        if self.kind != "text":
            return self.item or ""
        both = zip(self.text, self.item or self.text, strict=True)
        return "".join(character if spelling is None else spelling for character, spelling in both)

    def cut(self, start: int, stop: int | None = None) -> "Token":
        """Returns the text between two of its characters."""
        return self._replace(text=self.text[start:stop], item=self.item and self.item[start:stop])

    def stripped(self, spaces: str | None = None, *, left: bool = True, right: bool = True) -> "Token":
        """Returns a text without the given characters at its ends, by default all that are spaces."""
        start = len(self.text) - len(self.text.lstrip(spaces)) if left else 0
        return self.cut(start, max(start, len(self.text.rstrip(spaces)) if right else len(self.text)))


GAP = Token("text", " ", [""])  # a space that the source lacks


def merged(tokens: Iterable[Token]) -> Iterator[Token]:
    """Yields tokens in which adjacent texts of one role are one. Empty texts are left out."""
    for role, group in groupby(tokens, lambda token: token.role if token.kind == "text" else None):
        if role is None:
            yield from group
        elif texts := [token for token in group if token.text]:
            spellings = [each for token in texts for each in token.item or [None] * len(token.text)]
            is_spelt = any(token.item for token in texts)
            yield Token("text", "".join(token.text for token in texts), spellings if is_spelt else None, role=role)


class MarkedText:
    """Text that is translated as a whole, as nested tokens.

    Attributes:
        source: what is translated: one line, or several if the text has br elements.
        protected: what of `source` stays as it is.
    """

    __slots__ = ("_edges", "_located", "protected", "source", "tokens")

    def __init__(self, tokens: Sequence[Token], protected: Protected) -> None:
        self.tokens = tokens
        source, kept = "", list[Span]()
        # Where each token begins in the source. Spaces that are left out there count: a token begins before them.
        starts: list[int] = []
        for token in tokens:
            is_text = token.kind == "text"
            shown = _SPACE.sub(" ", token.text) if is_text else " ".join(RAW_WORD.findall(token.text)) or token.text
            is_kept = not is_text and bool(shown.strip())
            if shown[:1] == "\n":
                source = source.rstrip(" ")
            length = len(shown)
            if not is_kept and source[-1:] in " \n":
                shown = shown.lstrip(" " if source else None)
            starts.append(len(source) - length + len(shown))
            kept += [(len(source), len(source) + len(shown))] if is_kept else []
            source += shown
        self.source = source = source[: max(len(source.rstrip()), kept[-1][1] if kept else 0)]
        self._located = list(zip(tokens, starts, [*starts[1:], len(source)], strict=True))
        # Where elements begin or end in the source
        self._edges = [start for token, start, _ in self._located if token.kind != "text" and not token.text]
        for token, start, end in self._located:
            edges = (source[i - 1 : i + 1] for i in (start, end) if i)
            # A protected word that touches other text may match only without that text.
            if token.kind == "text" and any(len(edge) == 2 and not _SPACE.search(edge) for edge in edges):
                kept += [(start + a, start + b) for a, b, _ in protected.spans(_SPACE.sub(" ", token.text))]
        self.protected: list[ProtectedSpan] = []
        kept.sort()
        for start, stop in (line.span() for line in _LINE.finditer(source)):
            inside = kept[bisect_left(kept, (start, start)) : bisect_left(kept, (stop, stop))]
            others = [(a - start, b - start) for a, b in inside if b <= stop]
            spans = protected.spans(source[start:stop], others)
            self.protected += [ProtectedSpan(start + a, start + b, kind) for a, b, kind in spans]

    def has_elements(self, start: int, stop: int) -> bool:
        """Returns whether elements begin or end in a part of the source that has no spaces at its ends."""
        return bisect_right(self._edges, start) < bisect_left(self._edges, stop)

    def with_protected_leaves(self) -> Iterator[Token]:
        """Yields the tokens, with a leaf for each protected word that is in one text."""
        begins = [span.start for span in self.protected]
        for token, start, end in self._located:
            first, last = (bisect_left(begins, edge) for edge in (start, end))
            spans = self.protected[first:last] if token.kind == "text" else []
            ends = [0, *(character.end() for character in _CHARACTER.finditer(token.text))] if spans else []
            position = 0
            for span in spans:
                if span.stop - start < len(ends):
                    begin, stop = ends[span.start - start], ends[span.stop - start]
                    yield token.cut(position, begin)
                    yield Token("leaf", span.word(self.source), token.cut(begin, stop), role="protected")
                    position = stop
            yield token.cut(position) if position else token


def marked_texts(tokens: Sequence[Token], protected: Protected, *, is_whole: bool = False) -> list[Token | MarkedText]:
    """Returns the texts of nested tokens that are translated, and the tokens between them.

    There is a gap between words of elements that only touch each other. If all words are in elements, each of these is
    a text of its own, unless the text is whole. Text of which everything is blank or stays is not translated.

    Raises:
        NmtError: text is in too many elements.
    """
    if not tokens:
        return []
    depths = list(accumulate((token.kind == "start") - (token.kind == "end") for token in tokens))
    if _DEEPEST in depths:
        raise NmtError(
            f"{tokens[depths.index(_DEEPEST)].item!s:.40} is in {_DEEPEST} elements around the same text; nest fewer "
            f"elements, or leave out the markup"
        )
    is_whole |= any(depth == 0 and token.is_visible_text for depth, token in zip(depths, tokens, strict=True))
    cuts = {
        max((n for n in range(i, j) if _ends(tokens, n)), default=i) + 1  # behind the last end tag
        for i, j in pairwise(i for i, token in enumerate(tokens) if token.text)
        if _separates(tokens[i : j + 1])
    }
    texts: list[list[Token]] = [[]]
    for i, token in enumerate(tokens):
        if i in cuts and (is_whole or depths[i - 1]):
            texts[-1].append(GAP)
        elif i in cuts:
            texts.append([])
        texts[-1].append(token)
    content: list[Token | MarkedText] = []
    for text in texts:
        marked = MarkedText(text, protected)
        content += text if is_blank(unprotected(marked.source, marked.protected)) else [marked]
    return content


def _ends(tokens: Sequence[Token], i: int) -> bool:
    """Returns whether a token ends an element with content."""
    return (tokens[i].kind == "end" and tokens[i - 1].kind != "start") or tokens[i].role == "close"


def _separates(tokens: Sequence[Token]) -> bool:
    """Returns whether the markup between two texts separates words, although there is no space."""
    left, right = tokens[0].text[-1], tokens[-1].text[0]
    if left.isspace() or right.isspace() or left in _OPENING or right in _CLOSING:
        return False
    begins = right.isupper() and (left.islower() or left in ".:;!?…")
    has_end = False
    for i, token in enumerate(tokens):
        if token.kind == "text" or (not begins and _IN_WORD.fullmatch(token.name)):
            continue
        if i == 0 or _ends(tokens, i):
            has_end = True
        elif has_end or (token.kind == "leaf" and not token.text and token.role != "hidden"):
            return True
    return False
