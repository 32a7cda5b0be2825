"""How a sentence matches an earlier one: equal, equal but for numbers and protected words, or similar.

Sentences are equal if their text is, in NFC of Unicode and with every white space as one space. A text is compared
in parts: those with odd indices are its values (numbers and protected words), and the others are between them.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, Literal, NamedTuple

import regex as re

from nmt.text.languages import (
    UNSPACED_SCRIPT,
    WITH_DECIMAL_POINT,
    WITH_SPACED_THOUSANDS,
    base_language,
    is_among,
    plural_form,
    plural_forms,
)
from nmt.text.protected import ProtectedSpan

_SPACES = " \u00a0\u202f"
# Placeholders that take the next value, so that their order is that of the values.
_IN_ORDER = re.compile(r"%[^$()\[{%]*|\{(?::.*)?\}")
_TOKEN = re.compile(rf"{UNSPACED_SCRIPT.pattern}|(?:(?!{UNSPACED_SCRIPT.pattern})\w)+|\s+|[^\w\s]")


class Match(NamedTuple):
    """An earlier sentence and its translation."""

    source: str
    target: str  # with the values of the new sentence if only these differ
    score: float  # the similarity of the sources; 1 if and only if `target` translates the new sentence
    sentence: str  # the new one, in the form in which sentences are compared

    @property
    def percent(self) -> int:
        """The score in percent."""
        return round(100 * self.score)

    def fields(self) -> dict[str, Any]:
        """Returns the match as the fields of a JSON object."""
        fields = self._asdict()
        return fields | {"difference": difference(fields["source"], fields.pop("sentence"))}


def normalised(text: str) -> str:
    """Returns the form in which sentences are compared."""
    return " ".join((text if text.isascii() else unicodedata.normalize("NFC", text)).split())


# Numbers and protected words


def parts_of(text: str, protected: Iterable[ProtectedSpan], language: str) -> list[str]:
    """Returns the parts of a text, whose protected words are given in order."""
    has_spaces = is_among(language, WITH_SPACED_THOUSANDS)
    groups = rf"(?<!\d)\d{{1,3}}(?:[{_SPACES}]\d{{3}})+(?!\d)(?:,\d+)?|" if has_spaces else ""
    parts, end, text = list[str](), 0, text.replace("\0", "\ufffd")
    for start, stop, _ in [*protected, ProtectedSpan(len(text), len(text), "")]:
        parts += [*re.split(rf"({groups}\d+(?:[.,]\d+)*)", text[end:start]), text[start:stop]]
        end = stop
    return parts[:-1]


def normalised_parts(text: str, protected: Iterable[ProtectedSpan], language: str) -> list[str]:
    """Returns the parts of a text in the form in which sentences are compared; see `parts_of`."""
    return normalised("\0".join(parts_of(text, protected, language))).split("\0")


def rest(parts: Sequence[str]) -> str:
    """Returns a text with a sign in place of each value."""
    return "".join(f"\0{part[0].isdigit():d}" if i % 2 else part for i, part in enumerate(parts))


def _number(text: str, language: str) -> tuple[str, str, str] | None:
    """Returns the digits of a number before and behind the decimal mark, and what separates its thousands.

    A date, a version and the like is None.
    """
    mark, separators = (r"\.", ",") if is_among(language, WITH_DECIMAL_POINT) else (",", f".{_SPACES}")
    match = re.fullmatch(rf"(\d+|\d{{1,3}}([{separators}])\d{{3}}(?:\2\d{{3}})*)(?:{mark}(\d+))?", text)
    return match and (re.sub(r"\D", "", match[1]), match[3] or "", match[2] or "")


def _written(number: tuple[str, str, str], language: str, like: tuple[str, str, str]) -> str:
    """Returns a number as a language writes it; its thousands are separated as in another one, if that has any."""
    whole, fraction, separator = number
    is_point = is_among(language, WITH_DECIMAL_POINT)
    usual = separator and ("," if is_point else "\u202f" if is_among(language, WITH_SPACED_THOUSANDS) else ".")
    separator = like[2] if len(like[0]) > 3 else usual
    grouped = separator.join(re.findall(r"\d{1,3}", whole[::-1]))[::-1] if separator else whole
    return grouped + (("." if is_point else ",") + fraction if fraction else "")


def _plural_form(number: tuple[str, str, str], language: str) -> int:
    """Returns the number of the plural form of words behind a number; for fractions, -1 if it may be another one."""
    whole, fraction, _ = number
    form = plural_form(language)
    if fraction and plural_forms(language) >= "nplurals=3":
        return -1
    # Where 0 takes the singular, such as in French, so does 1.5; elsewhere, it takes the plural.
    return form(2 if fraction and form(0) != form(1) else int(whole[-6:]) + 10**6 * (len(whole) > 6))


def _depend_on_number(before: str, after: str, language: str) -> bool:
    """Returns whether the words beside a number may change with it: dell'11 and del 12, an 8 and a 9, 5'te and 6'da."""
    article = {"en": r"\b(?:a|an) $", "hu": r"\b(?:a|az) $"}.get(base_language(language), "$.")
    return bool(re.search(rf"\w['’]$|{article}", before, re.I) or re.match(r"['’:-][^\W\d_]", after))


def _is_clear(before: str, after: str, language: str) -> bool:
    """Whether a number of the memory says how to write another one.

    A 3 does not say whether 3.1 is a quantity or the number of a section, which stays as it is in all languages.
    """
    value, new_value = _number(before, language), _number(after, language)
    if not (value and new_value):
        return not (value or new_value)
    return not (is_among(language, WITH_DECIMAL_POINT) and new_value[1]) or any((new_value[2], *value[1:]))


def with_values(old: Sequence[str], new: Sequence[str], parts: Sequence[str], languages: tuple[str, str]) -> str | None:
    """Returns a translation with new values, or None if it is not clear where they belong.

    A value that changes must occur in the translation as often as in its source, with the same new value each
    time. A number before a word must not need another form of that word. If a number changes, the translation must
    have no others than its source, since they may depend on it, such as 16 km for 10 miles.

    Args:
        old: the values of the source.
        new: those of a sentence that is the same otherwise.
        parts: of the translation of the source.
    """
    changes = dict(zip(old, new, strict=True))
    if [changes[value] for value in old] != list(new):
        return None
    numbers = [_number(text, languages[1]) if i % 2 else None for i, text in enumerate(parts)]
    written, sources = list(parts), dict[int, str]()
    for before, after in changes.items():
        value, new_value = _number(before, languages[0]), _number(after, languages[0])
        equal = [i for i, number in enumerate(numbers) if value and number and number[:2] == value[:2]]
        places = equal or [i for i, part in enumerate(parts) if i % 2 and part == before]
        sources |= dict.fromkeys(places, before)
        if before == after:
            continue
        if len(places) != list(old).count(before) or not _is_clear(before, after, languages[0]):
            return None
        if before[0].isdigit() and not equal and not set(re.findall(r"\D", after)) <= set(before):
            return None  # 2.1 that stays 2.1 is a section or a version, and 1,200 is not
        for i in places:
            number = numbers[i] if equal else None
            if before != after and before[0].isdigit() and _depend_on_number(parts[i - 1], parts[i + 1], languages[1]):
                return None
            if not (new_value and number):
                written[i] = after
                continue
            forms = {_plural_form(each, languages[1]) for each in (number, new_value)}
            if re.match(r"\s?[^\W\d_]" if len(forms) > 1 else r"(?:st|nd|rd|th)\b", parts[i + 1]):
                return None
            written[i] = _written(new_value, languages[1], number)
    has_new_number = any(before != after and before[0].isdigit() for before, after in changes.items())
    if has_new_number and any(i not in sources and parts[i][0].isdigit() for i in range(1, len(parts), 2)):
        return None
    ordered = [value for value in old if _IN_ORDER.fullmatch(changes[value])]
    is_in_order = [value for _, value in sorted(sources.items()) if value in ordered] == ordered
    return "".join(written) if is_in_order else None


def exact_match(
    sentence: Sequence[str], earlier: Sequence[str], target: Sequence[str], languages: tuple[str, str]
) -> Match | None:
    """Returns the match if a pair translates a sentence, perhaps with other values. All are given in parts."""
    old, new = "".join(earlier), "".join(sentence)
    if old == new:
        return Match(old, "".join(target), 1.0, old)
    if rest(earlier) != rest(sentence):
        return None
    filled = with_values(earlier[1::2], sentence[1::2], target, languages)
    return None if filled is None else Match(old, filled, 1.0, new)


# Similar sentences


def difference(earlier: str, sentence: str) -> list[tuple[Literal["=", "-", "+"], str]]:
    """Returns the parts of both in order: `=` is in both, `-` only in the earlier one, `+` only in the new one."""
    if earlier == sentence:
        return [("=", sentence)]
    from rapidfuzz.distance import Indel  # of the extra `memory`

    old, new = _TOKEN.findall(earlier), _TOKEN.findall(sentence)
    parts: list[tuple[Literal["=", "-", "+"], str]] = []
    for is_equal, edits in groupby(Indel.opcodes(old, new), lambda edit: edit.tag == "equal"):
        *_, last = first, *_ = list(edits)
        before = "".join(old[first.src_start : last.src_end])
        after = "".join(new[first.dest_start : last.dest_end])
        parts += [("=", before)] if is_equal else [("-", before), ("+", after)]
    return [part for part in parts if part[1]]


def near_matches(sentence: str, pairs: Sequence[tuple[str, str]], least: float, most: int) -> list[Match]:
    """Returns the pairs whose sources are most similar to a normalised sentence, the most similar first.

    The similarity is 1 − d/n, rounded down: d is the edit distance in characters, and n the longer text's length.
    """
    from rapidfuzz.distance import Levenshtein
    from rapidfuzz.process import extract

    sources, similarity = [source for source, _ in pairs], Levenshtein.normalized_similarity
    cutoff = least - 0.01  # which extract takes for a little more than it is
    scored = extract(sentence, sources, scorer=similarity, score_cutoff=cutoff, limit=most)
    return [
        Match(source, pairs[i][1], int(100 * score + 1e-6) / 100, sentence)
        for source, score, i in scored
        if score > least - 1e-6
    ]
