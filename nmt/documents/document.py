"""What the formats of documents have in common: a document is its passages, and how it is written with others."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Literal, NamedTuple

from nmt.errors import NmtError
from nmt.text.codec import TextCodec
from nmt.text.markup import with_attributes
from nmt.translate.texts import Sentence, Text


class Passage(NamedTuple):
    """A text in a document that is translated by itself.

    Attributes:
        markup: how `text` marks up words. Elements of HTML end sentences as in a page; those of XML end none.
    """

    text: str
    markup: Literal["html", "xml"] | None = None

    def parsed(self) -> Text:
        """Returns the text with its units. Raises NmtError if its markup is not well-formed."""
        return Text.of(self.text, self.markup, () if self.markup == "xml" else None)


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


def translatable(sentence: Sentence, codec: TextCodec, longest: int) -> tuple[str, tuple[str, ...]]:
    """Returns a sentence and its phrases. One that is translated in parts cannot have any.

    Args:
        longest: the largest number of pieces that are not translated in parts.
    """
    _, text, phrases = sentence
    # A character has at most four pieces, which are its bytes.
    if phrases and len(text) > longest // 4 and len(codec.encode_source([text])[0]) > longest:
        return text, ()
    return text, phrases


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
