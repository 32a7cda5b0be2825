"""HTML: the text of a page, and the attributes that users see."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from nmt.documents.content import passage, plain
from nmt.documents.document import FRONT_MATTER, Document, ReadOptions, decoded, encoded, marked_encoding
from nmt.text.languages import is_right_to_left
from nmt.text.marked import Token
from nmt.text.markup_reading import parse, with_attributes, written
from nmt.text.words import has_letters
from nmt.translate.units import Unit

_CHARSET = re.compile(
    rb"""(?i)<meta\s[^>]*?\bcharset\s*=\s*["']?\s*([\w.:-]+)|<\?xml\s[^>]*?encoding\s*=\s*["']([\w.:-]+)"""
)
# What browsers read where a page declares another encoding. A declaration in ASCII cannot be in UTF-16.
_ENCODINGS = {
    **dict.fromkeys(["ascii", "iso-8859-1", "iso8859-1", "latin1", "latin-1", "us-ascii", "windows-1252"], "cp1252"),
    **dict.fromkeys(["big5", "big5-hkscs"], "big5hkscs"),
    **dict.fromkeys(["euc-kr", "ks_c_5601-1987", "ksc5601"], "cp949"),
    **dict.fromkeys(["gb2312", "gbk"], "gb18030"),
    **dict.fromkeys(["iso-8859-9", "latin5"], "cp1254"),
    **dict.fromkeys(["iso-8859-11", "tis-620", "windows-874"], "cp874"),
    **dict.fromkeys(["shift_jis", "shift-jis", "x-sjis"], "cp932"),
    **dict.fromkeys(["utf-16", "utf-16be", "utf-16le"], "utf-8"),
}
_MARK, _MARK_END = Token("start", item='<mark class="doubtful">'), Token("end", item="</mark>")
_SEEN = re.compile("alt|title|placeholder|label|aria-(?:label|description|placeholder|roledescription|valuetext)")


def read(data: bytes, options: ReadOptions) -> Document:
    """Returns the page in a file."""
    encoding = _encoding_of_page(data)
    mark = "\ufeff" * encoding.startswith("utf-16-")
    file = decoded(data if encoding == "utf-8" else data.decode(encoding).encode(), options)
    front = FRONT_MATTER.match(file.replace("\r\n", "\n")) if file.startswith("---") else None
    page = file.split("\n", front[0].count("\n"))[-1] if front else file
    matter = file[: len(file) - len(page)]
    target_lang = options.target_lang.replace("_", "-")
    page_unit = Unit(page, content=parse(page, "html", options.protected, options.source_lang))
    values: dict[str, None] = {}

    def seen(element: str, attributes: Mapping[str, str]) -> list[str]:
        is_button = element == "input" and attributes.get("type", "").lower() in ("button", "reset", "submit")
        names = [name for name in attributes if _SEEN.fullmatch(name) or (is_button and name == "value")]
        return [name for name in names if attributes[name].strip()]

    def noted(element: str, attributes: Mapping[str, str]) -> Mapping[str, str]:
        values.update({attributes[name]: None for name in seen(element, attributes)})
        return {}

    def write(translations: Sequence[Sequence[Token]]) -> bytes:
        body, *others = translations
        translated = dict(zip(values, map(plain, others), strict=True))

        def changed(element: str, attributes: Mapping[str, str]) -> Mapping[str, str]:
            new = {name: translated.get(attributes[name], attributes[name]) for name in seen(element, attributes)}
            if element == "html":
                new |= dict.fromkeys(attributes.keys() & {"lang", "xml:lang"}, target_lang)
            direction = attributes.get("dir", "").lower()
            is_rtl = is_right_to_left(options.target_lang)
            if element in ("html", "body") and (direction == "rtl") != is_rtl:
                new |= {"dir": "rtl" if is_rtl else "ltr"} if direction or element == "html" else {}
            return new

        text = matter + written(_with_marks(with_attributes(body, changed)))
        if encoding == "utf-8":
            return encoded(text, data)
        if encoding == "ascii" and not text.isascii() and not text.startswith("<?xml"):
            head = re.search(r"<head(?:\s[^>]*)?>", text, re.IGNORECASE)
            if head:
                return f'{text[: head.end()]}<meta charset="utf-8">{text[head.end() :]}'.encode()
        return (mark + text).encode(encoding, errors="xmlcharrefreplace")

    list(with_attributes(page_unit.tokens, noted))
    start = page.rfind("<!--")
    rest = page[start:] if start >= 0 else ""
    is_open = not re.search("--!?>|</script", rest) and has_letters(re.sub("<[^<>]*>", "", rest[4:]))
    unreached = [f"{matter}{page[:start]}".count("\n") + 1] * is_open
    passages = [page_unit, *(passage([Token("text", value)], options.protected) for value in values)]
    obstacle = "a comment that begins there has no end; end it"
    return Document(passages, write, unreached=unreached, obstacle=obstacle)


def _with_marks(tokens: Iterable[Token]) -> Iterator[Token]:
    """Yields tokens with elements around doubtful text, except in elements that have text only."""
    has_text_only = False
    for token in tokens:
        if token.name.lower() in ("title", "option", "textarea"):
            has_text_only = token.kind == "start"
        is_marked = token.role == "doubtful" and not has_text_only
        yield from (_MARK, token, _MARK_END) if is_marked else [token]


def _encoding_of_page(data: bytes) -> str:
    """Returns the encoding of HTML: of its byte order mark, UTF-8, the one that it declares, or ASCII."""
    declared = _CHARSET.search(data[:4096])
    label = (declared[1] or declared[2]).decode().lower() if declared else "ascii"
    label = _ENCODINGS.get(label, label) if declared else label
    encodings = [label, "ascii"] if data.isascii() else ["utf-8", label]
    for encoding in filter(None, [marked_encoding(data), *encodings, *["latin-1"] * (label == "cp1252")]):
        try:
            if data.decode(encoding).encode(encoding) == data:
                return encoding
        except (LookupError, UnicodeError):
            continue
    return "utf-8"
