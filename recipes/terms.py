"""Prints terms and their translations, as a glossary for `nmt generate --glossary`, from aligned text.

    python recipes/terms.py SOURCE TARGET [LINKS]

LINKS is the output of `nmt rescore --alignments`. Without it, the program only checks that there are spaces between the
words. A term is a phrase of at most four words that at least three lines have. It neither begins nor ends with one of
the hundred most frequent words, a number or a single letter. Its translation is the target phrase whose words are
linked to its words and to no others (Och and Ney 2004, Computational Linguistics 30(4)). Printed are the terms that at
least four of five lines translate in the same way, unless a longer term always contains them; the most frequent come
first. A comment says how many lines have the term, and how many of these have the translation.
"""

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence

from nmt.errors import NmtError
from nmt.text.corpus import read_rows
from nmt.text.languages import UNSPACED_SCRIPT
from nmt.text.terms import EDGES, frequent_words, terms_in, translation_of, without_elision
from nmt.text.words import RAW_WORD

LEAST_LINES = 3
LEAST_SHARE = 0.8


def terms(sources: Sequence[str], targets: Sequence[str], links: Sequence[str]) -> list[tuple[str, str, int, int]]:
    """Returns terms with their translations, the number of their lines, and how many of them have the translation."""
    frequent = frequent_words(sources), frequent_words(targets)
    target_words = {word.strip(EDGES).lower() for line in targets for word in RAW_WORD.findall(line)}
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for source, target, line_links in zip(sources, targets, links, strict=True):
        words, translated = RAW_WORD.findall(source), RAW_WORD.findall(target)
        pairs = [(i, j) for i, _, j in (link.partition("-") for link in line_links.rpartition("|||")[2].split())]
        pairs = [(int(i), int(j)) for i, j in pairs]
        for first, last in terms_in(words, frequent[0]):
            term = " ".join(words[first : last + 1]).strip(EDGES)
            translation = translation_of(translated, pairs, first, last, frequent[1])
            counts[term][without_elision(translation, target_words)] += 1
    glossary = []
    for term, translations in counts.items():
        (translation, times), lines = translations.most_common(1)[0], translations.total()
        if translation and lines >= LEAST_LINES and times >= LEAST_SHARE * lines:
            glossary.append((term, translation, lines, times))
    within = {
        (" ".join(words[i:j]), lines)
        for term, _, lines, _ in glossary
        for words in [term.split()]
        for i in range(len(words))
        for j in range(i + 1, len(words) + 1)
        if j - i < len(words)
    }
    return sorted((each for each in glossary if (each[0], each[2]) not in within), key=lambda each: -each[2])


def check_words(path: str, lines: Sequence[str]) -> None:
    """Raises NmtError if most lines of a file have no spaces between words."""
    unspaced = sum(bool(UNSPACED_SCRIPT.search(line)) for line in lines)
    if unspaced > len(lines) / 2:
        raise NmtError(
            f"{unspaced} of {len(lines)} lines of {path} are in a script without spaces between words, so that their "
            f"words cannot be aligned; write the glossary of this language by hand"
        )


def main() -> None:
    """Prints the glossary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("source", "target"):
        parser.add_argument(name)
    parser.add_argument("links", nargs="?")
    options = parser.parse_args()
    paths = list(filter(None, (options.source, options.target, options.links)))
    try:
        sides = list(zip(*read_rows(*paths), strict=True))
        for path, lines in zip(paths[:2], sides, strict=False):
            check_words(path, lines)
        glossary = terms(*sides) if options.links else []
        if options.links and not glossary:
            raise NmtError(f"no phrase of {options.source} is a term; give more text, or write the glossary by hand")
    except NmtError as error:
        sys.exit(f"error: {error}")
    for term, translation, lines, times in glossary:
        print(f"# {times} of {lines} lines\n{term}\t{translation}")


if __name__ == "__main__":
    main()
