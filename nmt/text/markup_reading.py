"""Reads HTML and XML as tokens, and writes them.

All markup stays as it is written, also where it is wrong. HTML is read as browsers read it: an unclosed comment or
tag reaches to the end, and what is in a script, a title or a textarea is no markup.
"""

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from html import escape, unescape
from html.entities import html5
from itertools import groupby, takewhile
from operator import itemgetter
from typing import Literal, NamedTuple
from xml.parsers import expat

import regex as re

from nmt.errors import NmtError
from nmt.text.languages import base_language
from nmt.text.marked import MarkedText, Token, marked_texts, merged
from nmt.text.protected import Protected
from nmt.text.words import one_line


class ElementRules(NamedTuple):
    """What a user wants of elements, by their names."""

    kept: frozenset[str] = frozenset()  # stay as they are
    splitting: frozenset[str] = frozenset()  # end a text
    non_splitting: frozenset[str] = frozenset()  # are part of the text around them
    is_automatic: bool = True  # whether elements without a rule may end a text


NO_RULES = ElementRules()


def _names(names: str) -> frozenset[str]:
    return frozenset(names.split())


_VOID = _names("area base br col embed hr img input link meta param source track wbr")
_UNTRANSLATED = _names("code kbd math pre rp rt samp script style svg var")
_WORDLESS = _names("rp rt svg")  # what is in them is no word of the sentence around them
# Classes of elements that are not translated: by choice, formulas of KaTeX, MathJax and pandoc, and names of icons.
_KEPT_CLASS = re.compile("(notranslate|katex|math|mathjax)$|material-(icons|symbols)")
# Elements whose content is text without markup, which is not translated.
_LITERAL = "iframe|noembed|noframes|plaintext|script|style|xmp"
_ENDS_PARAGRAPH = (
    "address article aside blockquote center details dialog dir div dl fieldset figcaption figure footer form h1 h2 h3 "
    "h4 h5 h6 header hgroup hr main menu nav ol p pre search section table ul"
)
# Unknown elements are inline, as they are in browsers.
BLOCKS = _names(
    f"{_ENDS_PARAGRAPH} body br button caption col colgroup dd dt head html label legend li link meta noscript "
    "optgroup option select summary tbody td template textarea tfoot th thead title tr"
)
# The elements that a start tag ends, and the elements around them within which it does, by the name of the tag.
_ENDS = {
    name: (_names(ended), _names(around))
    for names, ended, around in (
        (_ENDS_PARAGRAPH, "p", "button caption math object svg table td template th"),
        ("li", "li p", "button dir menu ol table td th ul"),
        ("dd dt", "dd dt p", "button dl table td th"),
        ("td th", "td th", "table tr"),
        ("tr", "td th tr", "table"),
        ("tbody tfoot thead", "tbody td tfoot th thead tr", "table"),
        ("optgroup option", "option", "datalist select"),
    )
    for name in names.split()
}
# These expressions follow the HTML standard. html.parser gives no source text of end tags and comments, and takes
# quadratic time for unclosed tags, which possessive repetition avoids here (in Python's `re`, it has faults before
# 3.11.5). Tags may have code of programs inside.
_PROGRAM = r"<%.{0,999}?%>|<\?(?:php\b|=).{0,999}?\?>"
_CODE = rf"{_PROGRAM}|\{{\{{[^{{}}<>]{{0,999}}\}}\}}|\{{%[^{{}}<>]{{0,999}}?%\}}"  # in values, also that of templates
_VALUE = (
    "|".join(rf"{q}[^{q}<{{]*+(?:(?:{_CODE}|[<{{])[^{q}<{{]*+)*+(?:{q}|\Z)" for q in "\"'") + r"""|[^\s>"'][^\s>]*+"""
)
_CODE_OR_SPECIAL = re.compile(f"({_CODE})|[&<>\"']", re.DOTALL | re.ASCII)
_ATTRIBUTE = rf"[^\s>/][^\s>/=]*+(?:\s*+=\s*+(?:{_VALUE}))?"
_ATTRIBUTE_OR_PROGRAM = re.compile(f"{_PROGRAM}|{_ATTRIBUTE}", re.DOTALL | re.ASCII)
_ATTRIBUTES = rf"(?:\s|/(?!>)|{_PROGRAM}|{_ATTRIBUTE})*+"
_TAG = rf"[^\s/>]*+)(?P<attributes>{_ATTRIBUTES})(?P<empty>/?)(?P<last>>|\Z)"
_HTML = re.compile(
    rf"<!--(?:-?>|.*?--!?>|.*)|<!\[CDATA\[(?:(?!<!\[CDATA\[).)*?\]\]>|<\?(?:php\b|=).*?(?:\?>|\Z)|<%.{{0,9999}}?%>"
    rf"|<(?:[!?]|/(?![a-z]))[^>]*+(?:>|\Z)"
    rf"|<(?P<literal>{_LITERAL})(?=[\s>])(?P<attributes>{_ATTRIBUTES})>.*?(?:</(?P=literal)(?=[\s/>])[^>]*+(?:>|\Z)|\Z)"
    rf"|<(?P<end>/?)(?P<name>[a-z]{_TAG}",
    re.DOTALL | re.IGNORECASE | re.ASCII,
)
_SVG_TITLE = re.compile(r"(?<=<(title|desc)(?:\s[^<>]*)?>\s*)[^<\s][^<]*(?=</\1)", re.IGNORECASE)
_QUOTED = r"""\"[^\"]*+\"|'[^']*+'"""
_MISC = r"<!--.*?-->|<\?.*?\?>"
_DOCTYPE = rf"<!DOCTYPE(?:{_QUOTED}|\[(?:{_QUOTED}|{_MISC}|[^\]\"'])*+\]|[^>\[\"'])*+>"
_XML = re.compile(rf"{_MISC}|<!\[CDATA\[.*?\]\]>|{_DOCTYPE}|<(?P<end>/?)(?P<name>[^\s/>!?]{_TAG}", re.DOTALL | re.ASCII)
# What only the beginning of a document may have.
_PROLOG = re.compile(rf"(?:<\?xml\s[^>]*\?>)?(?:(?:\s|{_MISC})*+{_DOCTYPE})?", re.DOTALL | re.ASCII)
_REFERENCE = re.compile(r"&(?:#[0-9]+;?|#[xX][0-9a-fA-F]+;?|[0-9a-zA-Z]+;?)")
_LONGEST_REFERENCE = max(map(len, html5))
_SPACES = " \t\n\r\f\v"


def parse(
    text: str, markup: Literal["html", "xml"], protected: Protected, lang: str = "", rules: ElementRules = NO_RULES
) -> list[Token | MarkedText]:
    """Returns the marked texts of a fragment, and the markup between them.

    Block elements of HTML end a text, and so do elements of XML that are in no element with text of its own, and
    elements of HTML that only touch each other, such as the links of a menu.

    Elements with translate="no" and those in another language stay as they are, except for what an element inside
    says the opposite of. So do CDATA sections of XML, and in HTML the class notranslate and code, kbd, math, pre,
    samp, script, style, svg and var. Misnested end tags of HTML stay in their order.

    Args:
        protected: finds what stays in the texts.
        lang: the language code of the text; empty if elements of all languages are translated.
        rules: for elements of these names. The names of elements of HTML are in lower case.

    Raises:
        NmtError: the XML is not well-formed, or text is in too many elements.
    """
    is_html = markup == "html"
    if not is_html:
        # A fragment may have several elements, and text, at the top. Nothing is loaded that a DOCTYPE names.
        inside = _PROLOG.sub(r"\g<0><x>", text, count=1) + "</x>"
        try:
            expat.ParserCreate("utf-8").Parse(inside.encode(errors="surrogatepass"), True)
        except expat.ExpatError as error:
            reason = expat.ErrorString(error.code)
            raise NmtError(f"the XML is not well-formed in line {error.lineno} ({reason}); correct it") from error
    return parse_scanned(scanned(text, lang, rules.kept, is_html=is_html), protected, rules, is_html=is_html)


def parse_scanned(
    scanned: Iterable[Token], protected: Protected, rules: ElementRules = NO_RULES, *, is_html: bool = True
) -> list[Token | MarkedText]:
    """Returns the same as `parse`, given tokens of HTML or XML, whose tags may not be nested."""
    tokens = _nested(list(scanned), is_html=is_html)
    content: list[Token | MarkedText] = []
    for _, pairs in groupby(zip(_are_blocks(tokens, rules, is_html=is_html), tokens, strict=True), itemgetter(0)):
        group = [token for _, token in pairs]
        if is_html and any(token.name == "br" for token in group):
            group = _with_lines(group)
        is_whole = not rules.is_automatic or any(token.name in rules.non_splitting for token in group)
        has_text = any(token.is_visible_text for token in group)
        content += marked_texts(group, protected, is_whole=is_whole) if has_text else group
    return content


def written(tokens: Iterable[Token]) -> str:
    """Returns tokens as HTML or XML."""
    return "".join(_written_text(token) if token.kind == "text" else token.raw for token in merged(tokens))


def _written_text(token: Token) -> str:
    """Returns text as the source spells it, if that has the same meaning here."""
    if not token.item:
        return escape(token.text, quote=False)
    spelt, following, is_literal = list[str](), "", False  # from the end
    for character, spelling in reversed(list(zip(token.text, token.item, strict=True))):
        new = escape(character, quote=False) if spelling is None else spelling
        if new == "<" and not is_literal and re.match("[a-zA-Z/!?]", following):
            new = "&lt;"
        is_open = new.startswith("&") and not new.endswith(";")
        if is_open and unescape(new + following) != character + unescape(following):
            new = "&amp;" if new == "&" else f"{new};"
        spelt.append(new)
        following, is_literal = (new + following)[:_LONGEST_REFERENCE], spelling is not None
    return "".join(reversed(spelt))


def text_token(raw: str) -> Token:
    """Returns text of HTML or XML, which may have references."""
    if not re.search("[&<>]", raw):
        return Token("text", raw)
    spelt = spellings(raw)
    return Token("text", unescape(raw), [each if len(each) != 1 or each in "&<>" else None for each in spelt])


def spellings(raw: str) -> list[str]:
    """Returns how text writes each of its characters. A semicolon may be missing behind a reference of HTML.

    The second of two characters that one reference stands for is written with the first one.
    """
    spelt, start = list[str](), 0
    for match in _REFERENCE.finditer(raw):
        reference = match[0]
        if reference[1] != "#":
            stops = range(min(len(reference), _LONGEST_REFERENCE + 1), 1, -1)
            reference = next((reference[:stop] for stop in stops if reference[1:stop] in html5), "&")
        spelt += raw[start : match.start()]
        spelt += [reference, ""][: len(unescape(reference))]  # some stand for two characters
        start = match.start() + len(reference)
    return [*spelt, *raw[start:]]


@lru_cache(10_000)
def is_kept(tag: str) -> bool:
    """Returns whether an element of HTML with this start tag stays as it is."""
    token = next(scanned(tag, is_html=True))
    return tag[1:2].isalpha() and (token.is_kept if token.kind == "start" else token.kind == "leaf" and not token.name)


def with_attributes(
    tokens: Iterable[Token], change: Callable[[str, Mapping[str, str]], Mapping[str, str]]
) -> Iterator[Token]:
    """Yields tokens of HTML with other values of attributes, or titles of SVG. What is not translated keeps its own.

    Args:
        change: returns the new values by the names of attributes, given the name of an element and the values of
            its attributes. All names are in lower case. An attribute that the element lacks is added.
    """

    @cache  # a page has many equal tags
    def changed_tag(raw: str) -> str:
        tag = _HTML.match(raw)
        element = (tag["name"] or tag["literal"] or "").lower() if tag else ""
        if not tag or tag["end"] or element in ("", "script", "style"):  # a lone end tag or the like
            return raw
        old = _attributes(tag["attributes"])
        if old.get("translate", "").lower() == "no":
            return raw
        new = {name: value for name, value in change(element, old).items() if old.get(name) != value}

        def changed(match: re.Match[str]) -> str:
            name, equals, old_value = re.split(r"(\s*=\s*|\Z)", match[0], maxsplit=1)
            value = new.pop(name.lower(), None)
            quote = old_value[0] if old_value.startswith(("'", '"')) else '"'
            return match[0] if value is None else f"{name}{equals or '='}{quote}{_escaped(value, old_value)}{quote}"

        start, stop = tag.span("attributes")
        attributes = _ATTRIBUTE_OR_PROGRAM.sub(changed, tag["attributes"]) if new else tag["attributes"]
        added = "".join(f' {name}="{escape(value)}"' for name, value in new.items())
        return f"{raw[:start]}{attributes}{added}{raw[stop:]}"

    def titled(title: re.Match[str]) -> str:
        old = unescape(title[0])
        new = change("svg", {"title": old}).get("title", old)
        return title[0] if new == old else escape(new, quote=False)

    for token in tokens:
        if token.kind in ("start", "leaf") and not token.is_kept:
            token = token._replace(item=changed_tag(token.raw))
        elif token.name == "svg" and not any({**token.kept_by, "name": False}.values()):
            token = token._replace(item=_SVG_TITLE.sub(titled, token.raw))
        yield token


def _escaped(value: str, old_value: str) -> str:
    """Returns a value as an attribute writes it. Code of programs and templates is written as in the old value."""
    codes = {unescape(code[1]): code[1] for code in _CODE_OR_SPECIAL.finditer(old_value) if code[1]}
    return _CODE_OR_SPECIAL.sub(lambda match: codes.get(match[0]) or escape(match[0]), value)


def _attributes(text: str) -> dict[str, str]:
    """Returns the values of attributes by their names in lower case."""
    pairs = (attribute.partition("=") for attribute in _ATTRIBUTE_OR_PROGRAM.findall(text)[::-1])  # the first counts
    raw = {name.strip().lower(): value.strip() for name, _, value in pairs}
    return {name: unescape(value[1:-1] if value[:1] in ("'", '"') else value) for name, value in raw.items()}


def scanned(text: str, lang: str = "", kept: Container[str] = (), *, is_html: bool, marks: str = "") -> Iterator[Token]:
    """Yields the tokens of HTML or XML, whose tags may not be nested. `marks` is a pattern of other markup."""
    start, known = 0, dict[str, Token]()  # a page has many equal tags
    pattern = _HTML if is_html else _XML
    pattern = re.compile(f"{marks}|{pattern.pattern}", pattern.flags) if marks else pattern
    text = text.replace("\0", "\ufffd") if is_html else text  # as the HTML standard says
    while match := pattern.search(text, start):
        if match.start() > start:
            yield text_token(text[start : match.start()])
        if (token := known.get(match[0])) is None:
            token = known[match[0]] = _markup(match, lang, kept, is_html=is_html)
        yield token
        start = match.end()
        if is_html and token.kind == "start" and token.name in ("textarea", "title"):  # which have no markup inside
            end = re.compile(rf"</{token.name}(?=[\s/>])", re.IGNORECASE | re.ASCII).search(text, start)
            stop = end.start() if end else len(text)
            lines = r"(\r\n|\r|\n)" if token.name == "textarea" else "(?!)"
            for i, line in enumerate(re.split(lines, text[start:stop])):
                if line:
                    spelt = spellings(line)
                    yield Token("leaf", item=line, name="br") if i % 2 else Token("text", unescape(line), spelt)
            start = stop
    if start < len(text):
        yield text_token(text[start:])


def _markup(match: re.Match[str], lang: str, kept: Container[str], *, is_html: bool) -> Token:
    """Returns the token of a tag, a comment or the like."""
    raw, name = match[0], match["name"] or ""
    name = name.lower() if is_html else name
    if match["end"]:
        return Token("end", item=raw, name=name)
    if not match["last"]:  # a comment or the like, or a tag that does not end
        words = one_line(raw[9:-3]) if not is_html and raw.startswith("<![CDATA[") else ""
        return Token("leaf", words, raw, role="hidden")
    values = _attributes(match["attributes"])
    says = {"yes": False, "no": True}.get(values.get("translate", "").lower())
    classes = values.get("class", "").lower().split() if is_html else []
    if says is None and any(_KEPT_CLASS.match(each) for each in classes):
        says = True
    kept_by = {} if says is None and name not in kept else {"translate": says or name in kept, "name": False}
    kept_by |= {"name": True} if says is None and is_html and name in _UNTRANSLATED else {}
    language = values.get("lang") or values.get("xml:lang")
    is_code = re.fullmatch(r"[a-zA-Z]+(?:[_-]\w+)*", language or "")  # and not one of a template
    if lang and language and is_code and name not in ("html", "body"):  # which often name a wrong language
        kept_by["lang"] = base_language(language) != base_language(lang)
    is_empty = match["empty"] or (is_html and name in _VOID)
    return Token("leaf" if is_empty else "start", item=raw, name=name, kept_by=kept_by)


def _nested(scanned: list[Token], *, is_html: bool) -> list[Token]:
    """Returns tokens with nested tags. Empty elements, lone tags, and elements that are not translated are leaves."""
    tokens: list[Token] = []
    unclosed: list[int] = []  # the start tags of elements
    depths = defaultdict[str, list[int]](list)  # the numbers of elements in `unclosed`, by their names

    def close(depth: int, end: Token | None = None) -> None:
        """Closes the elements down to a depth, and the last of them with its end tag."""
        while len(unclosed) > depth:
            start = unclosed.pop()
            opening = tokens[start]
            depths[opening.name].pop()
            has_end = end is not None and len(unclosed) == depth
            tokens.extend([end] if end and has_end else [])
            if opening.is_kept and any(token.kind == "text" and not token.is_kept for token in tokens[start:]):
                tokens[start] = opening._replace(kind="start" if has_end else "leaf", role="hidden")
                for i, token in reversed(list(enumerate(tokens[start:], start))):
                    if token.is_visible_text and token.is_kept:
                        left, core, right = _with_edges(token)
                        leaf = core._replace(kind="leaf", text=one_line(core.text), item=core.raw)
                        tokens[i : i + 1] = left, leaf, right
            elif opening.is_kept or (has_end and start == len(tokens) - 2):
                whole = "".join(token.raw for token in tokens[start:])
                words = "" if opening.name in _WORDLESS else "".join(token.text for token in tokens[start:])
                tokens[start:] = [opening._replace(kind="leaf", item=whole, text=one_line(words), role="hidden")]
            elif not has_end:
                tokens[start] = opening._replace(kind="leaf", role="hidden")

    for n, token in enumerate(scanned):
        name = token.name
        if token.kind == "end" and depths[name]:
            inner = tokens[unclosed[-1]].name
            if inner != name and inner not in BLOCKS:  # misnested end tags close each other's elements
                following = takewhile(lambda i: scanned[i].name not in BLOCKS, range(n + 1, min(n + 50, len(scanned))))
                later = next((i for i in following if scanned[i].name == inner), n)
                if later > n and scanned[later].kind == "end":
                    scanned[later] = scanned[later]._replace(name=name)
                    token, name = token._replace(name=inner), inner
            close(depths[name][-1], token)
            continue
        if is_html and name in _ENDS and token.kind != "end":
            ended, stops = _ENDS[name]
            barrier = max((depths[stop][-1] for stop in stops if depths[stop]), default=-1)
            close(min((depth for other in ended for depth in depths[other] if depth > barrier), default=len(unclosed)))
        if unclosed and (around := tokens[unclosed[-1]].kept_by):
            token = token._replace(kept_by={**around, **token.kept_by})
        tokens.append(token._replace(kind="leaf", role="close") if token.kind == "end" else token)
        if token.kind == "start":
            depths[name].append(len(unclosed))
            unclosed.append(len(tokens) - 1)
    close(0)
    return tokens


def _are_blocks(tokens: Sequence[Token], rules: ElementRules, *, is_html: bool) -> list[bool]:
    """Returns whether each token ends a marked text. A br in an inline element does not."""
    around, unclosed = [], [-1]  # the start tag of the element around each token, or -1; for an end tag, its start tag
    for i, token in enumerate(tokens):
        around.append(unclosed.pop() if token.kind == "end" else unclosed[-1])
        if token.kind == "start":
            unclosed.append(i)
    names = ((BLOCKS if is_html and rules.is_automatic else frozenset()) | rules.splitting) - rules.non_splitting
    blocks = {-1, *(i for i, token in enumerate(tokens) if token.kind == "start" and token.name in names)}
    if rules.is_automatic and not is_html:
        with_text = {around[i] for i, token in enumerate(tokens) if token.is_visible_text}
        for i, token in enumerate(tokens):
            if token.kind == "start":  # an element in one with text counts as one, and so does one that ends no text
                is_inline = around[i] in with_text or token.name in rules.non_splitting
                (with_text if is_inline else blocks).add(i)
    for i, token in reversed(list(enumerate(tokens))):  # an element that contains a block is a block
        if i in blocks or (token.kind == "leaf" and token.name in names and token.name != "br"):
            blocks.add(around[i])
    return [
        i in blocks or ((token.kind == "end" or token.name in names) and around[i] in blocks)
        for i, token in enumerate(tokens)
    ]


def _with_lines(tokens: Iterable[Token]) -> list[Token]:
    """Returns the tokens of a text in which each br is the end of a line, together with the spaces around it."""
    pieces = [piece for token in tokens for piece in (_with_edges(token) if token.kind == "text" else [token])]
    lines: list[Token] = []
    for is_edge, run in groupby(pieces, lambda piece: piece.name == "br" or not piece.raw.strip(_SPACES)):
        edge = list(run)
        is_line = is_edge and any(piece.name == "br" for piece in edge)
        lines += [Token("leaf", "\n", "".join(piece.raw for piece in edge), "br")] if is_line else edge
    return lines


def _with_edges(token: Token) -> tuple[Token, Token, Token]:
    """Returns the spaces at the beginning of a text, the text between, and the spaces at its end."""
    start, stop = len(token.text) - len(token.text.lstrip(_SPACES)), len(token.text.rstrip(_SPACES))
    return token.cut(0, start), token.cut(start, stop), token.cut(max(start, stop))


def text_only(text: str) -> str:
    """Returns text without the characters that XML does not allow."""
    return "".join(
        c for c in text if c in "\t\n\r" or " " <= c < "\ud800" or (c > "\udfff" and c not in "\ufffe\uffff")
    )
