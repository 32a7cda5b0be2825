"""Reads Markdown: its blocks, and the parts of inline content, with the marks of extensions.

The parser is markdown-it. What its rules do not know is added: lines that are marks of GitHub, MkDocs, Docusaurus,
VitePress and MDX, definitions, footnotes, math, and what stays in text.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import regex as re

from nmt.errors import importing
from nmt.text.markup_reading import is_kept
from nmt.text.protected import Protected, Span
from nmt.text.words import has_letters

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.ruler import RuleOptionsType
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

_TAG = re.compile(r"""<(/?)([a-zA-Z][\w.-]*+)(?:"[^"]*"|'[^']*'|[^<>"'])*+>""")
# An expression of JSX, and the attributes of a tag, with expressions.
_EXPRESSION = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}"
_CODE = rf"(?=\{{[^{{}}\n]*(?:[|&?=>]\s|[\w.]\()){_EXPRESSION}"
JSX = rf"""(?:[^<>{{}}"'\n]|\n(?![ \t]*\n)|"[^"]*"|'[^']*'|{_EXPRESSION})*+"""
_ATTRIBUTE = r"""(?:[.#][\w:-]+|[\w:-]+=(?:"[^"]*"|'[^']*'|[^\s{}"']+))"""
_ATTRIBUTES = rf"\{{:?\s*(?:[\w-]+\s+)*+{_ATTRIBUTE}(?:\s+(?:{_ATTRIBUTE}|[\w-]+))*+\s*\}}"
# The markup at the end of a piece that may have attributes, and an attribute that readers see.
WITH_ATTRIBUTES = re.compile(rf"(?:{_ATTRIBUTES}|\{{[{{%][\s\S]*[}}%]\}}|</?[a-zA-Z][\w.:-]*{JSX}>)\Z")
_SEEN = re.compile(
    r"""(?s)(?<=[\s{(,])(?:title|label|alt|caption|(?:fig|tbl|lst)[.-](?:alt|cap))[ \t]*=[ \t]*"""
    r"""(?P<value>"(?:[^"\\]|\\.)+"|'(?:[^'\\]|\\.)+')"""
)
_NO_WORDS = re.compile(r"""(?:\W|\S*\w[./\\_]\w\S*|\{[{%].*?[%}]\})*+""", re.DOTALL)  # such as the name of a file
# What stays in text besides protected words: references to footnotes, attributes, tags with expressions, and math.
_KEPT = re.compile(
    rf"\[\^[^\[\]\s]+\]|{_ATTRIBUTES}|\{{/\*(?:(?!\{{/\*).)*?\*/\}}|</?[A-Z][\w.]*(?=[^<>]*=\{{){JSX}>"
    r"|(?<![\\$\w])(?:\$(?=[^\s$])(?P<a>[^$`\n]*)(?<![\s\\])\$(?![\w$])|\$\$(?P<b>[^$`]+)\$\$)"
    rf"|\\\((?P<c>(?:(?!\\[()])[^`\n])*+)\\\)|{_CODE}"
    r"|\{\{(?:(?!\{\{|\}\})[\s\S])+\}\}+|\{%(?:(?!\{%|%\})[\s\S])+%\}"
    # Embedded files and links of Obsidian, citations, comments, keys, references to blocks, and commands of TeX
    r"|!?\[\[[^\[\]\n]+\]\]|\[-?@[^\[\]\n]+\](?![\[(])|%%[^%\n]+%%|\+\+\w[\w+-]*\+\+|(?<=\s)\^[\w-]+$"
    r"|\\[a-zA-Z]{2,}\*?(?=\{)",
    re.MULTILINE,
)
_MATH = re.compile(r"[a-zA-Z]|(?!\d[\d.,]*\s)(?=.*[\\^_={}<>+]).*", re.DOTALL)
SPECIAL = re.compile(r"[\\`*_\[\]<&~]")
# Protected words like this are left to the parser.
_PARSED = re.compile(r"[`*_~&\[]|<[a-zA-Z/!?]|.*(?:`|\]\()", re.DOTALL)
# Lines that are marks of extensions, and the titles in them. The text that belongs to a mark may be indented.
_MARK = re.compile(
    r""":{2,}[ \t]*+(?:\{[^{}]*\}|[\w./-]++)?[ \t\[]*+(?P<a>(?![\w-]*=["']|\S*[./]\w+[ \t]*$)[^\[\]{}]*|).*"""
    r"|\[![\w-]+\][+-]?[ \t]*(?P<b>.*)"
    r"|/{3,}(?:[ \t]*(?:html\b.*|[\w-]+(?:[ \t]*\|[ \t]*(?P<c>.*))?))?|\*\[[^\]]+\]:[ \t]*(?P<d>.*)"
    r"|(?P<indents>(?:!{3}|\?{3}\+?)[ \t]+[\w -]*?(?:[ \t]\"(?P<e>.*)\")?|={3}[!+]?[ \t]+\"(?P<f>.*)\")[ \t]*"
    r"|(?:\{::?[^{}]*\}|\{%(?:(?!%\}).)*%\}|\{\{[<%](?:(?!\}\}).)*\}\}|\[\[?_?(?i:toc)_?\]?\]|-+8<-+.*)[ \t]*"
    r"|\{\*[^{}\n]+\*\}[ \t]*"
    # Slots of Nuxt, targets and breaks of MyST, snippets of VitePress, fragments of JSX, and tabs of VuePress
    r"|\|[ \t]+(?P<h>(?!.*\|)\S.*)"  # a line of a line block of pandoc
    r"|#[a-z][\w-]*[ \t]*|\([\w:.-]+\)=[ \t]*|\+{3}(?:[ \t].*)?|<<<[ \t]*\S.*|</?>[ \t]*|@tab(?::\w+)?[ \t]+(?P<g>.*)"
)
# Fences of MyST and of mdBook around text and not around code, and their titles
_DIRECTIVE = re.compile(
    r"(?P<fence>`{3,}|~{3,})[ \t]*(?:\{(?P<name>admonition|attention|card|caution|danger|deprecated|dropdown|epigraph"
    r"|error|figure|grid|grid-item-card|hint|important|list-table|margin|note|seealso|sidebar|tab-(?:item|set)|table|tip|topic"
    r"|version(?:added|changed)|warning)\}[ \t]*(?P<title>[^`\n]*)|admonish\b[^`\"\n]*(?:\"(?P<title>[^`\"\n]*)\".*)?)"
)
# A line whose HTML has Markdown below it
_OUTER = re.compile(
    r"""<[a-z](?:(?!\smarkdown)[^<>])*+\smarkdown(?:=(?:"(?!0)\w*"|'(?!0)\w*'|(?!0)\w+))?(?:\s[^<>]*)?>[ \t]*"""
)
_OPTION = re.compile(r"[ \t]*:[\w-]+:(?!\S)")  # of a directive of MyST, directly below its mark
# Several lines that stay: math, comments and code of MDX, and marks, which may have attributes that readers see.
# None reaches over another beginning, so that the time is linear.
_REGION = re.compile(
    r"(?:\$\$(?!\$)(?:[^$\n]|\n(?![ \t]*\n))+\$\$(?:[ \t]*(?:\{\#[^{}\n]*\}|\([\w:.-]+\)))?"
    r"|\\\[(?=[ \t]*\n|.*[=^_{}<>+])(?:(?!\\\[)[\s\S])*?\\\]"
    rf"|\\begin\{{(?P<name>[\w*]+)\}}(?:(?!\\begin\{{(?P=name)\}})[\s\S])*?\\end\{{(?P=name)\}}"
    rf"|\{{/\*(?:(?!\{{/\*)[\s\S])*?\*/\}}|(?P<mark>(?:</?[A-Z][\w.]*(?=[\s/>]){JSX}>[ \t]*)+)|{_CODE}"
    r"|(?P<begin>\{[%{][-<%]?[ \t]*)"
    r"(?P<tag>highlight|raw|comment|verbatim|code\w*|mermaid|math|katex|tab(?=[^{}]*\slang=))\b"
    r"(?:(?!(?P=begin)(?P=tag))[\s\S])*?\{[%{][-<%]?[ \t]*(?:end|/[ \t]*)(?P=tag)[^{}\n]*\}+"
    r"|\{\{[ -]*/\*(?:(?!\{\{)[\s\S])*?\*/[ -]*\}\}|\{\#\s(?:(?!\{\#)[\s\S])*?\#\}"
    r"|(?P<mark>\{\{[<%](?:(?!\{\{|\}\})[\s\S])*\}\}|\{%(?:(?!\{%|%\})[\s\S])*%\}"
    r"|:{2,}[ \t]*[\w-]*\{[^{}\n]*\n(?:[^{}\n]|\n(?![ \t]*\n))*\}"
    r"|:{2,}[{\w].*\n[ \t]*---\n(?:.*\n){0,50}?[ \t]*---)|\+[-=:+]{3,}\+(?:\n[ \t]*[+|].*)+"
    # Tables of pandoc whose cells are columns of characters: of one line each, and of several
    r"|(?:\S.*\n)?[> \t]*-{2,}(?:[ \t]+-{2,})+(?:\n[> \t]*[^>\s].*)+"
    r"|-{3,}[ \t]*(?:\n[> \t]*[^>\s].*){1,5}?\n[> \t]*-{2,}(?:[ \t]+-{2,})+(?:\n.*){1,500}?\n[> \t]*-{3,})"
    r"[ \t]*(?=\n|\Z)"
    r"|(?:import[ \t]+(?:.*\sfrom[ \t]+)?['\"]|import[ \t]*\{"
    r"|export[ \t]+(?:const|default|let|var|function|class|async|[{*]))(?:.|\n(?=[> \t]*[^> \t\n]))*"
)
# The beginning of HTML that ends at a blank line
ELEMENT = re.compile(r"\s*</?(?!(?:script|pre|style|textarea)\b)[a-z]", re.IGNORECASE)
# What the text behind it is indented to: a definition, and a footnote.
_ITEM = re.compile(r"[:~][ \t]+(?=\S)|\[\^[^\[\]\s]+\]:[ \t]*")


class Piece(NamedTuple):
    """A part of inline content."""

    # A "char" is escaped, a "space" is a reference, and an "end" of a line separates texts. What is "kept" stays
    # in text; "open" and "close" are the ends of a pair, and a "leaf" is other markup.
    kind: Literal["text", "char", "space", "image", "leaf", "kept", "open", "close", "end"]
    raw: str
    shown: str = ""  # the text, the name of a pair, or the alternative text of an image
    label: str | None = None  # of a link or image that is found by its text

    @property
    def whole(self) -> str:
        """The markup with the label of a link or image, which stays if its text is translated."""
        return self.raw if self.label is None else f"{self.raw.removesuffix('[]')}[{self.label}]"


def seen_attributes(markup: str, start: int = 0) -> dict[Span, str]:
    """Returns the values of attributes that readers see, such as captions, in quotes, by where they are."""
    values = {match.span("value"): match["value"] for match in _SEEN.finditer(markup, start)}
    return {span: value for span, value in values.items() if has_letters(value) and not _NO_WORDS.fullmatch(value)}


class MarkdownReader:
    """Reads a file: first its blocks, and then their inline content."""

    def __init__(self, protected: Protected, is_mdx: bool) -> None:
        self._parser, self.protected = _parser(is_mdx), protected
        self._definitions = dict[str, Any]()  # of references
        self.unreached = list[int]()  # lines that are nested too deep, from 1

    def blocks(self, source: str) -> "list[Token]":
        """Returns the tokens of the blocks in a file, and notes its reference definitions."""
        tokens: list[Token] = []
        self._parser.block.parse(source, self._parser, self._definitions, tokens)
        self.unreached = self._definitions.pop("unreached", [])
        return tokens

    def text(self, content: str) -> str:
        """Returns the text that readers see."""
        kinds = {"text", "char", "leaf", "kept"}
        return "".join(piece.shown for piece in self.pieces(content) if piece.kind in kinds)

    def is_paragraph(self, lines: Iterable[str]) -> bool:
        """Returns whether lines are one paragraph, also beside others."""
        tokens: list[Token] = []
        self._parser.block.parse("\n".join(lines), self._parser, {}, tokens)
        return [token.type for token in tokens] == ["paragraph_open", "inline", "paragraph_close"]

    def pieces(self, content: str) -> Iterator[Piece]:
        """Yields the parts of inline content."""
        pieces, position, unclosed = list(self._all_pieces(content)), 0, set[str]()
        while position < len(pieces):
            piece = pieces[position]
            position += 1
            if piece.kind == "open" and piece.shown not in unclosed and is_kept(piece.raw):
                same = (_DEPTH.get(other.kind, 0) * (other.shown == piece.shown) for other in pieces[position:])
                depths = accumulate(same)
                end = next((i for i, depth in enumerate(depths, position + 1) if depth < 0), None)
                if end is None:
                    unclosed.add(piece.shown)
                else:
                    inside = pieces[position:end]
                    shown = "".join(other.shown or other.raw for other in inside if other.kind not in _DEPTH)
                    piece, position = Piece("leaf", piece.raw + "".join(other.raw for other in inside), shown), end
            has_attributes = piece.kind in ("close", "leaf", "image", "kept") and piece.label is None
            if has_attributes and position < len(pieces) and re.fullmatch(_ATTRIBUTES, pieces[position].raw):
                piece = piece._replace(raw=piece.raw + pieces[position].raw)
                position += 1
            yield piece

    def _all_pieces(self, content: str) -> Iterator[Piece]:
        spans = self._kept_spans(content)
        parts, end = list[str](), 0
        for start, stop in spans:  # so that the parser sees text, or a link instead of text with attributes
            is_link = re.fullmatch(rf"\]{_ATTRIBUTES}", content[start - 1 : stop])
            mask = f"({'x' * (stop - start - 2)})" if is_link else SPECIAL.sub("x", content[start:stop])
            parts += [content[end:start], mask]
            end = stop
        masked = "".join([*parts, content[end:]])
        tokens: list[Token] = []
        self._parser.inline.parse(masked, self._parser, self._definitions, tokens)
        end, labels = 0, list[int]()
        for token in tokens:
            start, stop = token.meta.get("span", (0, 0))
            start -= token.type == "strong_open"  # the recorded span covers only one of the two characters
            stop += token.type == "strong_close"
            if stop <= end or token.type in ("text", "softbreak"):
                continue
            if token.type == "link_open" and (name := re.search(r"(?<![\w:]):[a-z][\w-]*$", content[end:start])):
                start = end + name.start()  # of a component of Nuxt
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
        protected = self.protected.spans(content)
        spans = [(span.start, span.stop) for span in protected if not _PARSED.match(span.word(content))]
        for match in _KEPT.finditer(content):
            math = next((inside for inside in match.group(*"abc") if inside is not None), None)
            spans += [match.span()] if math is None or _MATH.fullmatch(math) else []
        kept: list[Span] = []
        for start, stop in sorted(spans, key=lambda span: (span[0], -span[1])):
            if not kept or start >= kept[-1][1]:
                kept.append((start, stop))
        return kept


_DEPTH = {"open": 1, "close": -1}


def _text_pieces(content: str, start: int, stop: int, spans: Sequence[Span]) -> Iterator[Piece]:
    inside = spans[bisect_left(spans, (start, start)) : bisect_left(spans, (stop, stop))]
    for begin, end in [*inside, (stop, stop)]:
        if start <= begin and end <= stop:
            if start < begin:
                yield Piece("text", content[start:begin], content[start:begin])
            raw = content[begin:end]
            if raw:
                yield Piece("kept", raw, "" if re.fullmatch(_ATTRIBUTES, raw) else raw)
            start = end


def _piece(token: "Token", raw: str, label: str) -> Piece:
    is_shortcut = raw.removeprefix(f"![{label}") in ("]", "][]")
    name = " ".join(label.split()) if is_shortcut else None  # line breaks in a label do not matter
    match token.type:
        case "html_inline":
            tag = _TAG.fullmatch(raw)
            if not tag or tag[2].lower() == "br":
                return Piece("end" if tag else "leaf", raw)
            return Piece("close" if tag[1] else "open", raw, tag[2])
        case "hardbreak" | "text_special" if token.content in "\n\r\t":  # a hard break has no content
            return Piece("end", raw)
        case "text_special" if token.content.isspace():
            return Piece("space", raw)
        case "text_special":
            return Piece("char" if len(token.content) == 1 else "leaf", raw, token.content)
        case "image":
            return Piece("image", raw, label, name)
        case "link_close":
            return Piece("close", raw, token.tag, name)
        case "link_open" if token.markup == "autolink":
            return Piece("leaf", raw, raw[1:-1])
        case "code_inline":
            return Piece("leaf", raw, " ".join(raw.strip("`").split()))
    return Piece("open" if token.nesting > 0 else "close", raw, token.tag)


def _parser(is_mdx: bool) -> "MarkdownIt":
    """Returns a parser whose inline tokens have the span in the text that they are from as `meta["span"]`."""
    with importing("markdown-it-py", "Markdown", extra="documents"):
        from markdown_it import MarkdownIt
        from markdown_it.rules_block import fence, html_block, lheading, paragraph, reference

    def blocks(state: Any, line: int, last: int) -> None:
        if state.level < parser.options.maxNesting:
            tokenize(state, line, last)
            return
        # The parser would leave out everything up to the end of the file.
        while line < last and (state.isEmpty(line) or state.sCount[line] >= state.blkIndent):
            if has_letters(state.src[state.bMarks[line] : state.eMarks[line]]):
                state.env.setdefault("unreached", []).append(line + 1)
            line += 1
        state.line = line

    def at_any_indent(rule: Any, state: Any, line: int, last: int, silent: bool) -> bool:
        """Reads a block that is no code although it is indented."""
        indent, state.blkIndent = state.blkIndent, max(state.blkIndent, state.sCount[line])
        is_block: bool = rule(state, line, last, silent)
        state.blkIndent = indent
        return is_block

    def html(state: Any, line: int, last: int, silent: bool) -> bool:
        """Reads HTML up to a fence, because code in it is no text, or a tag that has Markdown below it."""
        opening = _line(state, line)
        is_outer = _OUTER.fullmatch(opening) or (is_mdx and re.fullmatch(rf"<[a-z]\w*{JSX}>[ \t]*", opening))
        outer = state.lineMax
        if is_outer and not is_kept(opening):
            state.lineMax = line + 1
        is_block = html_block(state, line, min(last, state.lineMax), silent)
        state.lineMax = outer
        if not is_block:
            return False
        tokens, end = len(state.tokens), state.line
        is_element = not silent and ELEMENT.match(state.tokens[-1].content)
        for row in range(line + 1, end if is_element else 0):
            is_fence = at_any_indent(fence, state, row, last, False)
            last_line = state.src[state.bMarks[state.line - 1] : state.eMarks[state.line - 1]].strip("> \t")
            if is_fence and state.line > row + 1 and re.fullmatch("`{3,}|~{3,}", last_line):
                token = state.tokens[tokens - 1]
                token.map, token.content = [line, row], state.getLines(line, row, state.blkIndent, True)
                break
            del state.tokens[tokens:]
            state.line = end
        return True

    def definition(state: Any, line: int, last: int, silent: bool) -> bool:
        is_footnote = state.src.startswith("[^", state.bMarks[line] + state.tShift[line])
        return not is_footnote and reference(state, line, last, silent)

    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    parser.block.ruler.at("reference", definition)
    inside: RuleOptionsType = {"alt": ["paragraph", "reference", "blockquote", "list"]}
    parser.block.ruler.before("table", "mark", _mark, inside)
    parser.block.ruler.before("table", "item", _item, inside)
    parser.block.ruler.before("fence", "directive", _directive, inside)
    parser.block.ruler.at("html_block", html, {"alt": ["paragraph", "reference", "blockquote"]})
    tokenize = parser.block.tokenize
    parser.block.tokenize = blocks  # type: ignore[method-assign,assignment] # rules call it for what is nested
    if is_mdx:
        parser.disable("code")
        parser.block.ruler.at("paragraph", partial(at_any_indent, paragraph))
        parser.block.ruler.at("lheading", partial(at_any_indent, lheading))
    parser.inline.ruler2.disable("fragments_join")
    for rule in parser.inline.ruler.__rules__:
        if rule.enabled:
            parser.inline.ruler.at(rule.name, partial(_recorded, rule.name, rule.fn))
    return parser


def _mark(state: "StateBlock", line: int, last: int, silent: bool) -> bool:
    """Reads lines that are no text: marks of extensions, math, and code of MDX."""
    if state.is_code_block(line):
        return False
    start, stop = state.bMarks[line] + state.tShift[line], state.eMarks[line]
    text = state.src[start:stop]
    region, mark = _REGION.match(state.src, start, state.eMarks[last - 1]), _MARK.fullmatch(text)
    if silent or not (region or mark):
        return bool(region or mark)
    state.line = line + 1
    # A mark does not raise the level, which has a limit.
    token = state.push("mark" if mark or region["mark"] else "code", "", 0)
    if region:
        while state.line < last and state.bMarks[state.line] < region.end():
            state.line += 1
    elif mark:
        _push_title(state, line, *max(map(mark.span, "abcdefgh")))
        end = state.eMarks[last - 1] if text.startswith(":::") else 0
        while _OPTION.match(state.src, state.bMarks[state.line], end):
            state.line += 1
    token.map = [line, state.line]
    if mark and mark["indents"]:
        _read_indented(state, line + 1, last, state.sCount[line] + 4)
    return True


def _directive(state: "StateBlock", line: int, last: int, silent: bool) -> bool:
    """Reads a fence around text: its title, its options, and the blocks in it."""
    opening = None if state.is_code_block(line) else _DIRECTIVE.fullmatch(_line(state, line))
    if not opening or silent:
        return bool(opening)
    closing = re.compile(rf"{opening['fence'][0]}{{{len(opening['fence'])},}}[ \t]*")
    end = next((row for row in range(line + 1, last) if closing.fullmatch(_line(state, row))), last)
    token, first = state.push("mark", "", 0), line + 1
    if opening["title"] and opening["name"] != "figure":  # whose argument is a path
        _push_title(state, line, *opening.span("title"))
    if first < end and _line(state, first).rstrip() == "---":  # options of YAML
        first = next((row + 1 for row in range(first + 1, end) if _line(state, row).rstrip() == "---"), first)
    while first < end and _OPTION.match(state.src, state.bMarks[first], state.eMarks[first]):
        first += 1
    token.map = [line, first]
    outer, state.lineMax = state.lineMax, end  # rules read up to there
    _read_indented(state, first, end, state.blkIndent)
    state.lineMax, state.line = outer, min(end + 1, last)
    return True


def _line(state: "StateBlock", line: int) -> str:
    return state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]]


def _push_title(state: "StateBlock", line: int, begin: int, stop: int) -> None:
    """Adds the title that lies in a part of a mark's line, without what the line is indented by."""
    inline, start = state.push("inline", "", 0), state.bMarks[line] + state.tShift[line]
    inline.content, inline.map, inline.children = _line(state, line)[begin:stop].strip(), [line, line + 1], []
    inline.meta["column"] = start + begin - state.src.rfind("\n", 0, start) - 1


def _item(state: "StateBlock", line: int, last: int, silent: bool) -> bool:
    """Reads a definition of a term, or a footnote."""
    start = state.bMarks[line] + state.tShift[line]
    item = None if state.is_code_block(line) else _ITEM.match(state.src, start, state.eMarks[line])
    if not item:
        return False
    if not silent:
        indent = state.sCount[line] + (2 if item[0].startswith((": ", "~ ")) else 4)
        # The line begins behind the label.
        state.bMarks[line], state.tShift[line], state.sCount[line] = item.end(), 0, indent
        _read_indented(state, line, last, indent)
    return True


def _read_indented(state: "StateBlock", line: int, last: int, indent: int) -> None:
    """Reads the blocks that begin here and are indented by `indent` columns."""
    outer, state.blkIndent = state.blkIndent, indent
    state.level += 1  # which has a limit
    state.md.block.tokenize(state, line, last)
    state.blkIndent = outer
    state.level -= 1


def _recorded(name: str, rule: Callable[..., bool], state: "StateInline", silent: bool) -> bool:
    """Runs a rule of the parser, and notes the spans of its tokens."""
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
        is_mark = name in ("emphasis", "strikethrough")
        stop = start + len(token.content) if is_mark else state.pos
        token.meta["span"] = (start, stop)
        start = stop if is_mark else start
    return True
