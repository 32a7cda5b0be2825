"""Markdown: headings, paragraphs, list items, table cells, HTML blocks, and alternative texts of images.

Only the text of these is replaced, so that the file keeps its own way of writing everything else. Code, URLs, front
matter and reference definitions stay.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from html import escape, unescape
from itertools import count
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from nmt.documents.content import Content, Inline, Leaf, flattened, paired
from nmt.documents.document import Document, Passage, ReadOptions, decoded, encoded, has_letters, is_sound, lines_of
from nmt.errors import importing

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

_FRONT_MATTER = re.compile(r"(---|\+\+\+)[ \t]*\n(?:.*\n)*?\1[ \t]*(?:\n|\Z)")
# A task or the label of a footnote at the beginning of a paragraph.
_LABEL = re.compile(r"(?:\[[ xX]\]|\[\^[^\]\s]+\]:)\s+|")
# URLs and references to footnotes, in text.
_KEPT = re.compile(r"((?:https?://|www\.)[^\s<>]*[\w/]|\[\^[^\]\s]+\])")
_TAG = re.compile(r"""<(/?)([a-zA-Z][\w-]*+)(?:"[^"]*"|'[^']*'|[^<>"'])*+>""")
_SPECIAL = re.compile(r"[\\`*_\[\]<&~]")
# What may need another spelling in Markdown than in HTML.
_WRITTEN = re.compile(rf"&#?\w+;|{_SPECIAL.pattern}")
# The beginning of a line that is a block of its own, up to the place where a backslash prevents that.
_BLOCK = re.compile(r"\d{1,9}(?=[.)](?:\s|$))|(?=(?:[-+*]|#{1,6})(?:\s|$)|>|(?:=+|-+)\s*$)")


def read(data: bytes, options: ReadOptions) -> Document:
    """Returns the document in a file of Markdown."""
    text = decoded(data, options)
    lines, starts = lines_of(text)
    all_blocks = list(_blocks("\n".join(line for line, _ in lines)))
    blocks = [block for block in all_blocks if block.locate(lines, starts)]

    def write(translations: Sequence[str]) -> bytes:
        rest, written, end = iter(translations), list[str](), 0
        for block in blocks:
            written += [text[end : block.start], block.written(rest)]
            end = block.stop
        return encoded("".join([*written, text[end:]]), data)

    skipped = +Counter({"of a form that cannot be written": len(all_blocks) - len(blocks)})
    return Document([passage for block in blocks for passage in block.passages], write, skipped)


def _blocks(source: str) -> Iterator["_Block"]:
    parser, tokens, env = _parser(), list["Token"](), dict[str, Any]()
    front = _FRONT_MATTER.match(source)
    matter = source[: front.end()] if front else ""
    parser.block.parse("\n" * matter.count("\n") + source[len(matter) :], parser, env, tokens)
    parse, parent, cells = partial(_pieces, parser, env), "", dict[int, int]()
    for token in tokens:
        kind = parent if token.type == "inline" else token.type
        text = _TAG.sub("", token.content) if kind == "html_block" else token.content
        if token.map and token.type in ("inline", "html_block") and has_letters(text):
            yield _Block(parse, token.content.removesuffix("\n").split("\n"), token.map[0], kind, cells)
        parent = token.type


@dataclass
class _Block:
    """A block whose text is replaced.

    Attributes:
        parse: parses inline content.
        source: the lines of the block without what they begin with.
        first: the number of its first line, from 0.
        kind: the token around it, or html_block.
        cells: the end of the last cell that was located in each line.
        start, stop: where its content is in the file, once it was located.
        prefixes: what its lines begin with.
    """

    parse: Callable[[str], Iterator["_Piece"]]
    source: list[str]
    first: int
    kind: str
    cells: dict[int, int]
    start: int = 0
    stop: int = 0
    prefixes: list[str] = field(default_factory=list)
    line_end: str = "\n"

    @property
    def is_cell(self) -> bool:
        return self.kind in ("th_open", "td_open")

    @property
    def content(self) -> "_Content":
        """The inline content. It is made when it is needed, because it takes much memory."""
        return _Content(self.parse, "\n".join(self.source))

    @property
    def passages(self) -> list[Passage]:
        return [Passage("\n".join(self.source), "html")] if self.kind == "html_block" else self.content.passages

    def locate(self, lines: Sequence[tuple[str, str]], starts: Sequence[int]) -> bool:
        """Returns whether the content can be replaced; finds it in the lines of the file.

        An HTML block cannot if a tag in it has no counterpart.
        """
        for row, source in enumerate(self.source, self.first):
            written = source.replace("|", "\\|") if self.is_cell else source
            line, _ = lines[row]
            column = line.find(written, self.cells.get(row, 0)) if self.is_cell else line.rfind(written)
            if column < 0:
                return False
            self.prefixes.append(line[:column])
            self.stop = starts[row] + column + len(written)
            if self.is_cell:
                self.cells[row] = column + len(written)
        self.start = starts[self.first] + len(self.prefixes[0])
        self.line_end = lines[self.first][1]
        return self.kind != "html_block" or is_sound("\n".join(self.source))

    def written(self, translations: Iterator[str]) -> str:
        """Returns the content with the next translations."""
        text = next(translations) if self.kind == "html_block" else self.content.written(translations)
        if self.is_cell:
            return text.replace("|", "\\|")
        lines = text.split("\n")
        if self.kind == "paragraph_open":
            lines = [new for line in lines for new in self._wrapped(line)]
        prefixes = ["", *self.prefixes[1:], *self.prefixes[-1:] * len(lines)]
        return self.line_end.join(prefix + line for prefix, line in zip(prefixes, lines, strict=False))

    def _wrapped(self, line: str) -> list[str]:
        """Returns lines as wide as those of the source, if it has several. None of them begins a block of its own."""
        block = _BLOCK.match(line)
        if block and line not in self.source:
            line = f"{block[0]}\\{line[block.end() :]}"
        width = max(map(len, self.source))
        if len(self.source) == 1 or len(line) <= width or "](<" in line:  # which has a target without line breaks
            return [line]
        lines: list[str] = []
        for wrapped in wrap(line, width, break_long_words=False, break_on_hyphens=False):
            if lines and _BLOCK.match(wrapped):
                lines[-1] += f" {wrapped}"
            else:
                lines.append(wrapped)
        lines[-1] += line[len(line.rstrip()) :]  # spaces that break a line
        return lines


class _Content:
    """Inline content, and its images."""

    def __init__(self, parse: Callable[[str], Iterator["_Piece"]], source: str) -> None:
        self.source, self._parse = source, parse
        self._references: dict[str, str] = {}  # how the source writes a character, by its reference in HTML
        self._images: dict[str, _Content] = {}  # alternative texts, by image
        self._shortcuts: dict[str, str] = {}  # how the source writes links and images that are found by their text
        label = _LABEL.match(source)
        self._label = label[0] if label else ""
        content = list[Inline]()
        for piece in parse(source[len(self._label) :]):
            if piece.kind == "image" and piece.shown:
                self._images[piece.whole] = _Content(parse, piece.shown)
            if piece.label is not None:
                end = "[]" if piece.raw.endswith("[]") else ""
                self._shortcuts[f"[{piece.label}][{piece.label}]"] = f"[{piece.label}]{end}"
            match piece.kind:
                case "text":
                    text = _SPECIAL.sub(lambda match: self._reference(match[0], match[0]), piece.raw)
                    content.append(text.replace(">", "&gt;"))
                case "char":
                    content.append(self._reference(piece.shown, piece.raw))
                case "open" | "close" | "end":
                    content.append(Leaf(piece.whole, kind=piece.kind, key=piece.shown))
                case _:
                    content.append(Leaf(piece.whole, escape(piece.shown) if piece.kind == "leaf" else ""))
        self._content = Content(paired(content))

    def _reference(self, character: str, raw: str) -> str:
        """Returns a reference to a character in HTML. The number of zeros in it tells how the source writes it."""
        for zeros in count():
            reference = f"&#{'0' * zeros}{ord(character)};"
            if self._references.setdefault(reference, raw) == raw:
                break
        return reference

    @property
    def passages(self) -> list[Passage]:
        """What is translated: the content, and then the images."""
        return self._content.passages + [passage for image in self._images.values() for passage in image.passages]

    def written(self, translations: Iterator[str]) -> str:
        """Returns the content with the next translations.

        If its markup would be another one, all special characters are escaped.
        """
        content = list(flattened(self._content.translated(translations), lambda start: start.item[0] in "[<"))
        images = {
            raw: f"![{image.written(translations)}{raw[2 + len(image.source) :]}" for raw, image in self._images.items()
        }
        markup = [images.get(leaf.item, leaf.item) for leaf in content if isinstance(leaf, Leaf)]

        def raw_of(is_cautious: bool, html: re.Match[str]) -> str:
            character = unescape(html[0])
            is_special = bool(_SPECIAL.fullmatch(character))
            raw = self._references.get(html[0], f"\\{character}" if is_special else character)
            return f"\\{raw}" if is_cautious and is_special and raw == character else raw

        for is_cautious in (False, True):
            spelt, rest = partial(_WRITTEN.sub, partial(raw_of, is_cautious)), iter(markup)
            text = "".join(spelt(inline) if isinstance(inline, str) else next(rest) for inline in content)
            if markup == [piece.whole for piece in self._parse(text) if piece.kind not in ("text", "char")]:
                break
        for full, short in self._shortcuts.items():
            text = text.replace(full, short)
        return self._label + text


class _Piece(NamedTuple):
    """A part of inline content.

    Attributes:
        kind: text, char (a character that is escaped), image, leaf (other markup), open or close (the ends of a pair),
            or end (of a line, which separates texts).
        shown: the character, the name of the pair, the text of a leaf, or the alternative text of an image.
        label: the label of a link or image that is found by its text.
    """

    kind: Literal["text", "char", "image", "leaf", "open", "close", "end"]
    raw: str
    shown: str = ""
    label: str | None = None

    @property
    def whole(self) -> str:
        """The markup with the label of a link or image, which stays if its text is translated."""
        return self.raw if self.label is None else f"{self.raw.removesuffix('[]')}[{self.label}]"


def _pieces(parser: "MarkdownIt", env: dict[str, Any], content: str) -> Iterator[_Piece]:
    tokens: list[Token] = []
    parser.inline.parse(content, parser, env, tokens)
    end, labels = 0, list[int]()
    for token in tokens:
        start, stop = token.meta.get("span", (0, 0))
        start -= token.type == "strong_open"  # the recorded span covers only one of the two characters
        stop += token.type == "strong_close"
        if stop <= end or token.type in ("text", "softbreak"):
            continue
        if token.type == "hardbreak":
            start = end + len(content[end:start].rstrip(" "))
        yield from _text_pieces(content[end:start])
        if token.type == "link_open":
            labels.append(stop)
        label = content[labels.pop() : start] if token.type == "link_close" else token.content
        yield _piece(token, content[start:stop], label)
        end = stop
    yield from _text_pieces(content[end:])


def _text_pieces(text: str) -> Iterator[_Piece]:
    for i, raw in enumerate(_KEPT.split(text)):
        if raw:
            yield _Piece("leaf" if i % 2 else "text", raw, raw)


def _piece(token: "Token", raw: str, label: str) -> _Piece:
    is_shortcut = raw.removeprefix(f"![{label}") in ("]", "][]")
    match token.type:
        case "html_inline":
            tag = _TAG.fullmatch(raw)
            if not tag or tag[2].lower() == "br":
                return _Piece("end" if tag else "leaf", raw)
            return _Piece("close" if tag[1] else "open", raw, tag[2])
        case "text_special":
            return _Piece("char" if len(token.content) == 1 else "leaf", raw, token.content)
        case "image":
            return _Piece("image", raw, label, label if is_shortcut else None)
        case "link_close":
            return _Piece("close", raw, token.tag, label if is_shortcut else None)
        case "link_open" if token.markup == "autolink":
            return _Piece("leaf", raw, raw[1:-1])
        case "hardbreak":
            return _Piece("end", raw)
        case "code_inline":
            return _Piece("leaf", raw, token.content)
    return _Piece("open" if token.nesting > 0 else "close", raw, token.tag)


def _parser() -> "MarkdownIt":
    """Returns a parser whose inline tokens have the span in the text that they are from as `meta["span"]`."""
    with importing("markdown_it", "Markdown", "markdown-it-py"):
        from markdown_it import MarkdownIt
        from markdown_it.rules_block import reference

    def definition(state: Any, line: int, last: int, silent: bool) -> bool:
        is_footnote = state.src.startswith("[^", state.bMarks[line] + state.tShift[line])
        return not is_footnote and reference(state, line, last, silent)

    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    parser.block.ruler.at("reference", definition)
    parser.inline.ruler2.disable("fragments_join")
    for rule in parser.inline.ruler.__rules__:
        if rule.enabled:
            parser.inline.ruler.at(rule.name, _recording(rule.name, rule.fn))
    return parser


def _recording(name: str, rule: Callable[..., bool]) -> Callable[..., bool]:
    """Returns a rule of the parser that also notes the spans of its tokens."""

    def run(state: "StateInline", silent: bool) -> bool:
        start, known, has_text = state.pos, len(state.tokens), bool(state.pending)
        if not rule(state, silent):
            return False
        added = state.tokens[known:]
        if has_text and added and added[0].type == "text":  # the text before the markup
            del added[0]
        if name == "link" and added:
            middle = state.md.helpers.parseLinkLabel(state, start, True)
            added[0].meta["span"], added[-1].meta["span"] = (start, start + 1), (middle, state.pos)
            return True
        for token in added:
            stop = start + len(token.content) if name in ("emphasis", "strikethrough") else state.pos
            token.meta["span"] = (start, stop)
            start = stop if name in ("emphasis", "strikethrough") else start
        return True

    return run
