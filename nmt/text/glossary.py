"""Glossaries: terms of the source language, and how they are translated."""

import csv
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, islice, product
from pathlib import Path
from typing import NamedTuple, Self

import regex as re

from nmt import console
from nmt.errors import NmtError
from nmt.text.casing import capitalized, upper
from nmt.text.codec import TextCodec
from nmt.text.corpus import name_of, opened, table_lines
from nmt.text.directions import Direction
from nmt.text.forms import Endings, are_forms
from nmt.text.languages import UNSPACED_SCRIPT, base_language, has_spaces
from nmt.text.subword import UNK
from nmt.text.terms import EDGES, ELIDED
from nmt.text.words import RAW_WORD, AlignedWords, is_blank, one_line

# A sentence begins after one of these and a space. Quotation marks and brackets may lie between them and the words.
_ENDS = ".!?…"
_BEGINNING = rf"(?:^|[{_ENDS}]\W*\s)\W*"  # what stands before the first word of a sentence
_UMLAUTS = str.maketrans("äöüÄÖÜ", "aouAOU")
_WORD = re.compile(r"\w+")  # in this package, with the vowel signs of scripts such as Devanagari
_BREAKABLE = str.maketrans("\u00a0\u202f", "  ")
# Several terms that a translation lacks are put into it in so many combinations of their forms, at most.
_MOST_COMBINATIONS = 12
# Start and end of a term in a line, the term, and whether the line differs from it only in its first, capital letter.
_TermSpan = tuple[int, int, str, bool]


class TermOccurrence(NamedTuple):
    """A term in a source line: its place, counted in a line with single spaces, and the forms of its translation.

    Attributes:
        at_beginning: the forms as they begin a sentence of the translation.
    """

    start: int
    stop: int
    forms: tuple[str, ...]
    at_beginning: tuple[str, ...] = ()

    def is_whole_in(self, line: str) -> bool:
        """Returns whether the term, at its place in a source line, is one or several whole words."""
        beginning, end = line[: self.start].rpartition(" ")[2], line[self.stop :].partition(" ")[0]
        return not (beginning.strip(EDGES) or end.strip(EDGES))

    def form_in(self, text: str) -> str | None:
        """Returns a form that a text has, or None. A word may go on behind it, but not begin before it."""
        patterns = [rf"(?:(?<!\w)|(?<={UNSPACED_SCRIPT.pattern})){re.escape(form)}" for form in self.forms]
        patterns += [rf"{_BEGINNING}\K{re.escape(form)}" for form in self.at_beginning]
        match = re.search("|".join(patterns), text)
        return match[0] if match else None


def has_terms(terms: Sequence[TermOccurrence], translation: str) -> bool:
    """Returns whether a translation has a form of each term, or a word that begins with it."""
    return all(term.form_in(translation) for term in terms)


class TermPlace(NamedTuple):
    """A term, the numbers of its words in the source line, and of the words of the translation whose place it takes."""

    term: TermOccurrence
    source: range
    target: range


def with_terms(
    translation: str, places: Sequence[TermPlace], alignment: Sequence[AlignedWords]
) -> Iterator[tuple[str, list[AlignedWords]]]:
    """Yields a translation with at most `_MOST_COMBINATIONS` combinations of the forms of terms, and its
    alignments.

    Each form of a term occurs, if there are no more of them than that: first come the first forms of all, then the
    second ones, and so on. Marks around the words whose place a term takes stay.
    """
    kept = [(i, j) for i, j in alignment if not any(j in place.target for place in places)]
    with_place = [place for place in places if place.target]
    counts = [len(place.term.forms) for place in with_place]
    alike = [tuple(i % count for count in counts) for i in range(max(counts, default=0))]
    choices = dict.fromkeys([*alike, *islice(product(*map(range, counts)), _MOST_COMBINATIONS)])
    for choice in islice(choices, _MOST_COMBINATIONS):
        words = RAW_WORD.findall(translation)
        for (term, _, target), form in zip(with_place, choice, strict=True):
            written = " ".join(filter(None, (words[j] for j in target)))
            begins = bool(re.search(rf"{_BEGINNING}$", "".join(f"{word} " for word in words[: target.start])))
            new = _in_place_of(written, term, form, begins=begins)
            if written:
                words[target.start : target.stop] = [new, *[""] * (len(target) - 1)]
            else:  # another term has taken their place
                taker = max(j for j in range(target.start) if words[j])
                other = words[taker].strip(EDGES)
                words[taker] = words[taker].replace(other, f"{other} {new}")
        # Where each word begins now: a term may have several words, and of the others in its place none is left.
        starts = [0, *accumulate(len(RAW_WORD.findall(word)) for word in words)]
        links = [
            (source[min(k, len(source) - 1)], j)
            for _, source, target in with_place
            for k, j in enumerate(range(*starts[target.start :][:2]))
        ]
        yield " ".join(filter(None, words)), sorted([*((i, starts[j]) for i, j in kept), *links])


def _in_place_of(written: str, term: TermOccurrence, form: int, *, begins: bool) -> str:
    """Returns a form of a term with the marks around the words that it replaces, and perhaps their capital or article.

    Args:
        written: those words; empty if another term has taken their place.
        begins: whether the words begin a sentence.
    """
    replaced = written.strip(EDGES) or written
    forms = (term.at_beginning if begins and replaced[:1].isupper() else ()) or term.forms
    new = forms[form]
    begins_with_vowel = unicodedata.normalize("NFD", new[:1])[:1].lower() in ("a", "e", "i", "o", "u", "y", "h")
    if begins_with_vowel and (elided := ELIDED.match(replaced)):
        new = elided[0] + new  # l'école and l'université
    return written.replace(replaced, new)


class Glossary:
    """Terms of the source language with the forms of their translations.

    Args:
        terms: the forms by term. Any one of them translates the term.
    """

    def __init__(self, terms: Mapping[str, tuple[str, ...]]) -> None:
        self.terms = terms
        self._lengths = sorted(set(map(len, terms)))
        # Terms by the beginning of their first word, with their words and what stands around these.
        self._by_beginning = defaultdict[str, list[tuple[str, list[str], list[str]]]](list)
        for term in terms:
            if parts := _WORD.findall(term):
                self._by_beginning[_beginning(parts[0])].append((term, parts, _WORD.split(term)))

    @classmethod
    def read(cls, path: str | Path, *codecs: TextCodec) -> Self:
        """Returns the glossary in a file, whose lines have a term and its forms. Names those unknown to models."""
        terms: dict[str, tuple[str, ...]] = {}
        with opened(path) as file:
            lines, has_quotes = table_lines(file, name_of(path))
            numbered = list(enumerate(lines, start=1))
        for line_number, line in numbered:
            if is_blank(line) or line.startswith("#"):
                continue
            source, *target = next(csv.reader([line], delimiter="\t")) if has_quotes else line.split("\t")
            term, forms = " ".join(source.split()), tuple(filter(None, map(str.strip, target)))
            if not term or not forms:
                raise NmtError(
                    f"{path}, line {line_number} has no {'target' if term else 'source'} term; write the source term, "
                    f"a tab, and the target term"
                )
            if term in terms:
                raise NmtError(
                    f"{path}, line {line_number} has the source term {term!r:.60} for the second time; put all target "
                    f"forms into one line, separated by tabs"
                )
            terms[term] = forms
        if not terms:
            raise NmtError(f"{path} has no terms; write lines with a source term, a tab, and a target term")
        _warn_of_rare([form for form, *_ in terms.values()], codecs, path)
        return cls(terms)

    def entry(self, text: str, direction: Direction) -> str | None:
        """Returns the translation of a text that is a term as a whole, which may have a capital letter in its place."""
        line = one_line(text).translate(_BREAKABLE)
        lower = line[:1].lower() + line[1:]
        forms = self.terms.get(line) or [capitalized(form, direction.target) for form in self.terms.get(lower, ())]
        return forms[0] if forms and (line in self.terms or lower.islower()) else None

    def occurrences_in(
        self, line: str, direction: Direction, endings: Collection[Endings] = ()
    ) -> list[TermOccurrence]:
        """Returns the terms in a source line. Where terms overlap, only the longest counts.

        A term in lower case may begin a sentence with a capital letter. With `endings`, it may also be in capitals, or
        in a heading whose words begin with them. Its forms may then have capitals, too.

        Args:
            endings: that the words of the source language exchange. Words with other endings are found, too.
        """
        spaces = has_spaces(direction.source)
        normal = one_line(line).translate(_BREAKABLE)
        starts = _sentence_starts(normal)
        occurrences = [
            *self._occurrences(normal, starts, spaces),
            *(self._inflected(normal, starts, endings, direction.source) if endings else ()),
        ]
        longest, is_taken = list[_TermSpan](), bytearray(len(normal))
        for occurrence in sorted(occurrences, key=lambda span: span[0] - span[1]):
            start, stop, *_ = occurrence
            if not any(is_taken[start:stop]):
                longest.append(occurrence)
                is_taken[start:stop] = b"\1" * (stop - start)
        terms = []
        for start, stop, term, has_capital in sorted(longest):
            forms, lang = self.terms[term], direction.target
            capitals = [capitalized(form, lang) for form in forms if has_capital]
            is_upper = endings and normal[start:stop].isupper() and not term.isupper()
            in_capitals = [upper(form, lang) for form in forms if is_upper]
            forms = tuple(dict.fromkeys([*in_capitals, *forms, *capitals]))
            terms.append(TermOccurrence(start, stop, forms, tuple(capitalized(form, lang) for form in forms)))
        return terms

    def _inflected(
        self, text: str, starts: Collection[int], endings: Collection[Endings], lang: str
    ) -> Iterator[_TermSpan]:
        """Yields start, end and term of each occurrence with other endings. None differs only in a capital letter.

        Nouns of German may also have an umlaut, as in `Fahrräder`.
        """
        may_have_umlaut = base_language(lang) == "de"

        def are_same(start: int, stop: int, part: str) -> bool:
            word = text[start:stop]
            if may_have_umlaut and word[:1].isupper() and part[:1].isupper():
                word, part = word.translate(_UMLAUTS), part.translate(_UMLAUTS)
            may_be_lower = start in starts or is_title
            has_case = word[:3] == part[:3] or word.isupper() or (may_be_lower and part.islower())
            return has_case and are_forms(word, part, endings)

        words = [word.span() for word in _WORD.finditer(text)]
        long_words = [text[start] for start, stop in words if stop - start > 3]
        is_title = len(long_words) > 1 and all(map(str.isupper, long_words))
        for first, (start, stop) in enumerate(words):
            for term, parts, gaps in self._by_beginning.get(_beginning(text[start:stop]), ()):
                spans = words[first : first + len(parts)]
                begin, end = start - len(gaps[0]), spans[-1][1] + len(gaps[-1])
                edges = [max(begin, 0), *chain(*spans), end]
                between = [text[a:b] for a, b in zip(edges[::2], edges[1::2], strict=True)]
                if between == gaps and all(are_same(a, b, part) for (a, b), part in zip(spans, parts, strict=True)):
                    yield begin, end, term, False

    def _occurrences(self, text: str, starts: Collection[int], spaces: bool) -> Iterator[_TermSpan]:
        """Yields start, end and term of each occurrence, and whether only a capital letter differs from the term."""

        def is_within_word(i: int) -> bool:  # marks above and below letters belong to them
            return 0 < i < len(text) and all(unicodedata.category(c)[0] in "LMN" for c in text[i - 1 : i + 1])

        cuts = [i for i in range(len(text) + 1) if not (spaces and is_within_word(i))]
        ends = set(cuts)
        for start in cuts:
            for end in (start + length for length in self._lengths if start + length in ends):
                written = text[start:end]
                lower = written[0].lower() + written[1:]
                if written in self.terms:
                    yield start, end, written, False
                elif start in starts and lower in self.terms and lower.islower():
                    yield start, end, lower, True


def _sentence_starts(text: str) -> set[int]:
    """Returns where the first words of the sentences of a text begin."""
    gaps = re.finditer(r"^\W*|\W+", text)
    return {gap.end() for gap in gaps if gap.start() == 0 or set(_ENDS) & set(gap[0].rpartition(" ")[0])}


def _beginning(word: str) -> str:
    return word[:3].lower().translate(_UMLAUTS)


def _warn_of_rare(terms: list[str], codecs: Iterable[TextCodec], path: str | Path) -> None:
    """Warns of terms that the training text hardly had: they have a piece for every 2.5 characters, or fewer.

    Of several models, the one with the fewest counts, because the others may be of other languages.
    """
    judged = [codec for codec in codecs if codec.config.subword != "char" and has_spaces(codec.direction.target)]
    encoded = (zip(terms, codec.encode_target(terms), strict=True) for codec in judged)
    all_rare = [[term for term, ids in pairs if UNK in ids or 2 * len(term) <= 5 * len(ids)] for pairs in encoded]
    if rare := min(all_rare, key=len, default=[]):
        share = f"{len(rare):,} of {console.counted(len(terms), 'target term')}"
        console.warn(
            f"{path}: probably rare in the training text: {console.listed(rare, 3)} ({share}); check their sentences"
        )
