"""Markdown: headings, paragraphs, list items, table cells, HTML blocks, alternative texts of images, and titles.

Only the text of these is replaced, so that the file keeps its own way of writing everything else. Code, math, URLs,
front matter but its title and description, reference definitions, and the marks of extensions stay.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from html import escape, unescape
from itertools import accumulate, count
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import unquote

from nmt.documents.content import Content, Inline, Leaf, flattened, paired
from nmt.documents.document import (
    Document,
    Passage,
    ReadOptions,
    decoded,
    encoded,
    has_letters,
    is_sound,
    lines_of,
    literal,
)
from nmt.errors import importing
from nmt.text.protected import Protected, Span

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

_FRONT_MATTER = re.compile(r"(---|\+\+\+)[ \t]*\n(?:.*\n)*?\1[ \t]*(?:\n|\Z)")
# A value on one line that needs no knowledge of YAML or TOML to be read.
_VALUE = re.compile(
    r"""(?:title|description)[ \t]*[:=][ \t]+(?P<value>"(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|\w(?:(?!: | #).)*?)[ \t]*"""
)
_NO_TEXT = re.compile(r"true|false|yes|no|on|off|null", re.IGNORECASE)
_TASK = re.compile(r"\[[ xX]\]\s+|")
_TAG = re.compile(r"""<(/?)([a-zA-Z][\w.-]*+)(?:"[^"]*"|'[^']*'|[^<>"'])*+>""")
_UNTRANSLATED = re.compile(
    r"""<(?:(?:code|kbd|pre|samp|script|style|var)[\s>]|.*\s(?:translate=["']?no\b|class=["']?[^"'>]*\bnotranslate\b))""",
    re.IGNORECASE | re.DOTALL,
)
_VOID = "area base br col embed hr img input link meta source track wbr"
# The attributes of a tag of JSX, with expressions.
_JSX = r"""(?:[^<>{}"'\n]|\n(?![ \t]*\n)|"[^"]*"|'[^']*'|\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\})*+"""
_ATTRIBUTE = r"""(?:[.#][\w:-]+|[\w:-]+=(?:"[^"]*"|'[^']*'|[^\s{}"']+))"""
_ATTRIBUTES = rf"\{{:?[ \t]*{_ATTRIBUTE}(?:[ \t]+{_ATTRIBUTE})*+[ \t]*\}}"
# What stays in text besides protected words: references to footnotes, attributes, tags with expressions, and math.
_KEPT = re.compile(
    rf"\[\^[^\]\s]+\]|{_ATTRIBUTES}|\{{/\*.*?\*/\}}|</?[A-Z][\w.]*(?=[^<>]*=\{{){_JSX}>"
    r"|(?<![\\$\w])(?:\$(?=[^\s$])(?P<a>[^$`\n]*)(?<![\s\\])\$(?![\w$])|\$\$(?P<b>[^$`\n]+)\$\$)"
    r"|\\\((?P<c>(?:(?!\\[()])[^`\n])*+)\\\)"
)
_MATH = re.compile(r"[a-zA-Z]|(?!\d[\d.,]*\s)(?=.*[\\^_={}<>+]).*")
_SPECIAL = re.compile(r"[\\`*_\[\]<&~]")
# Protected words like this are left to the parser.
_PARSED = re.compile(r"[`*_~&\[]|<[a-zA-Z/!?]|.*(?:`|\]\()", re.DOTALL)
# What may need another spelling in Markdown than in HTML.
_WRITTEN = re.compile(rf"&#?\w+;|{_SPECIAL.pattern}")
# The beginning of a line that is a block of its own, up to the place where a backslash prevents that.
_BLOCK = re.compile(r"\d{1,9}(?=[.)](?:\s|$))|(?=(?:[-+*]|#{1,6})(?:\s|$)|>|(?:=+|-+)\s*$)")
# Lines that are marks of extensions, and the titles in them. The text that belongs to a mark may be indented.
_MARK = re.compile(
    r":{3,}[ \t]*(?:\{[^{}]*\}|[\w./-]+)?[ \t\[]*(?P<a>[^\[\]{}]*).*|\[![\w-]+\][+-]?[ \t]*(?P<b>.*)"
    r"|/{3,}(?:[ \t]*(?:html\b.*|[\w-]+(?:[ \t]*\|[ \t]*(?P<c>.*))?))?|\*\[[^\]]+\]:[ \t]*(?P<d>.*)"
    r"|(?P<indents>(?:!{3}|\?{3}\+?)[ \t]+[\w -]*?(?:[ \t]\"(?P<e>.*)\")?|={3}[!+]?[ \t]+\"(?P<f>.*)\")[ \t]*"
    r"|(?:\{::?[^{}]*\}|\{%(?:(?!%\}).)*%\}|\{\{[<%](?:(?!\}\}).)*\}\}|\[\[?_?(?i:toc)_?\]?\]|-+8<-+.*)[ \t]*"
)
_CODE = re.compile(
    r"import\s+(?:.*\sfrom\s+)?['\"]|import\s*\{|export\s+(?:const|default|let|var|function|class|async|[{*])"
)
# Several lines that stay: math, comments of MDX, and tags of components.
_REGION = re.compile(
    r"(?:\$\$(?!\$)(?:[^$\n]|\n(?![ \t]*\n))+\$\$|\\\[[ \t]*\n(?:.*\n)*?.*\\\]|\\begin\{(?P<name>[\w*]+)\}[\s\S]*?\\end\{(?P=name)\}"
    rf"|\{{/\*[\s\S]*?\*/\}}|(?:</?[A-Z][\w.]*(?=[\s/>]){_JSX}>[ \t]*)+)[ \t]*(?=\n|\Z)"
)
# What the text behind it is indented to: a definition, and a footnote.
_ITEM = re.compile(r":[ \t]+(?=\S)|\[\^[^\]\s]+\]:[ \t]*")
_FRAGMENT = re.compile(r"""(?:\]\(<?|\]:[ \t]*<?|href=["'])#([^\s)>"']+)""")


def read(data: bytes, options: ReadOptions) -> Document:
    """Returns the document in a file of Markdown."""
    text = decoded(data, options)
    lines, starts = lines_of(text)
    all_blocks = list(_blocks("\n".join(line for line, _ in lines), options))
    blocks = [block for block in all_blocks if block.locate(lines, starts)]

    def write(translations: Sequence[str]) -> bytes:
        rest, written, end = iter(translations), list[str](), 0
        for block in blocks:
            written += [text[end : block.start], block.written(rest)]
            end = block.stop
        return encoded("".join([*written, text[end:]]), data)

    skipped = +Counter({"of a form that cannot be written": len(all_blocks) - len(blocks)})
    return Document([passage for block in blocks for passage in block.passages], write, skipped)


def _blocks(source: str, options: ReadOptions) -> Iterator["_Block"]:
    parser, tokens, env = _parser(), list["Token"](), dict[str, Any]()
    front = _FRONT_MATTER.match(source)
    matter = source[: front.end()] if front else ""
    inline = _Inline(parser, env, options.protected)
    for row, line in enumerate(matter.split("\n")):
        value = _VALUE.fullmatch(line)
        if value and has_letters(value["value"]) and not _NO_TEXT.fullmatch(value["value"]):
            yield _Block(inline, [value["value"]], row, "value", {})
    parser.block.parse("\n" * matter.count("\n") + source[len(matter) :], parser, env, tokens)
    anchors = {unquote(fragment).lower(): fragment for fragment in _FRAGMENT.findall(source)}
    parent, cells, slugs = "", dict[int, int](), Counter[str]()
    for token in tokens:
        kind = parent if token.type == "inline" else token.type
        text = _TAG.sub("", token.content) if kind == "html_block" else token.content
        if token.map and token.type in ("inline", "html_block") and has_letters(text):
            rows = token.content.removesuffix("\n").split("\n")
            rows = rows if kind == "html_block" else [row.lstrip(" \t") for row in rows]
            block = _Block(inline, rows, token.map[0], kind, cells)
            if kind == "heading_open" and anchors:
                block.anchor = _anchor(inline.text(token.content), slugs, anchors)
            yield block
        parent = token.type


def _anchor(heading: str, slugs: Counter[str], anchors: dict[str, str]) -> str:
    """Returns the fragment by which links in the file name a heading, as GitHub or as Python-Markdown makes it."""
    slug = _slug(heading)
    slugs[slug] += 1
    copy = slugs[slug] - 1
    shorter = re.sub("-+", "-", slug)
    names = [f"{slug}-{copy}", f"{shorter}_{copy}"] if copy else [slug, shorter]
    return next((anchors[name] for name in names if name in anchors), "")


def _slug(heading: str) -> str:
    """Returns the fragment that GitHub makes of a heading."""
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", heading.strip().lower()))


@dataclass
class _Block:
    """A block whose text is replaced.

    Attributes:
        inline: reads inline content.
        source: the lines of the block without what they begin with.
        first: the number of its first line, from 0.
        kind: the token around it, html_block, or value, of front matter.
        cells: the end of the last cell that was located in each line.
        anchor: by what links in the file name a heading.
        start, stop: where its content is in the file, once it was located.
        prefixes: what its lines begin with.
    """

    inline: "_Inline"
    source: list[str]
    first: int
    kind: str
    cells: dict[int, int]
    anchor: str = ""
    start: int = 0
    stop: int = 0
    prefixes: list[str] = field(default_factory=list)
    line_end: str = "\n"

    @property
    def is_cell(self) -> bool:
        return self.kind in ("th_open", "td_open")

    @property
    def content(self) -> "_Content | _Html | _Value":
        """What of the block is translated. It is made when it is needed, because it takes much memory."""
        text = "\n".join(self.source)
        if self.kind == "html_block":
            return _Html(text)
        return _Value(text) if self.kind == "value" else _Content(self.inline, text)

    @property
    def passages(self) -> list[Passage]:
        return self.content.passages

    def locate(self, lines: Sequence[tuple[str, str]], starts: Sequence[int]) -> bool:
        """Returns whether the content can be replaced; finds it in the lines of the file."""
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
        return True

    def written(self, translations: Iterator[str]) -> str:
        """Returns the content with the next translations. It stays as it is if its words do."""
        text = self.content.written(translations)
        if text.split() == " ".join(self.source).split():
            lines, self.anchor = self.source, ""
        else:
            lines = text.split("\n")
        if self.is_cell:
            return "\n".join(lines).replace("|", "\\|")
        if self.kind in ("paragraph_open", "heading_open") and lines is not self.source:
            wrapped = [new for line in lines for new in self._wrapped(line)] if self.kind == "paragraph_open" else lines
            forms = (wrapped, [_escaped(line) for line in lines])
            lines = next((form for form in forms if self.inline.is_paragraph(form)), self.source)
        prefixes = ["", *self.prefixes[1:], *self.prefixes[-1:] * len(lines)]
        is_named = self.anchor and self.anchor != _slug(self.inline.text(" ".join(lines)))
        anchor = f'<a id="{self.anchor}"></a>' if is_named else ""
        return anchor + self.line_end.join(prefix + line for prefix, line in zip(prefixes, lines, strict=False))

    def _wrapped(self, line: str) -> list[str]:
        """Returns lines as wide as those of the source, if it has several. None of them begins a block of its own."""
        if line not in self.source:
            line = _escaped(line)
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


def _escaped(line: str) -> str:
    block = _BLOCK.match(line)
    return f"{block[0]}\\{line[block.end() :]}" if block else line


class _Value:
    """A value of front matter."""

    def __init__(self, source: str) -> None:
        self._source, self._quote = source, source[0] if source[0] in "\"'" else ""
        try:
            self._text = json.loads(source) if self._quote == '"' else source
        except ValueError:  # an escape of YAML alone
            self._text = ""
        if self._quote == "'":
            self._text = source[1:-1].replace("''", "'")
        self.passages = [literal(self._text)] if self._text else []

    def written(self, translations: Iterator[str]) -> str:
        """Returns the value with the next translation. It gets quotes if it needs them."""
        text = unescape(next(translations)) if self._text else ""
        if text in ("", self._text):
            return self._source
        if self._quote == "'" and "'" not in text:
            return f"'{text}'"
        is_plain = not self._quote and re.fullmatch(r"\w(?:(?!: | #).)*[^\s:]", text) and not _NO_TEXT.fullmatch(text)
        return text if is_plain else json.dumps(text, ensure_ascii=False)


class _Html:
    """An HTML block. Tags without a counterpart in it stay, and the text between them is translated."""

    def __init__(self, source: str) -> None:
        is_whole = is_sound(source) and not source.startswith("<?")
        self._parts = [source] if is_whole else list(_between_tags(source))
        is_code = bool(re.search(r"=\{|^</?(?:pre|script|style|textarea)\b", source))
        self._is_text = [
            i % 2 == 0 and not is_code and has_letters(_TAG.sub("", part)) and is_sound(part)
            for i, part in enumerate(self._parts)
        ]
        pairs = zip(self._parts, self._is_text, strict=True)
        self.passages = [Passage(part, "html") for part, is_text in pairs if is_text]

    def written(self, translations: Iterator[str]) -> str:
        """Returns the block with the next translations."""
        pairs = zip(self._parts, self._is_text, strict=True)
        return "".join(next(translations) if is_text else part for part, is_text in pairs)


def _between_tags(html: str) -> Iterator[str]:
    """Yields in turns what is between the tags of HTML without a counterpart, comments and code, and one of these."""
    unclosed, cuts = list[tuple[str, Span]](), list[Span]()
    for match in re.finditer(rf"<!--[\s\S]*?-->|<\?[\s\S]*?\?>|{_TAG.pattern}", html):
        name = (match[2] or "").lower()
        if not name and not unclosed:
            cuts.append(match.span())
        elif match[1]:
            depth = max((depth for depth, (opened, _) in enumerate(unclosed) if opened == name), default=None)
            cuts += [match.span()] if depth is None else [span for _, span in unclosed[depth + 1 :]]
            del unclosed[depth if depth is not None else len(unclosed) :]
        elif name and name not in _VOID.split() and not match[0].endswith("/>"):
            unclosed.append((name, match.span()))
    end = 0
    for start, stop in sorted([*cuts, *(span for _, span in unclosed)]):
        yield from (html[end:start], html[start:stop])
        end = stop
    yield html[end:]


class _Content:
    """Inline content, and its images."""

    def __init__(self, inline: "_Inline", source: str) -> None:
        self.source, self._inline = source, inline
        self._references: dict[str, str] = {}  # how the source writes a character, by its reference in HTML
        self._images: dict[str, _Content] = {}  # alternative texts, by image
        self._shortcuts: dict[str, str] = {}  # how the source writes links and images that are found by their text
        task = _TASK.match(source)
        self._task = task[0] if task else ""
        self._kept = set[str]()  # protected words and the like, which the text of a translation may have too
        content = list[Inline]()
        for piece in inline.pieces(source[len(self._task) :]):
            if piece.kind == "image" and piece.shown:
                self._images[piece.whole] = _Content(inline, piece.shown)
            if piece.kind == "kept":
                self._kept.add(piece.raw)
            if piece.label is not None:
                end = "[]" if piece.raw.endswith("[]") else ""
                self._shortcuts[f"[{piece.label}][{piece.label}]"] = f"[{piece.label}]{end}"
            match piece.kind:
                case "text":
                    text = _SPECIAL.sub(lambda match: self._reference(match[0], match[0]), piece.raw)
                    content.append(text.replace(">", "&gt;"))
                case "char":
                    content.append(self._reference(piece.shown, piece.raw))
                case "open" | "close" | "space" | "end":
                    content.append(Leaf(piece.whole, kind=piece.kind, key=piece.shown))
                case _:
                    content.append(Leaf(piece.whole, escape(piece.shown) if piece.kind in ("leaf", "kept") else ""))
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

        kinds, expected = ("text", "char", "kept"), [raw for raw in markup if raw not in self._kept]
        for is_cautious in (False, True):
            spelt, rest = partial(_WRITTEN.sub, partial(raw_of, is_cautious)), iter(markup)
            text = "".join(spelt(inline) if isinstance(inline, str) else next(rest) for inline in content)
            if expected == [piece.whole for piece in self._inline.pieces(text) if piece.kind not in kinds]:
                break
        for full, short in self._shortcuts.items():
            text = text.replace(full, short)
        return self._task + text


class _Piece(NamedTuple):
    """A part of inline content.

    Attributes:
        kind: text, char (a character that is escaped), space (one that is a reference), image, leaf (other markup), kept (what stays in text), open or
            close (the ends of a pair), or end (of a line, which separates texts).
        shown: the character, the name of the pair, the text of a leaf, or the alternative text of an image.
        label: the label of a link or image that is found by its text.
    """

    kind: Literal["text", "char", "space", "image", "leaf", "kept", "open", "close", "end"]
    raw: str
    shown: str = ""
    label: str | None = None

    @property
    def whole(self) -> str:
        """The markup with the label of a link or image, which stays if its text is translated."""
        return self.raw if self.label is None else f"{self.raw.removesuffix('[]')}[{self.label}]"


@dataclass
class _Inline:
    """Reads inline content.

    Attributes:
        env: the reference definitions of the file.
    """

    parser: "MarkdownIt"
    env: dict[str, Any]
    protected: Protected

    def text(self, content: str) -> str:
        """Returns the text that readers see."""
        return "".join(
            piece.raw if piece.kind == "text" else piece.shown
            for piece in self.pieces(content)
            if piece.kind in ("text", "char", "leaf", "kept")
        )

    def is_paragraph(self, lines: Iterable[str]) -> bool:
        """Returns whether lines are one paragraph, also beside others."""
        tokens: list[Token] = []
        self.parser.block.parse("\n".join(lines), self.parser, {}, tokens)
        return [token.type for token in tokens] == ["paragraph_open", "inline", "paragraph_close"]

    def pieces(self, content: str) -> Iterator[_Piece]:
        """Yields the parts of inline content."""
        pieces, position, unclosed = list(self._all_pieces(content)), 0, set[str]()
        while position < len(pieces):
            piece = pieces[position]
            position += 1
            if piece.kind == "open" and piece.shown not in unclosed and _UNTRANSLATED.match(piece.raw):
                depths = accumulate(
                    _DEPTH.get(other.kind, 0) * (other.shown == piece.shown) for other in pieces[position:]
                )
                end = next((i for i, depth in enumerate(depths, position + 1) if depth < 0), None)
                if end is None:
                    unclosed.add(piece.shown)
                else:
                    inside = pieces[position:end]
                    shown = "".join(other.shown or other.raw for other in inside if other.kind not in _DEPTH)
                    piece, position = _Piece("leaf", piece.raw + "".join(other.raw for other in inside), shown), end
            has_attributes = piece.kind in ("close", "leaf", "image", "kept") and piece.label is None
            if has_attributes and position < len(pieces) and re.fullmatch(_ATTRIBUTES, pieces[position].raw):
                piece = piece._replace(raw=piece.raw + pieces[position].raw)
                position += 1
            yield piece

    def _all_pieces(self, content: str) -> Iterator[_Piece]:
        spans = self._kept_spans(content)
        masked = content
        for start, stop in spans:  # so that the parser sees text
            masked = masked[:start] + _SPECIAL.sub("x", content[start:stop]) + masked[stop:]
        tokens: list[Token] = []
        self.parser.inline.parse(masked, self.parser, self.env, tokens)
        end, labels = 0, list[int]()
        for token in tokens:
            start, stop = token.meta.get("span", (0, 0))
            start -= token.type == "strong_open"  # the recorded span covers only one of the two characters
            stop += token.type == "strong_close"
            if stop <= end or token.type in ("text", "softbreak"):
                continue
            if token.type == "hardbreak":
                start = end + len(content[end:start].rstrip(" "))
            yield from _text_pieces(content, end, start, spans)
            if token.type == "link_open":
                labels.append(stop)
            label = content[labels.pop() : start] if token.type == "link_close" else ""
            if token.type == "image":
                label = content[start + 2 : start + 2 + len(token.content)]
            yield _piece(token, content[start:stop], label)
            end = stop
        yield from _text_pieces(content, end, len(content), spans)

    def _kept_spans(self, content: str) -> list[Span]:
        """Returns what stays in text, as far as it is no markup."""
        spans = [span for span in self.protected.spans(content) if not _PARSED.match(content[slice(*span)])]
        for match in _KEPT.finditer(content):
            math = next((inside for inside in match.group(*"abc") if inside is not None), None)
            spans += [match.span()] if math is None or _MATH.fullmatch(math) else []
        kept: list[Span] = []
        for start, stop in sorted(spans):
            if not kept or start >= kept[-1][1]:
                kept.append((start, stop))
        return kept


_DEPTH = {"open": 1, "close": -1}


def _text_pieces(content: str, start: int, stop: int, spans: Iterable[Span]) -> Iterator[_Piece]:
    for begin, end in [*spans, (stop, stop)]:
        if start <= begin and end <= stop:
            yield from [_Piece("text", content[start:begin])] if start < begin else []
            raw = content[begin:end]
            if raw:
                yield _Piece("kept", raw, "" if re.fullmatch(_ATTRIBUTES, raw) else raw)
            start = end


def _piece(token: "Token", raw: str, label: str) -> _Piece:
    is_shortcut = raw.removeprefix(f"![{label}") in ("]", "][]")
    name = " ".join(label.split()) if is_shortcut else None  # line breaks in a label do not matter
    match token.type:
        case "html_inline":
            tag = _TAG.fullmatch(raw)
            if not tag or tag[2].lower() == "br":
                return _Piece("end" if tag else "leaf", raw)
            return _Piece("close" if tag[1] else "open", raw, tag[2])
        case "text_special" if token.content in "\n\r\t":
            return _Piece("end", raw)
        case "text_special" if token.content.isspace():
            return _Piece("space", raw)
        case "text_special":
            return _Piece("char" if len(token.content) == 1 else "leaf", raw, token.content)
        case "image":
            return _Piece("image", raw, label, name)
        case "link_close":
            return _Piece("close", raw, token.tag, name)
        case "link_open" if token.markup == "autolink":
            return _Piece("leaf", raw, raw[1:-1])
        case "hardbreak":
            return _Piece("end", raw)
        case "code_inline":
            return _Piece("leaf", raw, " ".join(raw.strip("`").split()))
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
    inside = {"alt": ["paragraph", "reference", "blockquote", "list"]}
    parser.block.ruler.before("table", "mark", _mark, inside)
    parser.block.ruler.before("table", "item", _item, inside)
    parser.inline.ruler2.disable("fragments_join")
    for rule in parser.inline.ruler.__rules__:
        if rule.enabled:
            parser.inline.ruler.at(rule.name, _recording(rule.name, rule.fn))
    return parser


def _mark(state: "StateBlock", line: int, last: int, silent: bool) -> bool:
    """Reads lines that are no text: marks of extensions, math, and code of MDX."""
    if state.is_code_block(line):
        return False
    start, stop = state.bMarks[line] + state.tShift[line], state.eMarks[line]
    text = state.src[start:stop]
    region, mark, code = (
        _REGION.match(state.src, start, state.eMarks[last - 1]),
        _MARK.fullmatch(text),
        _CODE.match(text),
    )
    if not (region or mark or code):
        return False
    if silent:
        return True
    state.line = line + 1
    if region:
        while state.line < last and state.bMarks[state.line] < region.end():
            state.line += 1
    elif code:
        while state.line < last and not state.isEmpty(state.line):
            state.line += 1
    elif mark:
        title = next(filter(None, (mark[name] for name in "abcdef")), "").strip()
        state.push("title_open", "", 1)
        token = state.push("inline", "", 0)
        token.content, token.map, token.children = title, [line, line + 1], []
        if mark["indents"]:
            _read_indented(state, line + 1, last, state.sCount[line] + 4)
    return True


def _item(state: "StateBlock", line: int, last: int, silent: bool) -> bool:
    """Reads a definition of a term, or a footnote."""
    start = state.bMarks[line] + state.tShift[line]
    item = None if state.is_code_block(line) else _ITEM.match(state.src, start, state.eMarks[line])
    if not item:
        return False
    if not silent:
        indent = state.sCount[line] + (2 if item[0].startswith(": ") else 4)
        state.tShift[line] += len(item[0])
        state.sCount[line] = max(indent, state.sCount[line] + len(item[0]))
        _read_indented(state, line, last, indent)
    return True


def _read_indented(state: "StateBlock", line: int, last: int, indent: int) -> None:
    """Reads the blocks that begins here and are indented like this."""
    outer, state.blkIndent = state.blkIndent, indent
    state.md.block.tokenize(state, line, last)
    state.blkIndent = outer


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
