"""PO: the messages of a program that have no translation yet. What is translated is marked as fuzzy,
with --doubtful only if it is doubtful.

Only translations, their flags, and wrong fields of the header are written. All other bytes of a file stay.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from gettext import c2py
from itertools import tee
from typing import Literal, NamedTuple

import regex as re

from nmt.documents.content import Slot, document_of, has_doubts
from nmt.documents.document import Document, ReadOptions, marked_encoding, other_language, spliced
from nmt.documents.messages import Message
from nmt.errors import NmtError
from nmt.memories.matching import Match
from nmt.text.languages import base_language, plural_forms
from nmt.text.marked import Token

_STRING = r'"(?:[^"\\\n]|\\[^\n])*+"'
# Obsolete messages, and what a message was before, are comments.
_PART = re.compile(
    r"(?P<comment>\#[^\n]*)|(?P<keyword>(?:msgctxt|msgid_plural|msgid|msgstr(?:\[\d+\])?|domain)(?![\w\[]))"
    rf"(?P<strings>(?:[ \t\r\n]*{_STRING})*+)|[^ \t\r\n][^\n]*"
)
_ESCAPED = re.compile(r"\\(?:[0-7]{1,3}|x[\da-fA-F]{2}|[abfnrtv\"\\])")  # as in Python
_ESCAPES = {ord(character): rf"\{name}" for name, character in zip('ntrabfv\\"', '\n\t\r\a\b\f\v\\"', strict=True)}
_WIDTH = 77  # of a string in a file whose lines are wrapped
_UNWRAPPED = re.compile(rf'^[ \t]*+(?!#)[^"\n]*"(?:[^"\\\n]|\\.){{{_WIDTH},}} [^"\n]', re.MULTILINE)
_TO_UTF_8 = {"Content-Type": "text/plain; charset=UTF-8"}


class _Field(NamedTuple):
    """The strings behind a keyword such as msgid, and where they are, with the space before them."""

    raw: str
    start: int
    stop: int

    @property
    def text(self) -> str:
        strings = (string[1:-1] for string in re.findall(_STRING, self.raw))
        return _ESCAPED.sub(lambda escaped: escaped[0].encode().decode("unicode_escape"), "".join(strings))


class _Entry:
    """A message with the comments before it."""

    def __init__(self) -> None:
        self.fields: dict[str, _Field] = {}  # by their keywords; an empty one is for what cannot be understood
        self.flags: list[str] = []
        self.flags_start = -1  # where flags are inserted: before the other ones, or before the message
        self.start: int | None = None  # of the message; -1 if it says what it was before

    @property
    def forms(self) -> dict[int, _Field]:
        """The translation into each plural form, or the only one."""
        return {int(name[7:-1] or 0): text for name, text in self.fields.items() if name.startswith("msgstr")}

    @property
    def is_message(self) -> bool:
        has_plural = "msgid_plural" in self.fields
        names = {"msgid", "msgstr[0]"} if has_plural else {"msgid", "msgstr"}
        return "" not in self.fields and names <= self.fields.keys() and (has_plural or len(self.forms) == 1)

    @property
    def is_damaged(self) -> bool:
        return bool(self.fields) and not self.is_message


def read(data: bytes, options: ReadOptions) -> Document:
    """Returns the messages in a file."""
    text, encoding = _decoded(data, options.name)
    entries = _entries(text)
    damaged_fields = (entry.fields for entry in entries if entry.is_damaged)
    starts = [(fields.get("") or next(iter(fields.values()))).start for fields in damaged_fields]
    damages = [text.count("\n", 0, start) + 1 for start in starts]
    messages = [entry for entry in entries if entry.is_message]
    if not messages and damages:
        problem = f"{options.name} is not a PO file (line {damages[0]:,} is damaged)"
        raise NmtError(f"{problem}; correct it, such as with msgfmt --check")
    if not messages:
        raise NmtError(f"{options.name} has no messages; is it a PO file?")
    header, fields = _header(messages)
    messages = [message for message in messages if message.fields["msgid"].text]
    named = fields.get("Language", "").partition("@")[0]
    is_code = bool(re.fullmatch(r"[a-z]{2,3}(?:[_-]\w+)*", named))  # and not the name of a language
    is_other = is_code and base_language(named) != base_language(options.target_lang)
    if is_other and not options.all and any(all(form.text for form in m.forms.values()) for m in messages):
        raise other_language(named, options)
    unfinished = [m for m in messages if options.all or not all(form.text for form in m.forms.values())]
    has_plurals = any("msgid_plural" in message.fields for message in messages)
    new_fields = _new_fields(fields, options.target_lang, has_plurals=has_plurals)
    if not (encoding and "Content-Type" in fields):
        new_fields |= _TO_UTF_8
    forms = _forms((fields | new_fields).get("Plural-Forms", plural_forms("")))
    writer = _Writer(text, options)
    slots = [writer.slot(message, forms) for message in unfinished]

    def written() -> bytes:
        if not slots:
            return data
        try:
            return writer.written(header, new_fields).encode(encoding or "utf-8")
        except UnicodeEncodeError:
            return writer.written(header, new_fields | _TO_UTF_8).encode(errors="replace")

    document = document_of(slots, written, +Counter({"translated already": len(messages) - len(unfinished)}))
    obstacle = "the file is damaged there; correct it, such as with msgfmt --check"
    return replace(document, unreached=damages, obstacle=obstacle)


def finished(data: bytes, name: str) -> tuple[str, list[tuple[str, str]], int, int]:
    """Returns the language of a file or "", its finished messages with translations, and two numbers of others.

    These are of unfinished and of damaged messages.

    Of messages with plural forms, the last form translates the plural, and the first of two the singular.
    """
    entries = _entries(_decoded(data, name)[0])
    messages = [entry for entry in entries if entry.is_message]
    pairs, others = list[tuple[str, str]](), 0
    for message in messages:
        texts = [message.fields[key].text for key in ("msgid", "msgid_plural") if key in message.fields]
        forms = [form.text for _, form in sorted(message.forms.items())]
        if texts[0] and ("fuzzy" in message.flags or not all(forms)):
            others += 1
        elif texts[0]:
            both = 2 if len(forms) == 2 else 1
            pairs += zip(texts[-both:], forms[-both:], strict=True)
    return _header(messages)[1].get("Language", ""), pairs, others, sum(entry.is_damaged for entry in entries)


def _header(messages: Sequence[_Entry]) -> tuple[_Entry | None, dict[str, str]]:
    """Returns the header of a file, if it has one, and its fields."""
    header = next((m for m in messages if not m.fields["msgid"].text and "msgctxt" not in m.fields), None)
    lines = (line.partition(":") for line in (header.fields["msgstr"].text if header else "").split("\n"))
    return header, {name.strip(): value.strip() for name, colon, value in lines if colon}


def _decoded(data: bytes, name: str) -> tuple[str, str]:
    """Returns the text of a file and its encoding, which is empty if no known one is named. Raises NmtError."""
    named = re.search(rb"charset=([\w.:-]+)", data)
    encoding = marked_encoding(data) or (named[1].decode() if named else "")
    try:
        "".encode(encoding)
    except LookupError:
        encoding = ""
    try:
        return data.decode(encoding or "utf-8"), encoding
    except UnicodeError as error:
        says = "as its header says" if encoding else "and its header names no other encoding"
        problem = f"{name} is not in {encoding or 'utf-8'}, {says} ({error!s:.100})"
        raise NmtError(f"{problem}; correct the header") from error


def _entries(text: str) -> list[_Entry]:
    """Returns the messages of a file. Each ends with its translations."""
    entries = [_Entry()]
    for part in _PART.finditer(text, int(text.startswith("\ufeff"))):
        comment, keyword = part["comment"] or "", part["keyword"] or ""
        begins = comment or keyword in ("msgctxt", "msgid", "domain")
        if comment.startswith("#~") or (begins and entries[-1].forms):
            entries.append(_Entry())
        entry = entries[-1]
        if not comment:
            name = "" if keyword in entry.fields else keyword
            entry.fields.setdefault(name, _Field(part["strings"] or "", *part.span("strings" if name else 0)))
        elif comment.startswith("#,"):
            entry.flags_start = entry.flags_start if entry.flags else part.start() + 2
            entry.flags += map(str.strip, comment[2:].split(","))
        if entry.start is None and (keyword or comment.startswith("#|")):
            entry.start = part.start() if keyword else -1
        if entry.flags_start < 0 and (keyword or comment.startswith("#|")):
            entry.flags_start = part.start()
    return entries


def _new_fields(fields: Mapping[str, str], language: str, *, has_plurals: bool) -> dict[str, str]:
    """Returns the fields of a header that are missing or wrong."""
    new = {} if fields else {"MIME-Version": "1.0", "Content-Transfer-Encoding": "8bit"}
    if base_language(fields.get("Language", "")) != base_language(language):
        new["Language"] = language.replace("-", "_")
    try:
        _forms(fields.get("Plural-Forms", ""))
    except (ValueError, ZeroDivisionError):
        if has_plurals or "Plural-Forms" in fields:
            new["Plural-Forms"] = plural_forms(language)
    return new


def _forms(plural_forms: str) -> list[Literal["one", "singular", "plural"]]:
    """Returns the kind of each form: for one thing only, for other numbers such as 21 too, or for others only.

    Raises ValueError or ZeroDivisionError if the header's value is not valid.
    """
    match = re.match(r"\s*nplurals\s*=\s*([1-9])\s*;\s*plural\s*=\s*([^;]+)", plural_forms)
    if not match:
        raise ValueError
    zero_form, singular, *others = map(c2py(match[2]), range(1000))
    kind: Literal["one", "singular", "plural"] = "singular" if singular in (zero_form, *others) else "one"
    return [kind if form == singular != others[0] else "plural" for form in range(int(match[1]))]


class _Writer:
    """Writes translations into a file, each to the place of the old one."""

    def __init__(self, text: str, options: ReadOptions) -> None:
        self._text, self._options = text, options
        self._newline = "\r\n" if "\r\n" in text else "\n"
        self._is_wrapped = not _UNWRAPPED.search(text)
        # What stands at a place of the file instead of its text.
        self._changes: dict[tuple[int, int], str] = {}

    def slot(self, entry: _Entry, forms: Sequence[str]) -> Slot:
        """Returns the slot of a message. Of plural forms, only empty ones are written, unless all are."""
        fields = [entry.fields[name] for name in ("msgid", "msgid_plural") if name in entry.fields]
        messages = [Message(old.text, self._options, entry.flags) for old in fields]

        def put(translations: Iterator[Sequence[Token]]) -> None:
            translations, passages = tee(translations)
            texts = [message.written(translations) for message in messages]
            if len(texts) > 1:
                # A form for several numbers needs the placeholders of the plural.
                singular = ("one", "singular") if messages[0].kept == messages[1].kept else ("one",)
                texts = [texts[form not in singular] for form in forms]
            missing, keyword = "", "msgstr" if len(messages) == 1 else "msgstr[0]"
            for form_index, text in enumerate(texts):
                strings = self._quoted(text, keyword)
                if form_index not in entry.forms:
                    missing += f"{self._newline}msgstr[{form_index}] {strings}"
                elif self._options.all or not entry.forms[form_index].text:
                    self._changes[entry.forms[form_index][1:]] = f" {strings}"
            end = max(form.stop for form in entry.forms.values())
            if missing:
                self._changes[end, end] = missing
            for form_index, old in entry.forms.items():
                if form_index >= len(texts):
                    line = self._text.rindex("\n", 0, old.start)
                    self._changes[line - (self._text[line - 1] == "\r"), old.stop] = ""
            is_sure = self._options.doubtful and not has_doubts(passages)
            if "fuzzy" not in entry.flags and not is_sure:
                flag = " fuzzy," if entry.flags else f"#, fuzzy{self._newline}"
                span = entry.flags_start, entry.flags_start
                self._changes[span] = flag + self._changes.get(span, "")

        def offer(matches: Sequence[Match]) -> None:
            if entry.start is None or entry.start < 0 or not matches or matches[0].score == 1:
                return
            previous = self._quoted(matches[0].source, "#| msgid").replace(self._newline, f"{self._newline}#| ")
            comment = f"# {matches[0].percent} %: {' '.join(matches[0].target.split())}"
            self._changes[entry.start, entry.start] = f"{comment}{self._newline}#| msgid {previous}{self._newline}"

        return Slot([passage for message in messages for passage in message.passages], put, offer)

    def _quoted(self, text: str, keyword: str) -> str:
        """Returns text as strings, each with a line of it. Long lines are wrapped where the file does so."""
        lines = [line.translate(_ESCAPES) for line in re.findall(r"[^\n]*\n|[^\n]+", text)]
        whole = "".join(lines)
        if len(lines) < 2 and (len(whole) + len(keyword) < _WIDTH or not self._is_wrapped):
            return f'"{whole}"'
        if self._is_wrapped:
            lines = [part for line in lines for part in re.findall(rf".{{1,{_WIDTH - 1}}}(?: |$)|[^ ]+ ?| +", line)]
        return self._newline.join(['""', *(f'"{line}"' for line in lines)])

    def written(self, header: _Entry | None, fields: Mapping[str, str]) -> str:
        """Returns the file with the translations, and with changed fields in its header."""
        changes, begin = dict(self._changes), int(self._text.startswith("\ufeff"))
        old = header.fields["msgstr"] if header else _Field("", begin, begin)
        raw = old.raw or ' ""'
        if fields and not raw.endswith((r'\n"', ' ""')):
            raw = raw[:-1] + r'\n"'
        for name, value in fields.items():
            field = rf'(?<=["n]){name}:(?:(?!\\n)(?:[^"\\]|\\.|"\s*"))*'
            raw, count = re.subn(field, f"{name}: {value}".replace("\\", r"\\"), raw, count=1)
            raw += "" if count else f'{self._newline}"{name}: {value}\\n"'
        if header:
            changes[old.start, old.stop] = raw
        elif not "".join(changes.values()).isascii() or "Plural-Forms" in fields:
            changes[begin, begin] = self._newline.join(['msgid ""', f"msgstr{raw}", "", ""])
        return spliced(self._text, changes)
