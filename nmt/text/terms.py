"""Terms: phrases of a source line with their translations, which a model can read and learn to use."""

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import pairwise
from random import Random
from typing import NamedTuple

from nmt.text.forms import base_forms
from nmt.text.words import RAW_WORD, AlignedWords

LONGEST = 4  # words
FREQUENT_WORDS = 100
EDGES = "\"'“”„‚‘’«»‹›()[]{}.,;:!?…。、،؟¿¡\u00a0\u202f"
# Pairs that get terms have up to so many. This share of the terms has another word as its translation, so that a model
# learns to doubt a translation that does not fit.
_MOST_TERMS, _WRONG = 3, 0.05
# This share of the translations of one word stands in the base form, so that a model learns to inflect.
_BASES = 0.5
# An article or preposition before a vowel, as in French and Italian, and none of the English it's, we're, we've, we'll.
ELIDED = re.compile(r"\w{1,5}['’](?=\w{2})(?!(?:re|ve|ll)\b)")


class Term(NamedTuple):
    """A phrase of a line, from character `start` to `stop`, and how it is translated."""

    start: int
    stop: int
    translation: str


def frequent_words(lines: Iterable[str]) -> set[str]:
    """Returns the most frequent words, in lower case."""
    counts = Counter(word for line in lines for word in line.lower().split())
    return {word for word, _ in counts.most_common(FREQUENT_WORDS)}


def terms_in(raw: Sequence[str], frequent: set[str]) -> Iterator[tuple[int, int]]:
    """Yields the first and the last word of each phrase of a line that may be a term."""
    words = [word.strip(EDGES) for word in raw]
    is_edge = [len(word) > 1 and any(map(str.isalpha, word)) and word.lower() not in frequent for word in words]
    ends = [written[-1] in EDGES or following[0] in EDGES for written, following in pairwise([*raw, "."])]
    for first in range(len(raw)):
        for last in range(first, min(first + LONGEST, len(raw))):
            if is_edge[first] and is_edge[last]:
                yield first, last
            if ends[last]:  # no term goes across punctuation
                break


def translation_of(
    target: Sequence[str], alignment: Sequence[AlignedWords], first: int, last: int, frequent: set[str]
) -> str:
    """Returns the target phrase that is linked to these source words and to no others. Empty if there is none."""
    linked = [j for i, j in alignment if first <= i <= last]
    start, stop = min(linked, default=0), max(linked, default=0) + 1
    is_consistent = linked and all(first <= i <= last for i, j in alignment if start <= j < stop)
    phrase = " ".join(target[start:stop]).strip(EDGES) if is_consistent and stop - start <= LONGEST else ""
    edges = {phrase.lower().split(" ")[0], phrase.lower().split(" ")[-1]}
    return "" if edges & frequent else phrase


def without_elision(phrase: str, words: Container[str]) -> str:
    """Returns a phrase without an elided word before it, such as the article of l’article.

    Args:
        words: those of the language, in lower case; the rest of the phrase begins with one of them.
    """
    elided = ELIDED.match(phrase)
    rest = phrase[elided.end() :] if elided else phrase
    return rest if rest.split(" ")[0].lower() in words else phrase


class TermSampler:
    """Draws terms for sentence pairs from their word alignments.

    Translations are those of the pair, like terms of a glossary: without an elided word before them. A share of the
    single words have their base form, the most frequent one in the target lines.

    Args:
        sources, targets: the lines of the pairs.
    """

    def __init__(self, sources: Sequence[str], targets: Sequence[str]) -> None:
        self._frequent = frequent_words(sources), frequent_words(targets)
        self._bases = base_forms(Counter(word.strip(EDGES) for line in targets for word in line.split()))
        self._words = sorted(self._bases.values())

    def terms(self, source: str, target: str, alignment: Sequence[AlignedWords], draw: Random) -> list[Term]:
        """Returns some terms of a pair, which do not overlap."""
        spans = [word.span() for word in RAW_WORD.finditer(source)]
        words, target_words = [source[a:b] for a, b in spans], RAW_WORD.findall(target)
        possible = list(terms_in(words, self._frequent[0]))
        terms, most = list[Term](), draw.randint(1, _MOST_TERMS)
        for first, last in draw.sample(possible, len(possible)):
            start, stop = spans[first][0], spans[last][1]
            stop = start + len(source[start:stop].rstrip(EDGES))
            start = stop - len(source[start:stop].lstrip(EDGES))
            translation = translation_of(target_words, alignment, first, last, self._frequent[1])
            if translation and all(stop <= term.start or term.stop <= start for term in terms):
                wrong = draw.choice(self._words) if draw.random() < _WRONG else ""
                terms.append(Term(start, stop, self._as_in_glossary(wrong or translation, draw)))
            if len(terms) == most:
                break
        return sorted(terms)

    def _as_in_glossary(self, phrase: str, draw: Random) -> str:
        phrase = without_elision(phrase, self._bases)
        return self._bases.get(phrase.lower(), phrase) if draw.random() < _BASES else phrase
