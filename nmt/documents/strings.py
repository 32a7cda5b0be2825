"""Strings that programs show: text with tags, references of HTML, placeholders, and arguments of ICU messages."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from html import escape, unescape

from nmt.documents.content import Content, Inline, Leaf, flattened, paired
from nmt.documents.document import Passage, ReadOptions
from nmt.text.icu import as_html, parse_icu
from nmt.text.protected import Protected

_MARK = re.compile(
    r"(?P<tag><(?P<end>/?)(?P<name>\d+|[a-zA-Z][^\s<>/]*+)(?P<rest>(?:\"[^\"]*\"|'[^']*'|[^<>\"'])*+)>)"
    r"|(?P<line>\s*[\n\r\t]\s*)|&(?:[a-zA-Z]\w*|\#\d+|\#[xX][\dA-Fa-f]+);|(?P<control>[\0-\x1f\x7f\ufffe\uffff])"
)
_BLOCKS = "div h1 h2 h3 h4 h5 h6 hr li ol p table td th tr ul"


class ProgramString:
    """A string that a program shows. Tags, references, placeholders and the skeleton of a message stay as they are."""

    def __init__(self, text: str, options: ReadOptions) -> None:
        self._text = text
        self._raw_of: Callable[[str], str] = unescape
        content, parts = list[Inline](), parse_icu(text, options.source_lang, options.target_lang)
        for part in parts or ():
            if isinstance(part, str):
                content.append(Leaf(part, kind="end"))
                continue
            self._raw_of = part.written
            for token in part.tokens:
                leaf = Leaf(token.text, escape(token.text))
                content += _inlines(token.text, options.protected, as_html) if token.kind == "text" else [leaf]
        if parts is None:
            content += _inlines(text, options.protected, partial(escape, quote=False))
        self._content = Content(paired(content))

    @property
    def passages(self) -> list[Passage]:
        """What is translated."""
        return self._content.passages

    def written(self, translations: Iterator[str]) -> str:
        """Returns the string with the next translations. It stays as it is if its letters do."""
        inlines = flattened(self._content.translated(translations))
        text = "".join(self._raw_of(inline) if isinstance(inline, str) else inline.item for inline in inlines)
        return self._text if "".join(text.split()) == "".join(self._text.split()) else text


def _inlines(text: str, protected: Protected, to_html: Callable[[str], str]) -> Iterator[Inline]:
    start = 0
    leaves = [(match.span(), _leaf(match)) for match in _MARK.finditer(text)]
    leaves += [(span, Leaf(text[slice(*span)], escape(text[slice(*span)]))) for span in protected.spans(text)]
    for (begin, stop), leaf in sorted(leaves, key=lambda each: each[0][0]):
        if begin >= start:
            yield to_html(text[start:begin])
            yield leaf
            start = stop
    yield to_html(text[start:])


def _leaf(match: re.Match[str]) -> Leaf:
    raw, name = match[0], (match["name"] or "").lower()
    if match["line"] or name == "br" or name in _BLOCKS.split():
        return Leaf(raw, kind="end")
    if match["end"] or match["rest"]:
        return Leaf(raw, kind="close" if match["end"] else "open", key=name)
    if match["tag"]:
        return Leaf(raw, escape(raw), "open", name)
    return Leaf(raw, "" if match["control"] else escape(raw))
