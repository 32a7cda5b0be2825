"""Reads marked-up text: HTML and XML, cut into the marked texts that are translated and the markup between them."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from html import escape, unescape
from itertools import chain, groupby
from typing import Literal
from xml.parsers import expat

from nmt.errors import NmtError
from nmt.text.markup_writing import MarkedText, Token

_VOID = "area base br col embed hr img input link meta param source track wbr"
_UNTRANSLATED = "code kbd pre samp script style var"
_OPTIONAL_END = "body caption colgroup dd dt head html li optgroup option p rp rt tbody td tfoot th thead tr"
# Unknown elements are inline, as they are in browsers.
_BLOCKS = (
    "address article aside blockquote body br button caption center col colgroup dd details dialog dir div dl dt "
    "fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 head header hgroup hr html legend li link main menu meta "
    "nav noscript ol optgroup option p pre search section select summary table tbody td template textarea tfoot th "
    "thead title tr ul"
)
# These expressions follow the HTML standard. html.parser gives no source text of end tags and comments, drops the text
# of an unclosed script, and takes quadratic time for unclosed tags, which possessive repetition avoids here.
_ATTRIBUTE = r"""[^\s<>/=]+(?:\s*=\s*(?:"[^"]*"|'[^']*'|[^\s<>"'][^\s<>]*))?"""
_ATTRIBUTES = rf"(?:\s|/(?!>)|{_ATTRIBUTE})*+"
_TAG = rf"<(?P<end>/?)(?P<name>[^\s<>/!?\0][^\s<>/]*+)(?P<attributes>{_ATTRIBUTES})(?P<empty>/?)>"
_UNFINISHED = re.compile(r"(?P<unfinished><!--|<(?:script|style)(?=[\s/>]))", re.IGNORECASE | re.ASCII)
_HTML = re.compile(
    rf"<!--(?:-?>|.*?--!?>)|<[!?](?!--)[^>]*>"
    rf"|<(?P<script>script|style)(?=[\s/>]){_ATTRIBUTES}/?>.*?</(?P=script)(?=[\s/>])[^>]*>"
    rf"|{_UNFINISHED.pattern}|(?=</?[a-z]){_TAG}",
    re.DOTALL | re.IGNORECASE | re.ASCII,
)
_XML = re.compile(rf"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>|{_TAG}", re.DOTALL | re.ASCII)
_PLACEHOLDER = re.compile(
    r"""((?:https?://|www\.)(?:[^\s<>"'&]|&amp;|&(?=\w+=))*[\w/]|(?<![\w.+-])[\w.+-]++@[\w-]+(?:\.[\w-]+)+"""
    r"""|\{\{[^{}]*\}\}|\$?\{[^{}\s]*\}|(?<!\d)%(?:\(\w+\)|\d+\$)?[-+#0]*+\d*+(?:\.\d+)?[@cdEeFfGgiorsuXx])"""
)
# Each change between words in an element and others may close and open all elements around it again.
_DEEPEST = 100


def parse(text: str, markup: Literal["html", "xml"]) -> list[str | MarkedText]:
    """Returns the marked texts of a fragment, and the markup between them.

    Block elements of HTML end a text, and so do elements of XML that are in no element with text of its own.

    Elements with translate="no" stay as they are. So do CDATA sections of XML, and in HTML the class notranslate and
    code, kbd, pre, samp, script, style and var. HTML is repaired: stray end tags are left out, missing ones are added.

    Raises:
        NmtError: the XML is not well-formed, a comment or script of the HTML does not end, or text is in too many
            elements.
    """
    tokens = _nested(text, is_html=markup == "html")
    are_blocks = _are_blocks(tokens, _BLOCKS.split() if markup == "html" else None)
    parts: list[str | MarkedText] = []
    for is_block, pairs in groupby(zip(are_blocks, tokens, strict=True), key=lambda pair: pair[0]):
        group = [token for _, token in pairs]
        if not is_block and any(map(_has_text, group)):
            depth = 1
            for token in group:
                depth += (token.kind == "start") - (token.kind == "end")
                if depth + (token.kind == "leaf") > _DEEPEST:
                    raise NmtError(
                        f"{token.raw:.40} is in {_DEEPEST} elements around the same text; nest fewer elements, or "
                        f"leave out the markup"
                    )
            parts.append(MarkedText(group))
        else:
            parts.append("".join(token.raw for token in group))
    return parts


def with_attributes(html: str, change: Callable[[str, str, str], str]) -> str:
    """Returns repaired HTML with other values of attributes. Elements that are not translated keep theirs.

    Args:
        change: returns the new value, given the names of element and attribute in lower case, and the value.
    """

    def changed(element: str, match: re.Match[str]) -> str:
        name, *assigned = re.split(r"(\s*=\s*)", match[0], maxsplit=1)
        if not assigned:
            return name
        equals, raw = assigned
        quote = raw[0] if raw.startswith(("'", '"')) else ""
        old = unescape(raw[1:-1] if quote else raw)
        new = change(element, name.lower(), old)
        return match[0] if new == old else "".join([name, equals, quote or '"', escape(new), quote or '"'])

    def written(token: Token) -> str:
        if token.is_kept or not token.name or token.kind == "end":
            return token.raw
        start = 1 + len(token.name)
        return token.raw[:start] + re.sub(_ATTRIBUTE, partial(changed, token.name), token.raw[start:])

    return "".join(map(written, _nested(html, is_html=True)))


def _has_text(token: Token) -> bool:
    return token.kind == "text" and bool(unescape(token.raw).strip())


def _scanned(text: str, is_html: bool) -> Iterator[Token]:
    """Yields the tokens of a text, whose tags may not be nested."""
    start, known = 0, dict[str, Token]()  # a page has many equal tags
    if is_html:
        # No markup ends behind the last >, and to look for its end there would take quadratic time.
        end = text.rfind(">") + 1
        matches = chain(_HTML.finditer(text, 0, end), _UNFINISHED.finditer(text, end))
    else:
        matches = chain(_XML.finditer(text))
    for match in chain(matches, [None]):
        # Half a tag is text, and must not become a whole one together with what follows.
        between = re.sub("<(?=[a-zA-Z/!?])", "&lt;", text[start : match.start() if match else len(text)])
        for i, raw in enumerate(_PLACEHOLDER.split(between)):
            if raw:
                yield Token("leaf", raw, text=unescape(raw)) if i % 2 else Token("text", raw)
        if match:
            if match[0] not in known:
                known[match[0]] = _markup(match, is_html)
            yield known[match[0]]
            start = match.end()


def _markup(match: re.Match[str], is_html: bool) -> Token:
    """Returns the token of a tag, a comment or the like."""
    if is_html and match["unfinished"]:
        raise NmtError(f"the HTML has {match[0]} at character {match.start() + 1:,}, which does not end; add its end")
    raw, name = match[0], match["name"] or ""
    name = name.lower() if is_html else name
    if match["end"]:
        return Token("end", raw, name)
    if not name:
        return Token("leaf", raw, text=" ".join(raw[9:-3].split()) if raw.startswith("<![CDATA[") else "")
    pairs = (attribute.partition("=") for attribute in re.findall(_ATTRIBUTE, match["attributes"])[::-1])
    values = {key.strip().lower(): value.strip().strip("\"'").lower() for key, _, value in pairs}
    is_kept = is_html and (name in _UNTRANSLATED.split() or "notranslate" in values.get("class", "").split())
    is_empty = match["empty"] or (is_html and name in _VOID.split())
    return Token("leaf" if is_empty else "start", raw, name, is_kept=is_kept or values.get("translate") == "no")


def _nested(text: str, *, is_html: bool) -> list[Token]:
    """Returns tokens with nested tags. An element that is not translated becomes a leaf."""
    if is_html:
        text = text.replace("\0", "\ufffd")  # as the HTML standard says
    else:
        declaration = "".join(re.findall(r"\A<\?xml\s[^>]*\?>", text))
        # A fragment may have several elements, and text, at the top.
        inside = f"{declaration}<x>{text[len(declaration) :]}</x>"
        try:
            expat.ParserCreate("utf-8").Parse(inside.encode(errors="surrogatepass"), True)
        except expat.ExpatError as error:
            reason = expat.ErrorString(error.code)
            raise NmtError(
                f"the XML is not well-formed in line {error.lineno} ({reason}); correct it, and leave out any DTD"
            ) from error
    tokens: list[Token] = []
    unclosed: list[int] = []
    counts = Counter[str]()

    def close(end: Token) -> None:
        start = unclosed.pop()
        name = tokens[start].name
        counts[name] -= 1
        tokens.append(end)
        if tokens[start].is_kept:
            words = "".join(unescape(token.raw) if token.kind == "text" else token.text for token in tokens[start:])
            whole = "".join(token.raw for token in tokens[start:])
            tokens[start:] = [Token("leaf", whole, name, " ".join(words.split()), is_kept=True)]

    for token in chain(_scanned(text, is_html), [Token("end", "")]):
        if token.kind == "end" and (counts[token.name] or not token.name):
            while unclosed and (inner := tokens[unclosed[-1]].name) != token.name:
                close(Token("end", "" if inner in _OPTIONAL_END.split() else f"</{inner}>", inner))
            if unclosed:
                close(token)
        elif token.kind != "end":
            tokens.append(token)
            if token.kind == "start":
                unclosed.append(len(tokens) - 1)
                counts[token.name] += 1
    return tokens


def _are_blocks(tokens: Sequence[Token], names: Sequence[str] | None) -> list[bool]:
    """Returns whether each token ends a marked text. An empty element in an inline one, such as br in b, does not."""
    around, unclosed = [], [-1]  # the start tag of the element around each token, or -1; for an end tag, its start tag
    for i, token in enumerate(tokens):
        around.append(unclosed.pop() if token.kind == "end" else unclosed[-1])
        if token.kind == "start":
            unclosed.append(i)
    starts = [i for i, token in enumerate(tokens) if token.kind == "start"]
    if names is None:
        with_text = {around[i] for i, token in enumerate(tokens) if _has_text(token)}
        for i in starts:  # an element in an element with text counts as one
            with_text |= {i} if around[i] in with_text else set()
        blocks = {i for i in starts if around[i] not in with_text}
    else:
        blocks = {i for i in starts if tokens[i].name in names}
        for i in reversed(starts):  # an element that contains a block is a block
            blocks |= {around[i]} if i in blocks else set()
    blocks.add(-1)
    return [
        i in blocks or ((token.kind == "end" or token.name in (names or ())) and around[i] in blocks)
        for i, token in enumerate(tokens)
    ]
