"""Extracts English-French text from Canada's acts and regulations, provision by provision.

    python recipes/laws.py CLONE FOLDER

CLONE is a clone of the repository laws-lois-xml of Justice Canada. Writes train, valid and test in FOLDER, with the
endings .en and .fr. Provisions are paired by their labels, such as section 3, paragraph (a), so some pairs are no
translations: nmt clean finds them. One document in a hundred is for validation and one for testing. Their pairs are
filtered, and none has an English text that is also in train.
"""

import argparse
import hashlib
import random
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

# How the French file of a regulation is named.
FRENCH_NAMES = {"SOR-": "DORS-", "SI-": "TR-", "C.R.C.,_c.": "C.R.C.,_ch."}
# Elements whose label is part of the place of a text, and elements without text of the law itself.
UNITS = ("Section", "Subsection", "Paragraph", "Subparagraph", "Clause", "Subclause", "Schedule", "Item", "Provision")
LEFT_OUT = ("HistoricalNote", "AmendedText", "Note")
HELD_OUT = {0: "valid", 1: "test"}  # by the hash of a document's name modulo 100
MOST_HELD_OUT = 2000  # pairs
Pair = tuple[str, str]


def documents(clone: Path) -> Iterator[tuple[Path, Path]]:
    """Yields the English and the French file of each document that has both."""
    french = {path.name: path for path in clone.glob("fra/r*glements/*.xml")}
    for english in sorted(clone.glob("eng/acts/*.xml")):
        if (law := clone / "fra" / "lois" / english.name).exists():
            yield english, law
    for english in sorted(clone.glob("eng/regulations/*.xml")):
        prefix = next((prefix for prefix in FRENCH_NAMES if english.name.startswith(prefix)), "")
        name = FRENCH_NAMES.get(prefix, "") + english.name.removeprefix(prefix)
        if name in french:
            yield english, french[name]


def text_of(element: ElementTree.Element) -> str:
    return " ".join("".join(element.itertext()).split())


class Document:
    """The texts of a document by their places, and its titles in order."""

    def __init__(self, path: Path) -> None:
        self.texts: dict[tuple[str | int, ...], str] = {}
        self.titles: list[str] = []
        self._count: Counter[tuple[str, ...]] = Counter()
        self._add(ElementTree.parse(path).getroot(), ())

    def _add(self, element: ElementTree.Element, place: tuple[str, ...]) -> None:
        kind = element.tag.rpartition("}")[2]
        if kind == "TitleText":
            self.titles.append(text_of(element))
        elif kind in ("Text", "MarginalNote"):
            place += (kind,)
            self.texts[*place, self._count[place]] = text_of(element)
            self._count[place] += 1
        elif kind not in LEFT_OUT and (inner := self._place(element, kind, place)) is not None:
            for child in element:
                self._add(child, inner)

    def _place(self, element: ElementTree.Element, kind: str, place: tuple[str, ...]) -> tuple[str, ...] | None:
        """Returns the place of what is in an element; None for a definition without its term in both languages."""
        if kind in UNITS:
            labels = (text_of(child) for child in element if child.tag.rpartition("}")[2] == "Label")
            place += kind, next(labels, "").replace(".", "").replace(" ", "").lower()
        if kind == "Definition":
            tags = {name: [x for x in element.iter() if x.tag.endswith(name)] for name in ("TermEn", "TermFr")}
            if not all(tags.values()):
                return None
            place += kind, *(text_of(found[0]).lower() for found in tags.values())
        return place


def pairs_of(english: Path, french: Path) -> list[Pair]:
    """Returns the pairs of texts with the same place, and of titles if both have as many."""
    try:
        source, target = Document(english), Document(french)
    except ElementTree.ParseError as error:
        print(f"{english.name} is left out: {error}", file=sys.stderr)
        return []
    pairs = [(text, target.texts[place]) for place, text in source.texts.items() if place in target.texts]
    if len(source.titles) == len(target.titles):
        pairs += zip(source.titles, target.titles, strict=True)
    return [pair for pair in pairs if all(pair)]


def is_sound(pair: Pair) -> bool:
    """Returns whether a pair looks like a sentence and its translation."""
    short, long = sorted(map(len, pair))
    return pair[0] != pair[1] and 5 <= len(pair[0].split()) <= 80 and long <= 2 * short + 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clone", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    clone, folder = options.clone, options.folder
    splits: dict[str, list[Pair]] = {"train": [], **{name: [] for name in HELD_OUT.values()}}
    for english, french in documents(clone):
        number = int(hashlib.sha256(english.name.encode()).hexdigest(), 16) % 100
        splits[HELD_OUT.get(number, "train")] += pairs_of(english, french)
    if not splits["train"]:
        sys.exit(f"error: {clone} has no acts in eng/acts and fra/lois; give a clone of laws-lois-xml")
    trained = {source for source, _ in splits["train"]}
    for name in HELD_OUT.values():
        distinct = sorted({pair for pair in splits[name] if is_sound(pair) and pair[0] not in trained})
        random.Random(1).shuffle(distinct)
        splits[name] = distinct[:MOST_HELD_OUT]
    folder.mkdir(parents=True, exist_ok=True)
    for name, pairs in splits.items():
        for lang, side in zip(("en", "fr"), zip(*pairs, strict=True) if pairs else ((), ()), strict=True):
            (folder / f"{name}.{lang}").write_text("".join(f"{text}\n" for text in side), encoding="utf-8")
        print(f"{name}: {len(pairs):,} pairs")


if __name__ == "__main__":
    main()
