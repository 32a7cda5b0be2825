"""Writes a document twice without a model: with its text as the translation, and with each sentence in upper case.

python documents.py DOCUMENT SAME UPPER
"""

import sys
from pathlib import Path

from nmt.documents.document import ReadOptions, format_of, read_document
from nmt.text.marked import MarkedText, Token
from nmt.text.markup_projection import projected
from nmt.translate.units import Unit


def upper(part: Token | MarkedText) -> list[Token]:
    """Returns text in upper case with its markup. What a translation must contain stays as it is."""
    if isinstance(part, Token):
        return [part]
    text, end = "", 0
    for start, stop, _ in [*part.protected, (len(part.source), len(part.source), "")]:
        text += part.source[end:start].upper() + part.source[start:stop]
        end = stop
    return list(projected(part, text, [(i, i) for i in range(len(text.split()))]))


def in_upper_case(unit: Unit) -> list[Token]:
    if unit.content is None:
        return [Token("text", unit.source.upper())]
    return [token for part in unit.content for token in upper(part)]


def main() -> None:
    name, same, changed = sys.argv[1:]
    document = read_document(Path(name).read_bytes(), format_of(name), ReadOptions(name, "en", "de"))
    Path(same).write_bytes(document.write([unit.tokens for unit in document.passages]))
    Path(changed).write_bytes(document.write(list(map(in_upper_case, document.passages))))
    print(f"{name}: {len(document.passages)} texts")


main()
