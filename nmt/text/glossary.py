"""Glossaries: terms of the source language, and how they are translated."""

import csv
import re
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

from nmt.errors import NmtError
from nmt.text.casing import capitalized
from nmt.text.corpus import name_of, opened, table_lines
from nmt.text.words import is_blank

# A sentence begins after one of these and a space. Quotation marks and brackets may lie between them and the words.
_ENDS = set(".!?…")


class Glossary:
    """Terms of the source language with the forms of their translations.

    Args:
        terms: the forms by term. Any one of them translates the term.
    """

    def __init__(self, terms: Mapping[str, tuple[str, ...]]) -> None:
        self.terms = terms
        self._lengths = sorted(set(map(len, terms)))

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Returns the glossary in a file. A line has a term and its forms, separated by tabs."""
        terms: dict[str, tuple[str, ...]] = {}
        with opened(path) as file:
            lines, has_quotes = table_lines(file, name_of(path))
            numbered = list(enumerate(lines, start=1))
        for number, line in numbered:
            if is_blank(line) or line.startswith("#"):
                continue
            source, *target = next(csv.reader([line], delimiter="\t")) if has_quotes else line.split("\t")
            term, forms = " ".join(source.split()), tuple(filter(None, map(str.strip, target)))
            if not term or not forms:
                raise NmtError(
                    f"{path}, line {number} has no {'target' if term else 'source'} term; write the source term, a "
                    f"tab, and the target term"
                )
            if term in terms:
                raise NmtError(
                    f"{path}, line {number} has the source term {term!r:.60} for the second time; put all target "
                    f"forms into one line, separated by tabs"
                )
            terms[term] = forms
        if not terms:
            raise NmtError(f"{path} has no terms; write lines with a source term, a tab, and a target term")
        return cls(terms)

    def found_in(self, line: str, *, spaces: bool, lang: str = "") -> list[tuple[str, ...]]:
        """Returns the forms of each term that occurs in a source line. Where terms overlap, only the longest counts.

        A term in lower case may begin a sentence with a capital letter. Its forms may then have one, too.

        Args:
            spaces: whether spaces separate the words of the language, so that only whole words match.
            lang: of the forms.
        """
        longest: list[tuple[int, int, str, bool]] = []
        for new in sorted(self._occurrences(" ".join(line.split()), spaces), key=lambda span: span[0] - span[1]):
            if all(new[1] <= other[0] or other[1] <= new[0] for other in longest):
                longest.append(new)
        forms_of: dict[str, list[str]] = {}
        for _, _, term, capital in sorted(longest):
            forms = self.terms[term]
            forms_of[term] = [*forms_of.get(term, forms), *(capitalized(form, lang) for form in forms if capital)]
        return [tuple(dict.fromkeys(forms)) for forms in forms_of.values()]

    def _occurrences(self, text: str, spaces: bool) -> Iterator[tuple[int, int, str, bool]]:
        """Yields start, end and term of each occurrence, and whether only a capital letter differs from the term."""

        def is_within_word(i: int) -> bool:  # marks above and below letters belong to them
            return 0 < i < len(text) and all(unicodedata.category(c)[0] in "LMN" for c in text[i - 1 : i + 1])

        cuts = [i for i in range(len(text) + 1) if not (spaces and is_within_word(i))]
        ends, gaps = set(cuts), re.finditer(r"^\W*|\W+", text)
        sentences = {gap.end() for gap in gaps if gap.start() == 0 or _ENDS & set(gap[0].rpartition(" ")[0])}
        for start in cuts:
            for end in (start + length for length in self._lengths if start + length in ends):
                written = text[start:end]
                lower = written[0].lower() + written[1:]
                if written in self.terms:
                    yield start, end, written, False
                elif start in sentences and lower in self.terms and lower.islower():
                    yield start, end, lower, True
