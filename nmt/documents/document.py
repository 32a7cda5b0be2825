"""What the formats of documents have in common: a document is its passages, and how it is written with others."""

import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import accumulate
from typing import Any, Literal, NamedTuple

from nmt.errors import NmtError
from nmt.text.codec import TextCodec
from nmt.text.markup import with_attributes
from nmt.translate.requests import Hypothesis, Request
from nmt.translate.texts import Sentence, Text, sentences_of


class Passage(NamedTuple):
    """A text in a document that is translated by itself.

    Attributes:
        markup: None for plain text.
    """

    text: str
    markup: Literal["html"] | None = None

    def parsed(self) -> Text:
        """Returns the text with its units. Raises NmtError if its markup is not well-formed."""
        return Text.of(self.text, self.markup)


def literal(text: str) -> Passage:
    """Returns a passage of plain text in which URLs and placeholders stay. `html.unescape` reads its translation."""
    return Passage(escape(text, quote=False), "html")


def has_letters(text: str) -> bool:
    """Returns whether there is something to translate."""
    return any(map(str.isalpha, text))


def is_sound(html: str) -> bool:
    """Returns whether HTML needs no repair."""
    try:
        return with_attributes(html, lambda _, __, value: value) == html
    except NmtError:  # a comment does not end
        return False


@dataclass(frozen=True)
class Document:
    """A document that was read.

    Attributes:
        passages: what is translated, in order.
        write: returns the content of the file with the translation of each passage, in the same form.
        skipped: the number of texts that stay as they are, by reason, such as "translated already".
    """

    passages: Sequence[Passage]
    write: Callable[[Sequence[str]], bytes]
    skipped: Mapping[str, int] = field(default_factory=dict)


class ReadOptions(NamedTuple):
    """How a document is read.

    Attributes:
        name: of the file, for messages.
        source_lang: language code of the text.
        target_lang: language code of the translation, which some formats name.
        all: translate anew what is translated already.
    """

    name: str
    source_lang: str
    target_lang: str
    all: bool = False


def lines_of(text: str) -> tuple[list[tuple[str, str]], list[int]]:
    """Returns the lines of a text with their ends, and where each line begins."""
    lines = re.findall(r"([^\r\n]*)(\r\n|\n|\r|\Z)", text)
    return lines, list(accumulate((len(line) + len(end) for line, end in lines), initial=0))


def decoded(data: bytes, options: ReadOptions) -> str:
    """Returns the text of a file in UTF-8. Raises NmtError if it is in another encoding or has NUL bytes."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise NmtError(
            f"{options.name} is not UTF-8 at byte {error.start:,}; convert it, such as with iconv --to-code UTF-8"
        ) from error
    if "\0" in text:
        raise NmtError(f"{options.name} has a NUL byte at character {text.index(chr(0)) + 1:,}; is it a text file?")
    return text


def encoded(text: str, data: bytes) -> bytes:
    """Returns text in UTF-8, with a byte order mark if `data` has one."""
    return BOM_UTF8 * data.startswith(BOM_UTF8) + text.encode(errors="replace")


class Sentences:
    """The different sentences of documents, which are translated once each.

    Args:
        source: the text processing of the text.
        target: the text processing of the translation.
        longest: as for `sentences_of`.

    Attributes:
        found: what was found for each sentence. A key is the sentence and its phrases, separated by NUL.
        has_markup: whether a passage is marked up.
    """

    def __init__(self, source: TextCodec, target: TextCodec, longest: int) -> None:
        self._source, self._target, self._longest = source, target, longest
        self.found: dict[str, Any] = {}
        self.has_markup = False

    def add(self, document: Document) -> int:
        """Adds the sentences of a document. Returns their number."""
        count = 0
        for passage in document.passages:
            self.has_markup |= passage.markup is not None
            for sentence in self._of(passage.parsed()):
                self.found[_key(sentence)] = None
                count += 1
        return count

    def _of(self, text: Text) -> Iterator[Sentence]:
        return sentences_of(text, self._source, self._longest, split_lines=True)

    def written(self, document: Document, hypothesis: Callable[[Any], Hypothesis] = lambda found: found) -> bytes:
        """Returns the file of a document with the translations. `hypothesis` reads what was found."""

        def translated(passage: Passage) -> str:
            text = passage.parsed()
            found = ((sentence, hypothesis(self.found[_key(sentence)])) for sentence in self._of(text))
            return text.translated(found, self._target)

        return document.write(list(map(translated, document.passages)))


def _key(sentence: Sentence) -> str:
    return "\0".join([sentence.text, *sentence.phrases])


def request_of(key: str) -> Request:
    """Returns the request for a sentence of `Sentences`."""
    text, *phrases = key.split("\0")
    return Request(text, constraints=tuple(phrases))
