"""Writes sentence pairs: as a table, as TMX, or as two files of text."""

from collections.abc import Iterable
from contextlib import ExitStack
from xml.sax.saxutils import escape

from nmt import __version__
from nmt.aligning.pairs import Pair
from nmt.files import STDIO, output_file
from nmt.text.markup_reading import text_only

_TMX = """<?xml version="1.0" encoding="UTF-8"?>
<tmx version="1.4"><header creationtool="nmt" creationtoolversion="{}" segtype="sentence" o-tmf="nmt" adminlang="en"
srclang="{}" datatype="plaintext"/><body>
"""


def write(pairs: Iterable[Pair], output: str, languages: tuple[str, str]) -> None:
    """Writes pairs to a .tsv, a .tmx, or PREFIX.de and PREFIX.fr; `-` is a table on standard output."""
    if output != STDIO and not output.endswith((".tsv", ".tmx")):
        with ExitStack() as stack:
            sides = [stack.enter_context(output_file(f"{output}.{lang}")) for lang in languages]
            for pair in pairs:
                for side, text in zip(sides, pair[:2], strict=True):
                    side.write(f"{text}\n")
        return
    with output_file(output) as file:
        if not output.endswith(".tmx"):
            file.write("\t".join([*languages, "score", "source place", "target place"]) + "\n")
            for pair in pairs:
                file.write("\t".join([*pair[:2], f"{pair.score:.4f}", *pair[3:]]) + "\n")
            return
        file.write(_TMX.format(__version__, languages[0]))
        for pair in pairs:
            file.write(f'<tu><prop type="x-score">{pair.score:.4f}</prop>')
            for lang, text in zip(languages, pair[:2], strict=True):
                file.write(f'<tuv xml:lang="{lang}"><seg>{escape(text_only(text))}</seg></tuv>')
            file.write("</tu>\n")
        file.write("</body></tmx>\n")
