"""Writes a document twice without a model: with its text as the translation, and with each sentence in upper case.

python documents.py DOCUMENT SAME UPPER
"""

import re
import sys
from pathlib import Path

from nmt.documents.document import Passage, ReadOptions
from nmt.documents.formats import format_of, read_document
from nmt.text.markup_reading import MarkedText


def upper(unit: MarkedText) -> str:
    """Returns a sentence in upper case with its markup. What a translation must contain stays as it is."""
    kept = "|".join(map(re.escape, sorted(unit.phrases, key=len, reverse=True))) or "(?!)"
    parts = re.split(f"({kept})", unit.source)
    text = "".join(part if i % 2 else part.upper() for i, part in enumerate(parts))
    return unit.restored(text, [(i, i) for i in range(len(text.split()))])


def in_upper_case(passage: Passage) -> str:
    if passage.markup is None:
        return passage.text.upper()
    return "".join(part if isinstance(part, str) else upper(part) for part in passage.unit.content)


def main() -> None:
    name, same, changed = sys.argv[1:]
    document = read_document(Path(name).read_bytes(), format_of(name), ReadOptions(name, "en", "de"))
    Path(same).write_bytes(document.write([passage.text for passage in document.passages]))
    Path(changed).write_bytes(document.write(list(map(in_upper_case, document.passages))))
    print(f"{name}: {len(document.passages)} texts")


main()
