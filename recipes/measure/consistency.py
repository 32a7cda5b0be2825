"""How consistently documents translate their terms, for measuring `nmt generate --context`.

    python recipes/measure/consistency.py SOURCE TARGET LINKS

SOURCE has blank lines between documents, and TARGET and LINKS are in step with it; LINKS is the output of
`nmt rescore --alignments`. A term is a phrase of at most four words, without the hundred most frequent words at its
edges, that a document has in at least two lines whose alignments say how it is translated. Prints the number of the
terms of all documents, and the percentage of them that all lines of their document translate in the same way. Capitals
and endings that the words of TARGET exchange make no difference.
"""

import sys
from collections import Counter, defaultdict
from itertools import groupby

from nmt.text.corpus import read_rows
from nmt.text.forms import base_forms
from nmt.text.terms import EDGES, frequent_words, terms_in, translation_of, without_elision
from nmt.text.words import RAW_WORD


def shares(rows: list[tuple[str, str, str]]) -> tuple[int, int]:
    """Returns the number of terms of all documents, and how many of them have one translation."""
    frequent = frequent_words(source for source, *_ in rows), frequent_words(target for _, target, _ in rows)
    bases = base_forms(Counter(word.strip(EDGES) for _, target, _ in rows for word in target.split()))
    terms = consistent = 0
    for is_text, document in groupby(rows, key=lambda row: bool(row[0].strip())):
        translations: dict[str, list[set[str]]] = defaultdict(list)
        for source, target, line_links in document if is_text else ():
            words, translated = RAW_WORD.findall(source), RAW_WORD.findall(target)
            pairs = [(int(i), int(j)) for i, _, j in (link.partition("-") for link in line_links.split())]
            of_line: dict[str, set[str]] = defaultdict(set)
            for first, last in terms_in(words, frequent[0]):
                phrase = translation_of(translated, pairs, first, last, frequent[1])
                phrase = without_elision(phrase, bases).lower()
                if phrase:
                    term = " ".join(words[first : last + 1]).strip(EDGES).lower()
                    of_line[term].add(" ".join(bases.get(word, word) for word in phrase.split()))
            for term, phrases in of_line.items():
                translations[term].append(phrases)
        repeated = [lines for lines in translations.values() if len(lines) > 1]
        terms += len(repeated)
        consistent += sum(len(set.union(*lines)) == 1 for lines in repeated)
    return terms, consistent


if __name__ == "__main__":
    source, target, links = sys.argv[1:]
    rows = [(a, b, c.rpartition("|||")[2]) for a, b, c in read_rows(source, target, links)]
    terms, consistent = shares(rows)
    print(f"{terms} terms, {100 * consistent / max(1, terms):.1f} % of them with one translation in their document")
