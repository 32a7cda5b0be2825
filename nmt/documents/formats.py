"""The formats of documents by the names of files; among them plain text, HTML and JSON, which are read here."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from html import unescape
from importlib import import_module
from pathlib import Path

from nmt.documents.document import (
    Document,
    Passage,
    ReadOptions,
    decoded,
    encoded,
    has_letters,
    lines_of,
    literal,
    marked_encoding,
    spliced,
)
from nmt.documents.messages import Message
from nmt.errors import NmtError
from nmt.text.languages import RIGHT_TO_LEFT, is_among
from nmt.text.markup_reading import with_attributes

# Languages that are written from right to left.
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
_SEEN = re.compile("alt|title|placeholder|label|aria-(?:label|description|placeholder|roledescription|valuetext)")
_JSON_TOKEN = re.compile(r'(?P<string>"(?:[^"\\]|\\.)*+")(?P<colon>\s*:)?|[{}\[\]]')


def _text(data: bytes, options: ReadOptions) -> Document:
    """Returns plain text: each line is translated by itself. Line ends and a byte order mark stay."""
    lines, _ = lines_of(decoded(data, options))
    ends = [end for _, end in lines]

    def write(translations: Sequence[str]) -> bytes:
        return encoded("".join(map(str.__add__, translations[0].split("\n"), ends)), data)

    return Document([Passage("\n".join(line for line, _ in lines))], write)


def _html(data: bytes, options: ReadOptions) -> Document:
    """Returns HTML: the text of a page, and the attributes that users see."""
    encoding = _encoding_of_page(data)
    mark = "\ufeff" * encoding.startswith("utf-16-")
    page = decoded(data if encoding == "utf-8" else data.decode(encoding).encode(), options)
    is_right_to_left = is_among(options.target_lang, RIGHT_TO_LEFT)
    values: dict[str, None] = {}

    def seen(element: str, attributes: Mapping[str, str]) -> list[str]:
        is_button = element == "input" and attributes.get("type", "").lower() in ("button", "reset", "submit")
        names = [name for name in attributes if _SEEN.fullmatch(name) or (is_button and name == "value")]
        return [name for name in names if attributes[name].strip()]

    def noted(element: str, attributes: Mapping[str, str]) -> Mapping[str, str]:
        values.update({attributes[name]: None for name in seen(element, attributes)})
        return {}

    def write(translations: Sequence[str]) -> bytes:
        body, *others = translations
        translated = dict(zip(values, map(unescape, others), strict=True))

        def changed(element: str, attributes: Mapping[str, str]) -> Mapping[str, str]:
            new = {name: translated.get(attributes[name], attributes[name]) for name in seen(element, attributes)}
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
        return (mark + text).encode(encoding, errors="xmlcharrefreplace")

    with_attributes(page, noted, options.source_lang)
    start = page.rfind("<!--")
    rest = page[start:] if start >= 0 else ""
    is_open = not re.search("--!?>|</script", rest) and has_letters(re.sub("<[^>]*>", "", rest[4:]))
    unreached = [page.count("\n", 0, start) + 1] * is_open
    passages = [Passage(page, "html", options.source_lang), *map(literal, values)]
    return Document(passages, write, unreached=unreached, obstacle="a comment that begins there has no end; end it")


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


def _json(data: bytes, options: ReadOptions) -> Document:
    """Returns JSON: the strings that are values. Keys, numbers and the layout of the file stay."""
    text = decoded(data, options)
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NmtError(f"{options.name} is not JSON ({error}); correct it") from error
    places, chosen, left_out, unreached = list[tuple[int, int, str]](), dict[str, str](), 0, list[int]()
    for start, stop, string, keys in _json_values(text):
        if has_letters(string):
            if not _is_chosen(string, keys, options.keys):
                left_out += 1
            elif re.search("[\ud800-\udfff\0]", string):
                unreached.append(text.count("\n", 0, start) + 1)
            else:
                places.append((start, stop, chosen.setdefault(string, string)))
    to_ascii = text.isascii() and "\\u" in text

    def write(translations: Sequence[str]) -> bytes:
        rest = iter(translations)
        new = {string: Message(string, options).written(rest) for string in chosen}
        changes = {
            (start, stop): json.dumps(new[string], ensure_ascii=to_ascii)
            for start, stop, string in places
            if new[string] != string
        }
        return encoded(spliced(text, changes), data)

    passages = [passage for string in chosen for passage in Message(string, options).passages]
    obstacle = "a string there has NUL or half of a surrogate pair; correct it"
    skipped = +Counter({"with keys that are left out": left_out})
    return Document(passages, write, skipped, unreached=unreached, obstacle=obstacle)


def _json_values(text: str) -> Iterator[tuple[int, int, str, list[str]]]:
    """Yields each string that is a value: where it begins and ends, the string, and the keys of the objects around."""
    keys: list[str] = []  # the key in each object around; empty in arrays
    for token in _JSON_TOKEN.finditer(text):
        if token[0] in "{[":
            keys.append("")
        elif token[0] in "}]":
            keys.pop()
        elif token["colon"]:
            keys[-1] = json.loads(token["string"])
        else:
            yield *token.span("string"), json.loads(token["string"]), list(filter(None, keys))


def _is_chosen(value: str, keys: Sequence[str], chosen: str | None) -> bool:
    """Returns whether --keys chooses a value: patterns for the keys around it, those with `!` leave values out.

    Without patterns that choose, ids, types, and metadata such as those of ARB and JSON-LD are left out too.
    """
    path = f".{'.'.join(keys)}."
    patterns = [pattern.strip() for pattern in (chosen or "").split(",") if pattern.strip()]
    matching = {pattern for pattern in patterns if fnmatchcase(path, f"*.{pattern.removeprefix('!')}.*")}
    if any(pattern.startswith("!") for pattern in matching):
        return False
    if any(not pattern.startswith("!") for pattern in patterns):
        return bool(matching)
    is_name = keys[-1:] in (["id"], ["type"]) and not re.search(r"\s", value)
    return not is_name and not any(key.startswith(("@", "$")) for key in keys)


# What reads each format, by the last part of a file's name: a function, or the module that has `read`.
_READERS: dict[str, Callable[[bytes, ReadOptions], Document] | str] = {
    "txt": _text,
    "md": "markdown",
    "markdown": "markdown",
    "mdx": "markdown",
    "qmd": "markdown",
    "rmd": "markdown",
    "html": _html,
    "htm": _html,
    "xhtml": _html,
    "docx": "docx",
    "srt": "subtitles",
    "vtt": "subtitles",
    "po": "po",
    "pot": "po",
    "xlf": "xliff",
    "xliff": "xliff",
    "sdlxliff": "xliff",
    "mxliff": "xliff",
    "mqxliff": "xliff",
    "json": _json,
    "arb": _json,
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
    document: Document = read(data, options._replace(form=form))
    return document
