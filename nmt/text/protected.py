"""Protected words: what of a text comes out of its translation as it went in.

Addresses, placeholders of programs, tags, references of HTML and emoji are protected, and what the patterns of a user
match. A search can require them, but it may lack pieces for their characters, or write letters directly behind them.
`with_protected` therefore puts them right in any translation, whatever engine made it.
"""

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from functools import cache
from itertools import islice, pairwise
from typing import NamedTuple

import regex

from nmt.errors import NmtError
from nmt.text.protected_kinds import KINDS, SIGNS
from nmt.text.words import RAW_WORD

Span = tuple[int, int]


class ProtectedSpan(NamedTuple):
    """Where a text has a protected word.

    Attributes:
        kind: address, placeholder, tag (also a block of a template, a comment and the like), link (an end of one of
            MediaWiki), escape, citation, hashtag, reference, emoji, keep (what a pattern of the user matches), or
            markup (what stays because markup says so).
    """

    start: int
    stop: int
    kind: str

    def word(self, text: str) -> str:
        """Returns the protected word of the text."""
        return text[self.start : self.stop]


_HAS_SIGN = re.compile(SIGNS)
_PATIENCE_SECONDS = 1.0  # for a pattern in one text


class Protected:
    """Finds what of a text stays as it is.

    Args:
        keep: regular expressions of the user, such as those of --keep.
        defaults: whether addresses, placeholders and the like stay, too.

    Raises:
        NmtError: a regular expression is not valid, or matches an empty text.
    """

    def __init__(self, keep: Iterable[str] = (), defaults: bool = True) -> None:
        self.keep, self.defaults = tuple(keep), defaults
        try:
            self._own = [regex.compile(pattern) for pattern in self.keep]
        except regex.error as error:
            raise NmtError(f"--keep {error.pattern!r:.80} is not a regular expression ({error}); correct it") from error
        if empty := [pattern for pattern in self._own if pattern.fullmatch("", timeout=_PATIENCE_SECONDS)]:
            raise NmtError(f"--keep {empty[0].pattern!r:.80} matches an empty text; write what must be there")

    def spans(self, text: str, others: Iterable[Span] = ()) -> list[ProtectedSpan]:
        """Returns where protected words are, in order. Those that overlap are one, with the kind of the first.

        Args:
            others: what stays because markup says so.

        Raises:
            NmtError: a pattern of `keep` takes too long.
        """
        kinds = _compiled_kinds() if self.defaults and _HAS_SIGN.search(text) else ()
        matches = [(kind, match) for kind, pattern in kinds for match in pattern.finditer(text)]
        for pattern in self._own:
            try:
                matches += [("keep", match) for match in pattern.finditer(text, timeout=_PATIENCE_SECONDS) if match[0]]
            except TimeoutError as error:
                raise NmtError(
                    f"--keep {pattern.pattern!r:.80} takes more than {_PATIENCE_SECONDS:g} second for a text of "
                    f"{len(text):,} characters; write it without nested repetitions"
                ) from error
        spans = [ProtectedSpan(match.start(), match.end(), kind) for kind, match in matches]
        spans += [ProtectedSpan(start, stop, "markup") for start, stop in others]
        joined: list[ProtectedSpan] = []
        for span in sorted(spans, key=lambda span: (span.start, -span.stop)):
            if joined and span.start < joined[-1].stop:
                joined[-1] = joined[-1]._replace(stop=max(span.stop, joined[-1].stop))
            else:
                joined.append(span)
        return joined


@cache
def _compiled_kinds() -> list[tuple[str, regex.Pattern[str]]]:
    """Returns the names and patterns of the kinds. Commands that translate nothing do not compile them."""
    return [(kind.name, regex.compile(kind.pattern, regex.VERBOSE | regex.DOTALL)) for kind in KINDS]


def javascript_patterns() -> list[str]:
    """Returns the patterns for the flags s and u of JavaScript, which has no verbose form and possessive repetition."""
    compact = (re.sub(r"\s+(?:# .*)?", "", kind.pattern) for kind in KINDS)
    return [re.sub(r"(?<=[*+}])\+", "", pattern) for pattern in compact]


# Where letters before and behind a word seem to belong to it, directly or with a sign of addresses between
_SIGN = r"[-/_=&#%@+~.:]"
_JOINED_BEFORE = re.compile(rf"(?<=[^\W_])|(?<=[^\W_]{_SIGN})(?=[^\W_]|{_SIGN})")
_JOINED_BEHIND = re.compile(rf"(?=[^\W_])|(?:(?<=[^\W_])|(?<={_SIGN}))(?={_SIGN}[^\W_])")
# How a translation goes on behind a copy of an address that is too long
_LONGER = re.compile(r"(?<=[\w/])[/=&#@+~?][^\s,;!?)\]{<$%]*(?<![.:])")
# Placeholders of text, also with a unit before them; a unit behind them; and one between two of them
_COUNT = re.compile(r"[a-z/:x-]{0,3}(?:[%$#]|\{(?!%|\{[#/^]|\{\s*else\b))")
_UNIT, _UNIT_BETWEEN = re.compile(r"[^\W_]{1,4}(?![^\W_])"), re.compile(r"[^>](?:[a-z]|min)[^<]")
# Tags, blocks of templates, citations in brackets, and links; and one that is empty or ends at once
_ORDERED = regex.compile(r"</?\w|\{\{(?:[#/^]|\s*else\b)|\{%|[\[\]|]\Z|(?<=\[[^\[\]]{0,200})@")
_PAIR = re.compile(r"\[[^\[\]]*\]|<[^<>]*/>|<([\w.:-]+)[^<>]*></\1\s*>|\{\{[#^](\w+)[^{}]*\}\}\{\{/\2\}\}")
_OPENING, _CLOSING = "([{\"'«„“", ".,;:!?…)]}\"'»”"
# A part of a translation this similar to a protected word is a damaged copy of it; 1 means equal.
_SIMILAR = 0.7
# Damaged copies are looked for if the characters of missing words and translation have at most this product.
_MOST_COMPARED = 200_000
# Matches any of the texts that it is given.
_ANY = r"\L<texts>"
# Ordinary words, which stay because markup says so, and which a model translates.
_ORDINARY = re.compile(r"[^\W\d_][\w'’ -]*")


# The beginning of a placeholder of printf, and of no percentage such as `50 %` and `%50`
SURPLUS = re.compile(r"(?<!\d)(?<!\d\s)%(?!\d+\b(?!\$))")


def lacks(translation: str, words: Sequence[str]) -> bool:
    """Returns whether a translation lacks one of these protected words, each as often as it is given."""
    return bool(Counter(words) - Counter(regex.findall(_ANY, translation, texts=set(words))))


def with_protected(
    source: str,
    protected: Sequence[ProtectedSpan],
    translation: str,
    links: Mapping[int, int],
    *,
    spaces: bool,
    given: Iterable[str] = (),
) -> tuple[str, dict[int, int]]:
    """Returns the translation with every protected word of the source, and the links between words of both.

    A word that the translation has stays where it is, apart from other letters and digits, unless the source joins them
    too. A damaged copy of a word, another placeholder of its kind, or the translation of ordinary words, is replaced. A
    word that is missing is inserted behind the translation of the word before it, or at the same share of the length if
    there are no links. Tags are nested as in the source. If it has placeholders of printf, surplus ones go.

    Args:
        protected: where the protected words are in the source, in order.
        links: the source word of target words, by their numbers; may be empty.
        spaces: whether spaces separate the words of the target language.
        given: phrases of the translation that nothing is put into.
    """
    words = [(span.start, span.stop) for span in protected]
    copies = _Copies(source, translation, links, spaces, given)
    copies.take_exact(words)
    missing = [word for word in words if word not in copies.spans]
    is_short = sum(stop - start for start, stop in missing) * len(translation) <= _MOST_COMPARED
    for word in missing:
        if span := (copies.damaged(word) if is_short else None) or copies.translated(word):
            copies.take(word, span)
    copies.take_others(words, [word for word in missing if word not in copies.spans])
    copies.insert_missing(words)
    copies.nest_tags()
    return copies.written()


class _Copies:
    """Where a translation has, or gets, the protected words of its source; see `with_protected`.

    Attributes:
        spans: the part of the translation that is replaced, by the part of the source that replaces it, if any.
    """

    def __init__(
        self, source: str, translation: str, links: Mapping[int, int], spaces: bool, given: Iterable[str]
    ) -> None:
        self._source, self._translation, self._links, self._spaces = source, translation, links, spaces
        self.spans: dict[Span, Span] = {}
        # For each character of the translation, where the copy or the phrase of the user that has it ends; or 0
        self._taken = [0] * len(translation)
        for phrase in filter(translation.count, given):
            start = translation.find(phrase)
            self._taken[start : start + len(phrase)] = [start + len(phrase)] * len(phrase)
        self._source_starts = [word.start() for word in RAW_WORD.finditer(source)]
        self._words = [word.span() for word in RAW_WORD.finditer(translation)]

    def take(self, word: Span, span: Span) -> None:
        """Has a part of the translation replaced by a word."""
        self.spans[word] = span
        self._taken[slice(*span)] = [span[1]] * (span[1] - span[0])

    def take_exact(self, words: Sequence[Span]) -> None:
        """Takes the words that the translation has as they are written; first those beside letters as in the source."""
        texts = {self._source[slice(*word)] for word in words}
        free = defaultdict[tuple[str, int], list[Span]](list)
        for match in [*regex.finditer(_ANY, self._translation, texts=texts)][::-1]:
            free[match[0], _joined_sides(self._translation, *match.span())].append(match.span())
        for word in words:
            text, sides = self._source[slice(*word)], _joined_sides(self._source, *word)
            if spans := next(filter(None, (free[text, sides ^ differences] for differences in range(4))), None):
                start, stop = spans.pop()
                longer = None if sides & 2 else _LONGER.match(self._translation, stop)
                self.take(word, (start, longer.end() if longer else stop))

    def damaged(self, word: Span) -> Span | None:
        """Returns where the translation has a copy of a word with other letters, capitals or spaces."""
        wanted = "".join(self._source[slice(*word)].lower().split())
        if len(wanted) < 2:
            return None
        # A word without the signs of a placeholder is a word of the translation.
        signs = set(re.findall(r"[^\w.'’-]", wanted))
        opening, closing = re.escape(_OPENING.replace(wanted[0], "")), re.escape(_CLOSING.replace(wanted[-1], ""))
        inner = regex.compile(f"(?s)[{opening}]*(.*?)[{closing}]*")
        matcher = SequenceMatcher(None, "", wanted, autojunk=False)
        damaged, most = None, _SIMILAR
        for first, (start, _) in enumerate(self._words):
            for _, stop in islice(self._words, first, None):
                match = inner.fullmatch(self._translation, start, stop)
                squeezed = "".join(match[1].lower().split())
                if len(squeezed) > 2 * len(wanted) or any(self._taken[slice(*match.span(1))]):
                    break
                matcher.set_seq1(squeezed)
                is_copy = squeezed in (wanted, wanted.lstrip("-@#")) or signs & set(squeezed)
                if is_copy and (ratio := matcher.ratio()) > most:
                    damaged, most = match.span(1), ratio
        return damaged

    def translated(self, word: Span) -> Span | None:
        """Returns where ordinary words are translated: at consecutive linked words, and not many more of them."""
        if not self._links or not _ORDINARY.fullmatch(self._source, *word):
            return None
        first, last = (bisect_right(self._source_starts, edge) - 1 for edge in (word[0], word[1] - 1))
        linked = sorted(target for target, origin in self._links.items() if first <= origin <= last)
        if not linked or linked[-1] - linked[0] + 1 != len(linked) or len(linked) > last - first + 2:
            return None
        start, stop = self._words[linked[0]][0], self._words[linked[-1]][1]
        stop = start + len(self._translation[start:stop].rstrip(".,;:!?"))
        return None if any(self._taken[start:stop]) else (start, stop)

    def take_others(self, words: Sequence[Span], missing: list[Span]) -> None:
        """Takes other placeholders for missing ones of their kind, and has surplus ones of printf removed."""
        source, translation = self._source, self._translation
        has_printf = any(_kind(source, start)[:1] == "%" for start, _ in words)
        for start, stop, _ in Protected().spans(translation) if missing or has_printf else ():
            kind, text = _kind(translation, start), translation[start:stop]
            if any(self._taken[start:stop]) or not kind:
                continue
            if word := next((word for word in missing if _kind(source, word[0]) == kind), None):
                missing.remove(word)
                self.take(word, (start, stop))
            elif has_printf and SURPLUS.match(translation, start) and translation.count(text) > source.count(text):
                start -= translation[:start].endswith(" ")
                stop += start == 0 and translation.startswith(" ", stop)
                self.take((len(source) + start, len(source) + start), (start, stop))

    def nest_tags(self) -> None:
        """Has tags and blocks follow each other as in the source, unless all of them are nested as there."""
        words = sorted(word for word in self.spans if _ORDERED.search(self._source, *word))
        in_order = sorted(words, key=lambda word: (self.spans[word], word))
        tags = ["".join(self._source[slice(*word)] for word in each) for each in (words, in_order)]
        while (fewer := [_PAIR.sub("", each) for each in tags]) != tags:
            tags = fewer
        if tags[0] != tags[1]:
            self.spans |= zip(words, [self.spans[word] for word in in_order], strict=True)

    def insert_missing(self, words: Sequence[Span]) -> None:
        """Inserts the words that have no place yet, at edges of words of the translation.

        A word that only signs or a unit separate from the word before it, such as `{b}` in `{a}/{b}`, is put behind
        that one with them.
        """
        source, translation = self._source, self._translation
        by_source = sorted((origin, target) for target, origin in self._links.items())
        is_by_word = self._spaces or self._links
        ends = [0, *(stop for _, stop in self._words)] if is_by_word else range(len(translation) + 1)
        copy, end = (0, 0), 0  # of the word before
        for start, stop in words:
            between = source[end:start]
            is_unit = end and _UNIT_BETWEEN.fullmatch(source, end - 1, start + 1)
            if (start, stop) in self.spans:
                begin, position = start, self.spans[start, stop][0]
            elif end and (is_unit or not any(map(str.isalnum, between))):
                begin, position = start, copy[1]
                if between and not any(map(str.isspace, between)):
                    is_written = translation.startswith(between, position) and copy[0] < copy[1]
                    begin, position = (start, position + len(between)) if is_written else (end, position)
            else:
                if self._links:
                    before = bisect_left(by_source, (bisect_right(self._source_starts, start) - 1, -1))
                    count = by_source[before - 1][1] + 1 if before else 0
                else:
                    count = round(start / max(1, len(source) - (stop - start)) * (len(ends) - 1))
                begin, position = start, ends[min(count, len(ends) - 1)]
                if source[:start].rstrip()[-1:].isalnum():  # no punctuation stands before the word
                    position = len(translation[:position].rstrip(".,;:!?…。，！？；："))
                if (count >= len(ends) - 1 or not self._links) and not any(map(str.isalnum, source[stop:])):
                    position = len(translation.rstrip(" .!?:;…。！？"))  # before the final punctuation
                inside = self._taken[max(0, position - 1) : position + 1]
                position = inside[0] if len(inside) == 2 and inside[0] == inside[1] != 0 else position
            copy, end = self.spans.setdefault((begin, stop), (position, position)), stop

    def written(self) -> tuple[str, dict[int, int]]:
        """Returns the translation with its copies of protected words, and the links of its words."""
        source, translation = self._source, self._translation
        # The source word that each character comes from, or -1. Those of copies are larger than all others.
        linked, numbers, copied = [-1] * len(translation), list[int](), len(source)
        for target, (start, stop) in enumerate(self._words):
            linked[start:stop] = [self._links.get(target, -1)] * (stop - start)
        text, end = "", 0
        edits = sorted((span, word) for word, span in self.spans.items())
        for ((start, stop), (begin, last)), (following, _) in pairwise([*edits, ((-1, -1), (0, 0))]):
            word, is_new = source[begin:last], start == stop
            left, right = source[begin - 1 : begin], source[last : last + 1]
            # In the source, a bracket or the like touches the word.
            start -= bool(left.strip() and not left.isalnum() and translation[:start].endswith(f"{left} "))
            stop += bool(right.strip() and not right.isalnum() and translation.startswith(f" {right}", stop))
            text += translation[end:start]
            around = text[-2:], translation[stop : stop + 2]
            sides = _joined_sides(word.join(around), len(around[0]), len(around[0]) + len(word))
            beside = "" if following == (stop, stop) else around[1][:1]
            unit = self._spaces and _COUNT.match(source, begin) and _UNIT.match(source, last)
            has_unit = not unit or re.match(rf"(?i){unit[0]}(?![^\W_])", translation[stop:])
            right = right if has_unit else ""
            before = " " * bool(word and self._is_apart(text[-1:], sides & 1, left, _OPENING * is_new))
            behind = " " * bool(word and self._is_apart(beside, sides & 2, right, _CLOSING * is_new))
            text += before + word + behind
            of_word = (copied + bisect_right(self._source_starts, i) - 1 for i in range(begin, last))
            numbers += [*linked[end:start], *[-1] * len(before), *of_word, *[-1] * len(behind)]
            end = max(end, stop)
        text, numbers = text + translation[end:], numbers + linked[end:]
        origins = ((i, max(numbers[slice(*word.span())])) for i, word in enumerate(RAW_WORD.finditer(text)))
        return text, {i: origin % copied for i, origin in origins if origin >= 0 and self._links}

    def _is_apart(self, beside: str, is_joined: int, in_source: str, touching: str) -> bool:
        """Returns whether a space must separate a protected word from what stands beside it in the translation.

        Args:
            in_source: what stands beside it in the source.
            touching: marks that an inserted word may touch; empty for other words.
        """
        if not beside or beside.isspace() or beside == in_source or re.match("[a-zA-Z0-9]", in_source):
            return False
        if touching and self._spaces:
            return beside not in touching
        return bool(is_joined) and (self._spaces or beside.isascii())


def _kind(text: str, start: int) -> str:
    """Returns the signs that a placeholder, name or citation begins with; empty for addresses and words."""
    return re.split(r"[^\W_]|[\s/]|(?<=[^-@])@", text[start : start + 9], maxsplit=1)[0]


def _joined_sides(text: str, start: int, stop: int) -> int:
    """Returns the sum of 1 if what stands before a word seems to belong to it, and of 2 if what stands behind does."""
    if text[start:stop].startswith("]") or text[start:stop].endswith(("[", "|")):
        return 0
    if _kind(text, start).strip("-@"):  # a sign joins no placeholder, as in `%d-mal`
        return text[:start][-1:].isalnum() + 2 * text[stop : stop + 1].isalnum()
    return bool(_JOINED_BEFORE.match(text, start)) + 2 * bool(_JOINED_BEHIND.match(text, stop))
