"""Markdown: headings, paragraphs, list items, table cells, HTML blocks, alternative texts, captions, and titles.

Only the text of these is replaced: the file keeps its own way of writing everything else. Code, math, URLs, front
matter but its title and description, reference definitions, and the marks of extensions stay.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from html import unescape
from itertools import takewhile
from textwrap import wrap
from urllib.parse import unquote

import regex

from nmt.documents.content import Content, ordered, paired, passage, plain
from nmt.documents.document import FRONT_MATTER, Document, ReadOptions, decoded, encoded, lines_of, spliced
from nmt.documents.markdown_reading import ELEMENT, JSX, SPECIAL, WITH_ATTRIBUTES, MarkdownReader, seen_attributes
from nmt.text.marked import Token, merged
from nmt.text.markup_reading import parse_scanned, scanned, written
from nmt.text.words import has_letters
from nmt.translate.units import Unit

# A value that needs no knowledge of YAML or TOML to be read: on one line, or on indented lines below it. Options
# of directives and of cells of code are such values, too, behind `:` or `#|`.
_VALUE = re.compile(
    r"""^(?P<begin>[ \t>]*(?:(?:\#|//|%%|--)\|[ \t]*|:)?)(?P<name>[\w.-]+)(?:[ \t]*[:=][ \t]+|(?P<toml>=))"""
    r"""(?:(?P<quoted>"(?:[^"\\\n]|\\.)*"|'(?:[^'\n]|'')*')[ \t]*(?:\#.*)?$|(?P<block>[>|]\d?[+-]?\d?[ \t]*\n)?"""
    r"""(?P<lines>(?(block)(?P=begin)[ \t]+\S.*|[^\s"'>|&*!%@`\#,\[\]{}?:-](?:(?!: | \#).)*(?=$|[ \t]\#))"""
    r"""(?:\n(?:(?P=begin)[ \t]+(?(block).+|\S(?:(?!: | \#).)*$)|(?(block)[ \t]*$|(?!))))*))""",
    re.MULTILINE,
)
_FRONT_NAMES = re.compile("title|description", re.IGNORECASE)
_OPTION = re.compile(r"[ \t>]*(?:(?:#|//|%%|--)\||:[\w-]+:)")
_OPTION_NAMES = re.compile(r"\W*(?:title|alt|caption|(?:fig|tbl|lst)[.-](?:alt|cap))")
_IMPORT = re.compile(r"\s*import[ \t]+(?:[\w{*].*\sfrom[ \t]+)?['\"]")  # begins MDX in a file of another name
_PLAIN = re.compile(r"\w(?:(?!: | #).)*[^\s:]")
_NO_TEXT = re.compile(r"true|false|yes|no|on|off|null", re.IGNORECASE)
# What Markdown has in an HTML block besides tags: code, and the ends of links and images
_IN_HTML = (
    r"""`[^`\n]+`|!?\[(?=[^\[\]\n<]*\][(\[])"""
    r"""|\](?:\([^()\s]*(?: "[^"\n]*")?\)|\[[^\[\]\n]+\])(?:\{[^{}\n]*\})?"""
)
# How slides of Marp use an image, in place of an alternative text
_KEYWORDS = re.compile(r"bg(?:\s|$)|(?:w|h|width|height):")
_TASK = re.compile(r"\[[ xX]\]\s+|")
# The beginning of a line that is a block of its own, up to the place where a backslash prevents that.
_BLOCK = re.compile(r"\d{1,9}(?=[.)](?:\s|$))|(?=(?:[-+*]|#{1,6})(?:\s|$)|>|(?:=+|-+)\s*$)")
_TAG = re.compile(rf"(?<!`)<[a-zA-Z](?![^<>]*\btranslate\b){JSX}>")
_FRAGMENT = re.compile(r"""(?:\]\(<?|\]:[ \t]*<?|href=["'])#([^\s)>"']+)""")


def read(data: bytes, options: ReadOptions) -> Document:
    """Returns the document in a file of Markdown."""
    text = decoded(data, options)
    lines, starts = lines_of(text)
    source = "\n".join(line for line, _ in lines)
    front = FRONT_MATTER.match(source)
    matter = front[0] if front else ""
    reader = MarkdownReader(options.protected, options.form == "mdx" or bool(_IMPORT.match(source, len(matter))))
    all_blocks = list(_blocks(reader, source, matter))
    blocks = [block for block in all_blocks if block.locate(lines, starts)]
    unread = [block.first + 1 for block in all_blocks if not block.prefixes or block.is_unread]

    def write(translations: Sequence[Sequence[Token]]) -> bytes:
        rest = iter(translations)
        return encoded(spliced(text, {(block.start, block.stop): block.written(rest) for block in blocks}), data)

    passages = [passage for block in blocks for passage in block.content.passages]
    obstacle = "it is nested too deep there or has a form that cannot be written; write it in a simpler way"
    return Document(passages, write, unreached=sorted(reader.unreached + unread), obstacle=obstacle)


def _blocks(reader: MarkdownReader, source: str, matter: str) -> Iterator["_Block"]:
    yield from _values(reader, matter, 0, _FRONT_NAMES)
    anchors = {unquote(fragment).lower(): fragment for fragment in _FRAGMENT.findall(source)}
    parent, cells, slugs, lines = "", dict[int, int](), Counter[str](), source.split("\n")
    for token in reader.blocks("\n" * matter.count("\n") + source[len(matter) :]):
        kind = parent if token.type == "inline" else token.type
        if token.map and token.type in ("mark", "fence"):
            yield from _texts_of_mark(reader, lines[slice(*token.map)], token.map[0], token.type == "fence")
        if token.map and token.type in ("inline", "html_block") and has_letters(token.content):
            rows = token.content.removesuffix("\n").split("\n")
            rows = rows if kind == "html_block" else [row.lstrip(" \t") for row in rows]
            ends = {token.map[0]: token.meta["column"]} if kind == "mark" else cells
            block = _Block(reader, rows, token.map[0], kind, ends)
            if kind in ("heading_open", "underlined") and anchors:
                slug = _slug(reader.text(token.content))
                copy, shorter = slugs[slug], re.sub("-+", "-", slug)
                # As GitHub or as Python-Markdown names the heading.
                names = [f"{slug}-{copy}", f"{shorter}_{copy}"] if copy else [slug, shorter]
                block.anchor = next((anchors[name] for name in names if name in anchors), "")
                slugs[slug] += 1
            yield block
        parent = "cell" if token.type in ("th_open", "td_open") else token.type
        parent = "underlined" if parent == "heading_open" and token.markup in "=-" else parent


def _values(reader: MarkdownReader, text: str, first: int, names: re.Pattern[str]) -> Iterator["_Block"]:
    """Yields the values with these names in front matter or in options, each paragraph by itself."""
    for value in _VALUE.finditer(text):
        group = "quoted" if value["quoted"] else "lines"
        for paragraph in re.finditer(r"(?:.*\S.*\n?)+", value[group]):
            rows = [row.removeprefix(value["begin"]).strip() for row in paragraph[0].rstrip("\n").split("\n")]
            is_text = has_letters(" ".join(rows)) and not _NO_TEXT.fullmatch(rows[0])
            is_text &= not value["toml"] or names is _FRONT_NAMES  # elsewhere, it is an attribute
            if is_text and names.fullmatch(value["begin"] + value["name"]):
                row = text.count("\n", 0, value.start(group) + paragraph.start())
                yield _Block(reader, rows, first + row, "scalar" if value["block"] else "value", {})


def _texts_of_mark(reader: MarkdownReader, lines: list[str], first: int, is_fence: bool) -> Iterator["_Block"]:
    """Yields the attributes and options of a mark, or of a cell of code, that readers see."""
    if is_fence:  # whose label is a name
        is_cell = re.search(r"(?:`{3}|~{3})[ \t]*\{", lines[0])
        lines = [lines[0].replace("label", "LABEL"), *takewhile(_OPTION.match, lines[1:])] if is_cell else [""]
    text = "\n".join(lines)
    for (start, _), raw in seen_attributes(text).items():
        row, column = first + text.count("\n", 0, start), start - text.rfind("\n", 0, start) - 1
        yield _Block(reader, raw.split("\n"), row, "attribute", {row: column})
    if is_fence or "::" in lines[0] or re.match("[ \t>]*(?:```|~~~)", lines[0]):
        yield from _values(reader, text, first, _OPTION_NAMES)


def _slug(heading: str) -> str:
    """Returns the fragment that GitHub makes of a heading."""
    return regex.sub(r"\s", "-", regex.sub(r"[^\w\s-]", "", heading.strip().lower()))  # whose \w has vowel signs


@dataclass
class _Block:
    """A block whose text is replaced."""

    reader: MarkdownReader
    source: list[str]  # its lines without what they begin with
    first: int  # the number of its first line, from 0
    # The token around it, html_block, underlined (a heading), cell, attribute, value, or scalar (on lines of YAML)
    kind: str
    ends: dict[int, int]  # the end of what was located before in each line
    anchor: str = ""  # by what links in the file name a heading
    start: int = 0  # where its content is in the file, once it was located
    stop: int = 0
    prefixes: list[str] = field(default_factory=list)  # what its lines begin with
    line_end: str = "\n"

    @property
    def is_unread(self) -> bool:
        """Whether it has text beside expressions in HTML, which are not read."""
        text = "\n".join(self.source)
        is_element = self.kind == "html_block" and bool(ELEMENT.match(text))
        return is_element and "={" in text and has_letters(re.sub(rf"<{JSX}>", "", text))

    @cached_property
    def content(self) -> "_Content | _Html | _Value":
        """What of the block is translated."""
        text = "\n".join(self.source)
        if self.kind == "html_block":
            return _Html(self.reader, text)
        if self.kind in ("value", "scalar", "attribute"):
            return _Value(self.reader, text if self.kind == "attribute" else " ".join(self.source), self.kind)
        return _Content(self.reader, text)

    def locate(self, lines: Sequence[tuple[str, str]], starts: Sequence[int]) -> bool:
        """Returns whether the content can be replaced; finds it in the lines of the file."""
        for row, source in enumerate(self.source, self.first):
            written = source.replace("|", "\\|") if self.kind == "cell" else source
            line, _ = lines[row]
            is_in_order = self.kind in ("cell", "mark", "attribute")
            column = line.find(written, self.ends.get(row, 0)) if is_in_order else line.rfind(written)
            if column < 0:
                self.prefixes.clear()
                return False
            self.prefixes.append(line[:column])
            self.stop = starts[row] + column + len(written)
            if self.kind == "cell":
                self.ends[row] = column + len(written)
        self.start = starts[self.first] + len(self.prefixes[0])
        self.line_end = lines[self.first][1]
        return True

    def written(self, translations: Iterator[Sequence[Token]]) -> str:
        """Returns the content with the next translations. It stays as it is if its words do."""
        text = self.content.written(translations)
        lines = self.source if _letters(text) == _letters("".join(self.source)) else text.split("\n")
        if self.kind == "cell":
            return "\n".join(lines).replace("|", "\\|")
        if self.kind in ("value", "scalar") and len(self.source) > 1 and lines is not self.source:
            lines = wrap(text, max(map(len, self.source)), break_long_words=False, break_on_hyphens=False)
        if self.kind in ("paragraph_open", "underlined") and lines is not self.source:
            is_wrapped = self.kind == "paragraph_open"
            wrapped = [new for line in lines for new in (self._wrapped(line) if is_wrapped else [line])]
            forms = (wrapped, list(map(_escaped, lines)))
            lines = next((form for form in forms if self.reader.is_paragraph(form)), self.source)
        prefixes = ["", *self.prefixes[1:], *self.prefixes[-1:] * len(lines)]
        slugs = {_slug(self.reader.text(" ".join(rows))) for rows in (lines, self.source)} if self.anchor else {""}
        anchor = f'<a id="{self.anchor}"></a>' if len(slugs) > 1 else ""
        return anchor + self.line_end.join(prefix + line for prefix, line in zip(prefixes, lines, strict=False))

    def _wrapped(self, line: str) -> list[str]:
        """Returns lines as wide as those of the source, if it has several."""
        if line not in self.source:
            line = _escaped(line)
        width = max(map(len, self.source))
        if len(self.source) == 1 or len(line) <= width:
            return [line]
        # Marks and what stays may not be divided.
        pieces = self.reader.pieces(line)
        whole = "".join(raw if kind == "text" else raw.replace(" ", "\0") for kind, raw, *_ in pieces)
        lines = wrap(whole, width, break_long_words=False, break_on_hyphens=False)
        lines = [row.replace("\0", " ") for row in lines]
        lines[-1] += line[len(line.rstrip()) :]  # spaces that break a line
        return re.sub(rf"\n(?={_BLOCK.pattern})", " ", "\n".join(lines), flags=re.MULTILINE).split("\n")


def _letters(text: str) -> str:
    return "".join(unescape(text).split())


def _escaped(line: str) -> str:
    block = _BLOCK.match(line)
    return f"{block[0]}\\{line[block.end() :]}" if block else line


class _Value:
    """A value of front matter, an option, or an attribute."""

    def __init__(self, reader: MarkdownReader, source: str, kind: str = "attribute") -> None:
        self._source, self._kind = source, kind
        self._quote = source[0] if source[0] in "\"'" and kind != "scalar" else ""
        self._text = source
        if kind == "attribute":
            self._text = re.sub(r"""\\(["'])""", r"\1", unescape(source[1:-1]))
        elif self._quote == "'":
            self._text = source[1:-1].replace("''", "'")
        elif self._quote:
            self._text = ""
            with suppress(ValueError):  # an escape of YAML alone
                self._text = json.loads(source)
        self.passages = [passage([Token("text", self._text)], reader.protected)] if self._text else []

    def written(self, translations: Iterator[Sequence[Token]]) -> str:
        """Returns the value with the next translation. It gets quotes if it needs them."""
        text = plain(next(translations)) if self._text else ""
        if text in ("", self._text):
            return self._source
        if self._kind == "attribute":
            quote = '"' if "'" in text and '"' not in text else self._quote
            escapes = (f"\\{quote}", "&quot;", "&#39;")  # the program that reads it knows one that the source has
            escaped = next((each for each in escapes if each in self._source), "”" if quote == '"' else "’")
            return f"{quote}{text.replace(quote, escaped)}{quote}"
        is_plain = self._kind == "scalar" or (self._quote == "'" and "'" not in text)
        is_plain |= not self._quote and bool(_PLAIN.fullmatch(text)) and not _NO_TEXT.fullmatch(text)
        return f"{self._quote}{text}{self._quote}" if is_plain else json.dumps(text, ensure_ascii=False)


class _Html:
    """An HTML block. Code stays, and so does markup with expressions. Some programs read Markdown in it."""

    def __init__(self, reader: MarkdownReader, source: str) -> None:
        is_code = re.search(r"=\{|^</?(?:pre|script|style|textarea)\b|^<\?(?!php\b|=)", source)
        tokens = map(self._read, scanned(source, is_html=True, marks=_IN_HTML))
        self._source, self._unit = source, Unit(source, content=parse_scanned(tokens, reader.protected))
        self._values = {
            raw: _Value(reader, raw) for tag in _TAG.findall(source) for raw in seen_attributes(tag).values()
        }
        attributes = [unit for value in self._values.values() for unit in value.passages]
        self.passages = [] if is_code else [self._unit, *attributes]

    def _read(self, token: Token) -> Token:
        """Returns a mark of Markdown as an element, or as what stays."""
        mark = token.raw[0] if token.kind == "leaf" else ""
        if mark == "`":
            return Token("leaf", token.raw, token.raw)
        if mark and mark in "![]":
            return Token("end" if mark == "]" else "start", item=token.raw, name="g", key="link")
        return token

    def written(self, translations: Iterator[Sequence[Token]]) -> str:
        """Returns the block with the next translation."""
        if not self.passages:
            return self._source
        tokens = ordered(self._unit, next(translations))
        new = {raw: value.written(translations) for raw, value in self._values.items()}

        def tag_with(tag: re.Match[str]) -> str:
            return spliced(tag[0], {span: new.get(raw, raw) for span, raw in seen_attributes(tag[0]).items()})

        return written(t if t.kind == "text" else t._replace(item=_TAG.sub(tag_with, t.raw)) for t in tokens)


class _Content:
    """Inline content, and its images."""

    def __init__(self, reader: MarkdownReader, source: str) -> None:
        self.source, self._reader = source, reader
        # The alternative text of an image, and attributes that readers see, by where they are in markup
        self._texts: dict[str, dict[tuple[int, int], _Content | _Value]] = {}
        self._shortcuts: dict[str, str] = {}  # the short forms of links and images that are found by their text
        task = _TASK.match(source)
        self._task = task[0] if task else ""
        self._kept = set[str]()  # protected words and the like, which the text of a translation may have too
        tokens: list[Token] = []
        for piece in reader.pieces(source[len(self._task) :]):
            texts: dict[tuple[int, int], _Content | _Value] = {}
            if piece.kind == "image" and piece.shown and not _KEYWORDS.match(piece.shown):
                texts[2, 2 + len(piece.shown)] = _Content(reader, piece.shown)
            if piece.kind != "text" and (markup := WITH_ATTRIBUTES.search(piece.whole)):
                seen = seen_attributes(piece.whole, markup.start())
                texts |= {span: _Value(reader, raw) for span, raw in seen.items()}
            self._texts |= {piece.whole: texts} if texts else {}
            if piece.kind == "kept":
                self._kept.add(piece.raw)
            if piece.label is not None:
                label = re.escape(piece.label)
                text = label.replace(r"\ ", r"\s+")
                self._shortcuts[rf"(\[{text}\])\[{label}\]"] = r"\1[]" if piece.raw.endswith("[]") else r"\1"
            match piece.kind:
                case "text":
                    spellings = [c if SPECIAL.match(c) else None for c in piece.raw]
                    tokens.append(Token("text", piece.raw, spellings if any(spellings) else None))
                case "char":
                    tokens.append(Token("text", piece.shown, [piece.raw]))
                case "open" | "close" | "space" | "end":
                    tokens.append(Token("leaf", item=piece.whole, role=piece.kind, key=piece.shown))
                case "image":
                    tokens.append(Token("leaf", item=piece.whole))
                case _:
                    tokens.append(Token("leaf", piece.shown, piece.whole))
        tokens = list(merged(tokens))
        for i, (before, leaf, after) in enumerate(zip(tokens, tokens[1:], tokens[2:], strict=False)):
            # Of the spaces inside and outside, one would be lost.
            if leaf.role == "close" and before.text.endswith(" ") and after.text.startswith(" "):
                words = before.text.rstrip(" ")
                leaf = leaf._replace(item=before.text[len(words) :] + leaf.item)
                tokens[i : i + 2] = before.cut(0, len(words)), leaf
        self._content = Content(paired(tokens), reader.protected)

    @property
    def passages(self) -> list[Unit]:
        """What is translated: the content, and then the alternative texts of images and the attributes."""
        texts = [text for texts in self._texts.values() for text in texts.values()]
        return self._content.passages + [unit for text in texts for unit in text.passages]

    def written(self, translations: Iterator[Sequence[Token]]) -> str:
        """Returns the content with the next translations.

        If its markup would be another one, all special characters are escaped.
        """
        tokens: list[Token] = []
        for token in self._content.translated(translations):
            if token.kind == "end" and tokens[-1].kind == "start" and tokens[-1].item[0] not in "[<":
                tokens.pop()  # marks without text between them
            else:
                tokens.append(token)
        changed = {
            raw: spliced(raw, {span: text.written(translations) for span, text in texts.items()})
            for raw, texts in self._texts.items()
        }
        tokens = [t if t.kind == "text" else t._replace(item=changed.get(t.item, t.item)) for t in tokens]
        kept = {changed.get(raw, raw) for raw in self._kept}
        expected = [t.item.strip(" ") for t in tokens if t.kind != "text" and t.item not in kept]
        for is_cautious in (False, True):
            text = "".join(_spelt(t, is_cautious=is_cautious) if t.kind == "text" else t.item for t in tokens)
            markup = (piece for piece in self._reader.pieces(text) if piece.kind not in ("text", "char", "kept"))
            if expected == [piece.whole.strip(" ") for piece in markup]:
                break
        for full, short in self._shortcuts.items():
            text = re.sub(full, short, text)
        return self._task + text


def _spelt(token: Token, *, is_cautious: bool) -> str:
    """Returns text as the source spells it. Other special characters are escaped, all of them to be cautious."""
    if not token.item:
        return SPECIAL.sub(r"\\\g<0>", token.text)
    spelt = ""
    for character, spelling in zip(token.text, token.item, strict=True):
        is_escaped = spelling is None or (is_cautious and spelling == character)
        spelt += f"\\{character}" if is_escaped and SPECIAL.match(character) else spelling or character
    return spelt
