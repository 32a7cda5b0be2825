"""How often translations have the terms of a glossary, for measuring `nmt generate --glossary`.

    python recipes/measure/terms_used.py select GLOSSARY SOURCE REFERENCE PREFIX
    python recipes/measure/terms_used.py share GLOSSARY SOURCE TARGET TEXT

`select` writes the lines that have terms, if the reference has the translation of each of them: PREFIX.source and
PREFIX.reference. `share` prints the percentage of the terms of the source lines whose translation is in the target
line, as it is, and with the endings that the words of TEXT exchange, a text in the target language. Both languages need
spaces between words.
"""

import re
import sys

from nmt.text.corpus import read_lines, read_rows
from nmt.text.directions import Direction
from nmt.text.forms import Endings, are_forms, endings_of
from nmt.text.glossary import Glossary, TermOccurrence

DIRECTION = Direction("en", "")


def has_term(term: TermOccurrence, line: str, endings: set[Endings]) -> bool:
    """Returns whether a line has a form of the translation of a term."""
    words = re.findall(r"\w+", line)
    for form in term.forms:
        parts = re.findall(r"\w+", form)
        for first in range(len(words) - len(parts) + 1):
            beside = zip(words[first:], parts, strict=False)
            if parts and all(are_forms(word, part, endings) for word, part in beside):
                return True
    return False


def select(glossary: Glossary, source: str, reference: str, prefix: str) -> None:
    """Writes the lines whose terms are in the reference."""
    lines = []
    for row in read_rows(source, reference):
        terms = glossary.occurrences_in(row[0], DIRECTION)
        if terms and all(has_term(term, row[1], set()) for term in terms):
            lines.append(row)
    if not lines:
        sys.exit("error: no line of the reference has the translations of all terms of its source")
    for suffix, side in zip(("source", "reference"), zip(*lines, strict=True), strict=True):
        with open(f"{prefix}.{suffix}", "w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in side)
    print(f"{len(lines)} lines", file=sys.stderr)


def share(glossary: Glossary, source: str, target: str, text: str) -> None:
    """Prints the shares of terms that the target lines have."""
    endings = endings_of({word for line in read_lines(text) for word in re.findall(r"\w+", line)})
    used = [
        (has_term(term, line, set()), has_term(term, line, endings))
        for source_line, line in read_rows(source, target)
        for term in glossary.occurrences_in(source_line, DIRECTION)
    ]
    if not used:
        sys.exit("error: no source line has a term of the glossary")
    exact, forms = (100 * sum(column) / len(used) for column in zip(*used, strict=True))
    print(f"{len(used)} terms, as they are {exact:.1f} %, in any form {forms:.1f} %")


if __name__ == "__main__":
    {"select": select, "share": share}[sys.argv[1]](Glossary.read(sys.argv[2]), *sys.argv[3:])
