"""PO: the messages of a program that have no translation yet. What is translated is marked as fuzzy.

Tags, line breaks, and the placeholders of the formats that the flags name keep their text. A newline ends a sentence
unless a lower-case letter follows it.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from gettext import c2py
from html import escape, unescape
from typing import TYPE_CHECKING

from nmt.documents.content import Content, Inline, Leaf, Slot, document_of, flattened, paired
from nmt.documents.document import Document, ReadOptions
from nmt.errors import NmtError, importing
from nmt.text.languages import base_language

if TYPE_CHECKING:
    import polib

_FORMS = "nplurals={}; plural=({});"
_SLAVIC = "n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2"
# The plural forms of languages by the rules in the manual of gettext.
_PLURALS = {
    "id ja km ko lo ms my th vi zh": _FORMS.format(1, "0"),
    "fa fr hi oc pt_br": _FORMS.format(2, "n > 1"),
    "is": _FORMS.format(2, "n%10!=1 || n%100==11"),
    "be bs hr ru sr uk": _FORMS.format(3, f"n%10==1 && n%100!=11 ? 0 : {_SLAVIC}"),
    "pl": _FORMS.format(3, f"n==1 ? 0 : {_SLAVIC}"),
    "cs sk": _FORMS.format(3, "n==1 ? 0 : n>=2 && n<=4 ? 1 : 2"),
    "lt": _FORMS.format(3, "n%10==1 && n%100!=11 ? 0 : n%10>=2 && (n%100<10 || n%100>=20) ? 1 : 2"),
    "lv": _FORMS.format(3, "n%10==1 && n%100!=11 ? 0 : n != 0 ? 1 : 2"),
    "ro": _FORMS.format(3, "n==1 ? 0 : n==0 || (n%100 > 0 && n%100 < 20) ? 1 : 2"),
    "ga": _FORMS.format(3, "n==1 ? 0 : n==2 ? 1 : 2"),
    "sl": _FORMS.format(4, "n%100==1 ? 0 : n%100==2 ? 1 : n%100==3 || n%100==4 ? 2 : 3"),
    "ar": _FORMS.format(6, "n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n%100>=3 && n%100<=10 ? 3 : n%100>=11 ? 4 : 5"),
}
_OTHER_PLURALS = _FORMS.format(2, "n != 1")


class _Text(str):
    """Text for polib, which takes every line break of Unicode for the end of a line. Only newlines end lines of PO."""

    def splitlines(self, keepends: bool = False) -> list[str]:  # noqa: ARG002 (polib does not give it)
        return self.split("\n")


_PERCENT = (
    r"%(?:\(\w+\)|\d+\$)?[-+ #0'I]{0,6}(?:\d{1,9}|\*)?(?:\.(?:\d+|\*))?(?:hh?|ll?|[qLjzt])?[a-zA-Z@%]"
    r"|%<\w+>|%L?\d+|\$\{?\w+\}?"
)
_BRACES = r"\{(?:[^{}]|\{[^{}]*\})*\}"
_OTHERS = (
    r"(?P<tag><(?P<end>/?)(?P<name>[a-zA-Z][^\s<>/]*+)(?P<rest>[^<>]*)>)|(?P<line>(?<![ \t])[ \t]*\n\s*)"
    r"|(?P<code>``[^`]+``|:[\w:+-]{1,99}:`[^`]+`)|(?P<reference>&(?:[a-zA-Z]+|\#\d+);)"
    "|(?P<control>[\0-\t\x0b-\x1f\ufffe\uffff])"
)
_BLOCKS = "div h1 h2 h3 h4 h5 h6 hr li ol p table td th tr ul"


def read(data: bytes, options: ReadOptions) -> Document:
    """Returns the messages in a file."""
    with importing("polib", f"the PO file {options.name}", "'attention-nmt[documents]'"):
        import polib
    ended = data + b"\n"  # so that polib never takes it for a path
    encoding = polib.detect_encoding(ended)
    try:
        text = ended.decode(encoding)
    except (UnicodeError, LookupError) as error:
        raise NmtError(
            f"{options.name} is not in {encoding}, as its header says ({error!s:.100}); correct the header"
        ) from error
    try:
        file = polib.pofile(_Text(text))
    except (OSError, LookupError, ValueError) as error:
        raise NmtError(
            f"{options.name} is not a PO file ({error!s:.100}); correct it, such as with msgfmt --check"
        ) from error
    if not file and not file.metadata:
        raise NmtError(f"{options.name} has no messages; is it a PO file?")
    plural_forms = _set_header(file.metadata, options.target_lang)
    active = [entry for entry in file if not entry.obsolete]
    open_entries = [
        entry
        for entry in active
        if options.all or not (entry.msgstr or (entry.msgstr_plural and all(entry.msgstr_plural.values())))
    ]
    slots = [_slot(entry, plural_forms, options) for entry in open_entries]
    newline = "\r\n" if b"\r\n" in data else "\n"
    skipped = +Counter({"translated already": len(active) - len(open_entries)})
    return document_of(slots, lambda: f"{file}".replace("\n", newline).encode(), skipped)


def _set_header(header: dict[str, str], language: str) -> str:
    """Sets the language, the encoding, and the plural forms if they are missing. Returns the plural forms."""
    if base_language(header.get("Language", "")) != base_language(language):
        header["Language"] = language.replace("-", "_")
    header["MIME-Version"], header["Content-Transfer-Encoding"] = "1.0", "8bit"
    header["Content-Type"] = "text/plain; charset=UTF-8"
    try:
        _forms(header.get("Plural-Forms", ""))
    except ValueError:
        codes = (language.replace("-", "_").lower(), base_language(language))
        known = (forms for code in codes for languages, forms in _PLURALS.items() if code in languages.split())
        header["Plural-Forms"] = next(known, _OTHER_PLURALS)
    return header["Plural-Forms"]


def _forms(plural_forms: str) -> list[bool]:
    """Returns for each form whether it is the singular. Raises ValueError if the header's value is not valid."""
    match = re.match(r"\s*nplurals\s*=\s*([1-9])\s*;\s*plural\s*=\s*([^;]+)", plural_forms)
    if not match:
        raise ValueError
    form_of = c2py(match[2])
    try:
        singular, plural = form_of(1), form_of(2)
    except ZeroDivisionError as error:
        raise ValueError from error
    return [form == singular != plural for form in range(int(match[1]))]


def _slot(entry: "polib.POEntry", plural_forms: str, options: ReadOptions) -> Slot:
    """Returns the slot of a message. Of plural forms, only empty ones are written, unless all are."""
    contents = [_content(text, entry.flags) for text in (entry.msgid, entry.msgid_plural)]
    old = {} if options.all else dict(entry.msgstr_plural)

    def put(translations: Iterator[str]) -> None:
        singular, plural = (
            "".join(unescape(inline) if isinstance(inline, str) else inline.item for inline in flattened(content))
            for content in [content.translated(translations) for content in contents]
        )
        if entry.msgid_plural:
            forms = [singular if is_singular else plural for is_singular in _forms(plural_forms)]
            entry.msgstr_plural = {i: old.get(i) or form for i, form in enumerate(forms)}
        else:
            entry.msgstr = singular
        entry.fuzzy = True

    return Slot([passage for content in contents for passage in content.passages], put)


def _content(text: str, flags: Iterable[str]) -> Content:
    formats = {flag for flag in flags if flag.endswith("-format") and not flag.startswith("no-")}
    with_braces = {flag for flag in formats if re.search("brace|csharp|java-|javascript|rust", flag)}
    placeholders = [_BRACES] * bool(with_braces) + [_PERCENT] * bool(formats - with_braces)
    content, start = list[Inline](), 0
    for match in re.finditer("|".join([_OTHERS, *placeholders]), text):
        content += [escape(text[start : match.start()], quote=False), _leaf(match)]
        start = match.end()
    return Content(paired([*content, escape(text[start:], quote=False)]))


def _leaf(match: re.Match[str]) -> Leaf:
    raw, name = match[0], (match["name"] or "").lower()
    if match["line"]:
        return Leaf(raw, kind="end" if raw.count("\n") > 1 else "break")
    if match["control"]:
        return Leaf(raw)
    if name == "br" or name in _BLOCKS.split():
        return Leaf(raw, kind="break" if name == "br" else "end")
    if match["end"] or (match["tag"] and match["rest"]):
        return Leaf(raw, kind="close" if match["end"] else "open", key=name)
    if match["tag"]:
        return Leaf(raw, escape(raw), "open", name)
    # A program fills in placeholders without a name or a number in their order.
    is_next = re.fullmatch(r"%[^%($]*[a-zA-Z@>]", raw)
    return Leaf(raw, raw if match["reference"] else escape(raw), key="next" if is_next else None)
