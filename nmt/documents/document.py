"""What formats share: a document is its passages, and a function that writes the file with their translations."""

import os
import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from nmt.console import counted, info, listed, warn
from nmt.errors import NmtError
from nmt.memories.matching import Match
from nmt.text.languages import windows_code_page
from nmt.text.marked import Token
from nmt.text.protected import PROTECTED, Protected
from nmt.translate.units import Unit

# The module that reads each format, and the last parts of its files' names.
_SUFFIXES = {
    "text": ["txt"],
    "markdown": ["md", "markdown", "mdx", "qmd", "rmd"],
    "html": ["html", "htm", "xhtml"],
    "docx": ["docx"],
    "subtitles": ["srt", "vtt"],
    "po": ["po", "pot"],
    "xliff": ["xlf", "xliff", "sdlxliff", "mxliff", "mqxliff"],
    "json": ["json", "arb"],
}
_READERS = {suffix: module for module, suffixes in _SUFFIXES.items() for suffix in suffixes}
FORMATS = tuple(_READERS)
_LIKE_DOCX = ("doc", "odt", "rtf")  # formats that programs can save as DOCX
# Front matter begins with a name, a comment or a bracket. A line `---` before other text is a rule. Without such
# lines, it begins with one of the usual names, and has only names and indented lines.
FRONT_MATTER = re.compile(
    r"(---|\+\+\+)[ \t]*\n(?=[ \t]*(?:#|\[|\{|[^\s#:=][^:=\n]*[:=]|\n*\1))(?:.*\n)*?(?:\1|(?<=\n)\.{3})[ \t]*(?:\n|\Z)"
    r"|(?i:authors?|category|date|layout|slug|summary|tags|template|title):[ \t].*\n"
    r"(?:[ \t]+\S.*\n)*[\w -]+:(?:[ \t].*)?\n(?:[\w -]+:(?:[ \t].*)?\n|[ \t]+\S.*\n)*(?=[ \t]*\n)"
    r"|\{[ \t]*\n[ \t]+\"(?:.*\n)*?\}[ \t]*(?:\n|\Z)|%[ \t]+\S.*\n(?:[ \t]+\S.*\n)*%.*\n(?:%.*\n|[ \t]+\S.*\n)*"
)
BILINGUAL = (*_SUFFIXES["po"], *_SUFFIXES["xliff"])  # formats of files that have the translations, too


@dataclass(frozen=True)
class Document:
    """A document that was read."""

    passages: Sequence[Unit]  # what is translated, in order
    # Returns the content of the file with the translation of each passage.
    write: Callable[[Sequence[Sequence[Token]]], bytes]
    # The number of texts that stay as they are, by reason, such as "translated already".
    skipped: Mapping[str, int] = field(default_factory=dict)
    # Takes the matches of memories for each passage, before `write`; None if the format has no place for them.
    offer: Callable[[Sequence[Sequence[Match]]], None] | None = None
    # The line where each text begins that the reader does not reach, counted from 1, and why it does not.
    unreached: Sequence[int] = ()
    obstacle: str = "the file is damaged or nested too deep there; correct it"

    def left(self, data: bytes) -> str:
        """Returns which texts of a file with this content stay untranslated, and why; empty if none do."""
        left = [f"{count:,} {reason}" for reason, count in self.skipped.items()]
        if self.unreached:
            stay = "on stay as they are" if len(self.unreached) > 1 else "stays as it is"
            passages = f"{counted(len(self.unreached), 'passage')} from line {min(self.unreached):,} {stay}"
            left.append(f"{passages}, because {self.obstacle}")
        if data.strip() and not left and not any(unit.sentences for unit in self.passages):
            advice = "if the file has text, check its encoding, its name, and what its markup keeps (translate, lang)"
            left.append(f"no text was recognised; {advice}")
        return ", ".join(left)


class ReadOptions(NamedTuple):
    """How a document is read."""

    name: str  # of the file, for messages
    source_lang: str  # language code of the text
    target_lang: str  # language code of the translation, which some formats name
    all: bool = False  # translate anew what is translated already
    protected: Protected = PROTECTED  # finds what stays as it is
    # Patterns of the keys whose values are translated in JSON, and with `!` of those whose values are not.
    keys: str | None = None
    doubtful: float = 0  # the confidence below which a sentence is marked; 0 if none is
    doubtful_stays: bool = False  # whether such a sentence is left in the source language
    form: str = ""  # the name of the format, where one reader knows several dialects


def other_language(named: str, options: ReadOptions) -> NmtError:
    """Returns the error of a file that has translations into another language than the target language."""
    problem = f"{options.name} has translations into {named:.40}, not {options.target_lang}"
    return NmtError(f"{problem}; give the file of this language, or --all to replace them")


def suffix_of(name: str) -> str:
    """Returns the extension of a file name in lower case."""
    return Path(name).suffix.removeprefix(".").lower()


def format_of(name: str) -> str:
    """Returns the format of a file. Raises NmtError if no format has this name."""
    if suffix_of(name) == "pdf":
        raise NmtError(f"{name} is a PDF, whose text has no order; take the document it is from, or convert it")
    if suffix_of(name) in _LIKE_DOCX:
        raise NmtError(f"{name} has a format that is not supported; save it as .docx")
    if suffix_of(name) not in FORMATS:
        formats = f"only *.{', *.'.join(FORMATS)}"
        raise NmtError(f"{name} has no known format, {formats}; give --format if the file has one of these")
    return suffix_of(name)


def check_format(form: str | None) -> None:
    """Raises NmtError if there is no such format."""
    if form not in (None, *FORMATS):
        raise NmtError(f"--format must be one of {', '.join(FORMATS)}, but is {form!r:.40}")


def documents_in(folder: str, form: str | None) -> list[Path]:
    """Returns the files in a folder, without hidden ones: those of known formats, or all if the format is given.

    Says how many others there are.
    """
    names, unread = list[Path](), list[str]()

    def note(error: OSError) -> None:
        unread.append(error.filename)

    for parent, folders, files in os.walk(folder, onerror=note):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        unread += [link for name in folders if os.path.islink(link := os.path.join(parent, name))]
        names += [Path(parent, name).relative_to(folder) for name in files if not name.startswith(".")]
    if unread:
        warn(f"folders that are links or cannot be read are left out: {listed(sorted(unread))}")
    visible = [name for name in sorted(names) if Path(folder, name).is_file()]
    if form:
        return visible
    unknown = Counter(
        name.suffix.lower() or "without an extension" for name in visible if suffix_of(name.name) not in FORMATS
    )
    if unknown:
        kinds = ", ".join(f"{count:,} {suffix}" for suffix, count in unknown.most_common(8))
        info(f"{folder}: files of other formats are left out: {kinds}")
    return [name for name in visible if suffix_of(name.name) in FORMATS]


def read_document(data: bytes, form: str, options: ReadOptions) -> Document:
    """Returns the document in a file of a format in `FORMATS`. Raises NmtError if the file is damaged."""
    reader = import_module(f"nmt.documents.{_READERS[form]}")  # only now, because some need other packages
    document: Document = reader.read(data, options._replace(form=form))
    return document


def lines_of(text: str) -> tuple[list[tuple[str, str]], list[int]]:
    """Returns the lines of a text with their ends, and where each line begins."""
    lines = re.findall(r"([^\r\n]*)(\r{0,3}\n|\r|\Z)", text)  # some conversions leave CR CR LF
    return lines, list(accumulate((len(line) + len(end) for line, end in lines), initial=0))


def code_page(data: bytes, lang: str) -> str:
    """Returns the encoding that Windows had for a language, or an empty text if the data is not in it.

    Data is UTF-8 if at most a third of the characters that are not ASCII are wrong in it.
    """
    text = data.decode(errors="replace")
    is_utf_8 = 3 * text.count("\ufffd") <= len(text) - len(text.encode("ascii", "ignore"))
    page = windows_code_page(lang)
    try:
        data.decode(page)
    except UnicodeDecodeError:
        return ""
    return "" if is_utf_8 else page


def decoded(data: bytes, options: ReadOptions, encoding: str = "", *, may_have_nul: bool = False) -> str:
    """Returns the text of a file, without its byte order mark.

    The encoding is by default the one that the byte order mark names, or UTF-8. Raises NmtError if the file is in
    another one, or has NUL bytes.
    """
    encoding = encoding or marked_encoding(data) or "utf-8"
    try:
        text = data.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        page = code_page(data, options.source_lang) if encoding == "utf-8" else ""
        advice = f"convert it, such as with iconv -f {page} -t UTF-8" if page else "convert it to UTF-8"
        problem = f"{options.name} is not {encoding.upper()} at byte {error.start:,}"
        raise NmtError(f"{problem}; {advice}") from error
    if "\0" in text and not may_have_nul:
        position = text.index("\0") + 1
        raise NmtError(f"{options.name} has a NUL byte at character {position:,}; convert it to UTF-8")
    return text


def encoded(text: str, data: bytes, encoding: str = "") -> bytes:
    """Returns text in the encoding, and with the byte order mark, of `data`.

    If the given encoding lacks a character, the text gets UTF-8 with a byte order mark.
    """
    marked = "" if encoding else marked_encoding(data)
    try:
        return f"{chr(0xFEFF) * bool(marked)}{text}".encode(encoding or marked or "utf-8")
    except UnicodeEncodeError:
        return BOM_UTF8 * bool(encoding or marked) + text.encode(errors="replace")


def marked_encoding(data: bytes) -> str:
    """Returns the encoding that a byte order mark tells, or an empty text. The mark is a character of the text."""
    marks = {BOM_UTF8: "utf-8", BOM_UTF16_LE: "utf-16-le", BOM_UTF16_BE: "utf-16-be"}
    return next((encoding for mark, encoding in marks.items() if data.startswith(mark)), "")


def spliced(text: str, changes: Mapping[tuple[int, int], str]) -> str:
    """Returns text with other text at places, given by their beginnings and ends. They do not overlap."""
    result, end = list[str](), 0
    for (start, stop), new in sorted(changes.items()):
        result += [text[end:start], new]
        end = stop
    return "".join([*result, text[end:]])
