"""The formats of documents by the names of files; among them plain text, HTML and JSON, which are read here."""

import json
import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Mapping, Sequence
from html import unescape
from importlib import import_module
from itertools import chain
from pathlib import Path

from nmt.documents.document import Document, Passage, ReadOptions, decoded, encoded, has_letters, is_sound, literal
from nmt.errors import NmtError
from nmt.text.languages import base_language
from nmt.text.markup_reading import with_attributes

# Languages that are written from right to left.
_RIGHT_TO_LEFT = "ar arc arz ckb dv fa he iw ks ps sd syr ug ur yi"
_CHARSET = re.compile(
    rb"""<meta\s[^>]*?\bcharset\s*=\s*["']?\s*([\w.:-]+)|<\?xml\s[^>]*?encoding\s*=\s*["']([\w.:-]+)""", re.IGNORECASE
)
# What browsers read where a page declares another encoding. A declaration in ASCII cannot be in UTF-16.
_ENCODINGS = {
    **dict.fromkeys(["ascii", "iso-8859-1", "iso8859-1", "latin1", "latin-1", "us-ascii", "windows-1252"], "cp1252"),
    **dict.fromkeys(["gb2312", "gbk"], "gb18030"),
    **dict.fromkeys(["shift_jis", "shift-jis", "x-sjis"], "cp932"),
    **dict.fromkeys(["utf-16", "utf-16be", "utf-16le"], "utf-8"),
}
# Possessive repetition avoids quadratic time for long lines.
_LINE = re.compile(r"([^\S\r\n]*+)((?:[^\S\r\n]*+\S++)*+)([^\S\r\n]*+(?:\r\n|\n|\r|\Z))")
_ATTRIBUTES = ("alt", "title", "placeholder", "aria-label")
_STRING = re.compile(r'("(?:[^"\\]|\\.)*+")(\s*:)?')
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")


def _text(data: bytes, options: ReadOptions) -> Document:
    """Returns plain text: each line is translated by itself. Line ends, indentation and a byte order mark stay."""
    text = decoded(data, options)
    lines = "\n".join(line for _, line, _ in _LINE.findall(text))

    def write(translations: Sequence[str]) -> bytes:
        translated = zip(_LINE.finditer(text), translations[0].split("\n"), strict=True)
        return encoded("".join(f"{line[1]}{new}{line[3]}" for line, new in translated), data)

    return Document([Passage(lines)], write)


def _html(data: bytes, options: ReadOptions) -> Document:
    """Returns HTML: the text of a page, and the attributes that users see."""
    encoding = _encoding_of_page(data)
    mark = next((mark for mark in (BOM_UTF16_LE, BOM_UTF16_BE) if data.startswith(mark)), b"")
    page = decoded(data if encoding == "utf-8" else data.decode(encoding).encode(), options)
    is_right_to_left = base_language(options.target_lang) in _RIGHT_TO_LEFT.split()
    values: dict[str, None] = {}

    def noted(_: str, attributes: Mapping[str, str]) -> Mapping[str, str]:
        values.update({value: None for name, value in attributes.items() if name in _ATTRIBUTES and value.strip()})
        return {}

    def write(translations: Sequence[str]) -> bytes:
        body, *others = translations
        translated = dict(zip(values, map(unescape, others), strict=True))

        def changed(element: str, attributes: Mapping[str, str]) -> Mapping[str, str]:
            new = {name: translated.get(value, value) for name, value in attributes.items() if name in _ATTRIBUTES}
            if element == "html":
                new |= dict.fromkeys(attributes.keys() & {"lang", "xml:lang"}, options.target_lang.replace("_", "-"))
            direction = attributes.get("dir", "").lower()
            if element in ("html", "body") and (direction == "rtl") != is_right_to_left:
                new |= {"dir": "rtl" if is_right_to_left else "ltr"} if direction or element == "html" else {}
            return new

        text = with_attributes(body, changed, options.source_lang)
        if encoding == "utf-8":
            return encoded(text, data)
        if encoding == "ascii" and not text.isascii() and not text.startswith("<?xml"):
            head = re.search(r"<head(?:\s[^>]*)?>", text, re.IGNORECASE)
            if head:
                return f'{text[: head.end()]}<meta charset="utf-8">{text[head.end() :]}'.encode()
        return mark + text.encode(encoding, errors="xmlcharrefreplace")

    with_attributes(page, noted, options.source_lang)
    return Document([Passage(page, "html", options.source_lang), *map(literal, values)], write)


def _encoding_of_page(data: bytes) -> str:
    """Returns the encoding of HTML: of its byte order mark, UTF-8, the one that it declares, or ASCII."""
    declared = _CHARSET.search(data[:4096])
    label = (declared[1] or declared[2]).decode().lower() if declared else "ascii"
    label = _ENCODINGS.get(label, label) if declared else label
    if data.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        encodings = ["utf-16-le" if data.startswith(BOM_UTF16_LE) else "utf-16-be"]
    else:
        encodings = ([label, "ascii"] if data.isascii() else ["utf-8", label]) + ["latin-1"] * (label == "cp1252")
    for encoding in encodings:
        try:
            if data.decode(encoding).encode(encoding) == data:
                return encoding
        except (LookupError, UnicodeError):
            continue
    return "utf-8"


def _json(data: bytes, options: ReadOptions) -> Document:
    """Returns JSON: the strings that are values. Keys, numbers and the layout of the file stay."""
    text = decoded(data, options)
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NmtError(f"{options.name} is not JSON ({error}); correct it") from error
    strings = (json.loads(string[1]) for string in _STRING.finditer(text) if not string[2])
    # Half of a surrogate pair is no text.
    values = [s for s in dict.fromkeys(strings) if has_letters(s) and not re.search("[\ud800-\udfff\0]", s)]
    passages = [
        [Passage(line, "html") if _TAG.search(line) and is_sound(line) else literal(line) for line in value.split("\n")]
        for value in values
    ]
    to_ascii = data.isascii() and b"\\u" in data

    def write(translations: Sequence[str]) -> bytes:
        rest = iter(translations)
        # A literal writes < as &lt;, so that a passage with < is HTML.
        new = {
            value: "\n".join(next(rest) if "<" in passage.text else unescape(next(rest)) for passage in lines)
            for value, lines in zip(values, passages, strict=True)
        }

        def written(string: re.Match[str]) -> str:
            value = None if string[2] else json.loads(string[1])
            if value is None or new.get(value, value) == value:
                return string[0]
            return json.dumps(new[value], ensure_ascii=to_ascii)

        return encoded(_STRING.sub(written, text), data)

    return Document(list(chain.from_iterable(passages)), write)


# What reads each format, by the last part of a file's name: a function, or the module that has `read`.
_READERS: dict[str, Callable[[bytes, ReadOptions], Document] | str] = {
    "txt": _text,
    "md": "markdown",
    "markdown": "markdown",
    "html": _html,
    "htm": _html,
    "docx": "docx",
    "srt": "subtitles",
    "vtt": "subtitles",
    "po": "po",
    "pot": "po",
    "xlf": "xliff",
    "xliff": "xliff",
    "json": _json,
}
FORMATS = tuple(_READERS)


def suffix_of(name: str) -> str:
    """Returns the last part of a file's name, by which its format is known."""
    return Path(name).suffix.removeprefix(".").lower()


def check_format(form: str | None) -> None:
    """Raises NmtError if --format names no format."""
    if form is not None and form not in FORMATS:
        raise NmtError(f"--format must be one of {', '.join(FORMATS)}, but is {form!r:.40}")


def format_of(name: str) -> str:
    """Returns the format of a file. Raises NmtError if no format has this name."""
    if suffix_of(name) not in FORMATS:
        raise NmtError(f"{name} has no known format; name the file *.{', *.'.join(FORMATS)}, or give --format")
    return suffix_of(name)


def read_document(data: bytes, form: str, options: ReadOptions) -> Document:
    """Returns the document in a file of a format in `FORMATS`. Raises NmtError if the file is damaged."""
    reader = _READERS[form]
    read = import_module(f"nmt.documents.{reader}").read if isinstance(reader, str) else reader
    document: Document = read(data, options)
    return document
