"""Writes translation memories, TMX 1.4."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

from nmt import __version__
from nmt.text.markup_reading import text_only

SCORE = "x-score"  # the type of the property that has the score of a unit
_HEADER = """<?xml version="1.0" encoding="UTF-8"?>
<tmx version="1.4"><header creationtool="nmt" creationtoolversion="{}" segtype="sentence" o-tmf="nmt" adminlang="en"
srclang={} datatype="plaintext"/><body>
"""


class TmxUnit(NamedTuple):
    """A source and its translation, with their languages, attributes such as `tuid`, and a score."""

    languages: tuple[str, str]
    texts: tuple[str, str]
    attributes: Mapping[str, str] = {}
    score: float | None = None


def tmx(units: Iterable[TmxUnit], source_lang: str) -> Iterator[str]:
    """Yields the text of a translation memory, a unit a line. Characters that XML does not allow are left out."""
    yield _HEADER.format(__version__, quoteattr(source_lang))
    for languages, texts, attributes, score in units:
        given = "".join(f" {name}={quoteattr(value)}" for name, value in attributes.items())
        sides = [(quoteattr(lang), escape(text_only(text))) for lang, text in zip(languages, texts, strict=True)]
        variants = "".join(f"<tuv xml:lang={lang}><seg>{text}</seg></tuv>" for lang, text in sides)
        scored = "" if score is None else f'<prop type="{SCORE}">{score:.4f}</prop>'
        yield f"<tu{given}>{scored}{variants}</tu>\n"
    yield "</body></tmx>\n"
