"""Protected words: what of a text comes out of its translation as it went in.

Words of the kinds in `protected_kinds` are protected, and what the patterns of a user match. A search can require
them, but it may lack pieces for their characters, or write letters directly behind them. `with_protected` therefore
puts them right in any translation, whatever engine made it.
"""

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

import regex

from nmt.errors import NmtError
from nmt.text.protected_kinds import KINDS, SIGNS
from nmt.text.words import RAW_WORD, has_letters

Span = tuple[int, int]


class ProtectedSpan(NamedTuple):
    """Where a text has a protected word.

    Attributes:
        kind: address, placeholder, tag (also a block of a template, a comment and the like), link (an end of one
            of MediaWiki), escape, citation, hashtag, reference, emoji, keep (what a pattern of the user matches),
            or markup (what stays because markup says so).
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


PROTECTED = Protected()


@cache
def _compiled_kinds() -> list[tuple[str, regex.Pattern[str]]]:
    """Returns the names and patterns of the kinds. Commands that translate nothing do not compile them."""
    return [(kind.name, regex.compile(kind.pattern, regex.VERBOSE | regex.DOTALL)) for kind in KINDS]


# Punctuation that may touch a word, before and behind it
_OPENING, _CLOSING = "([{\"'«„“", ".,;:!?…)]}\"'»”"
_END = ".,;:!?…。，！？；："
# How a translation goes on behind a copy of an address that is too long
_LONGER = re.compile(r"[/=&#@+~?][^\s,;!?)\]{<$%]*(?<![.:])")
# Letters that seem to belong to an address or a citation
_JOINED = r"[-/_=&#%@+~.:]?[^\W_]"
# A unit beside a placeholder
_UNIT = re.compile(r"[^\W_]{1,4}(?![^\W_])")
# Tags, blocks of templates, citations in brackets, and links; and one that is empty or ends at once
_ORDERED = regex.compile(r"</?\w|\{\{(?:[#/^]|\s*else\b)|\{%|[\[\]|]\Z|(?<=\[[^\[\]]{0,200})@")
_PAIR = re.compile(r"\[[^\[\]]*\]|<[^<>]*/>|<([\w.:-]+)[^<>]*></\1\s*>|\{\{[#^](\w+)[^{}]*\}\}\{\{/\2\}\}")
# Matches any of the texts that it is given.
_ANY = r"\L<texts>"
# Ordinary words, which stay because markup says so, and which a model translates
_ORDINARY = regex.compile(r"[^\W\d_][\w\u200c\u200d'’ -]*")
# The beginning of a placeholder of printf, and of no percentage such as `50 %` and `%50`
SURPLUS = re.compile(r"(?<!\d)(?<!\d\s)%(?!\d+\b(?!\$))")


def unprotected(text: str, protected: Iterable[ProtectedSpan]) -> str:
    """Returns what is left of a text without its protected words: what can be translated of it."""
    edges = [0, *(edge for span in protected for edge in span[:2]), len(text)]
    return "".join(text[start:stop] for start, stop in zip(edges[::2], edges[1::2], strict=True))


def spans_in(spans: Sequence[ProtectedSpan], start: int, stop: int) -> tuple[ProtectedSpan, ...]:
    """Returns those of a text's spans, given in order, that are in a part of it, counted from its beginning."""
    first, last = (bisect_left(spans, position, key=attrgetter("start")) for position in (start, stop))
    return tuple(
        ProtectedSpan(span.start - start, span.stop - start, span.kind)
        for span in spans[first:last]
        if span.stop <= stop
    )


def is_inside(spans: Sequence[ProtectedSpan], position: int) -> bool:
    """Returns whether a position is between two characters of one of the spans, given in order."""
    preceding = bisect_left(spans, position, key=attrgetter("start"))
    return preceding > 0 and position < spans[preceding - 1].stop


def masked(text: str, protected: Iterable[ProtectedSpan]) -> str:
    """Returns a text with a null character in place of each character of protected words; their white space stays.

    Args:
        protected: in order.
    """
    parts, end = list[str](), 0
    for start, stop, _ in protected:
        parts += [text[end:start], RAW_WORD.sub(lambda word: "\0" * len(word[0]), text[start:stop])]
        end = stop
    return "".join([*parts, text[end:]])


def lacks(translation: str, words: Sequence[str]) -> bool:
    """Returns whether a translation lacks one of these protected words, each as often as it is given."""
    return bool(Counter(words) - Counter(regex.findall(_ANY, translation, texts=set(words))))


def with_protected(
    source: str,
    protected: Sequence[ProtectedSpan],
    translation: str,
    source_of: Mapping[int, int],
    *,
    spaces: bool,
    given: Iterable[str] = (),
    prefix: str = "",
) -> tuple[str, dict[int, int]]:
    """Returns the translation with every protected word of the source, and the source words of its words.

    A word stays where the translation has it, perhaps with other capitals or spaces. Otherwise, it replaces
    another word of its kind, or the translation of ordinary words. If there is none, it is inserted behind the
    translation of the word before it, or at the same share of the length if there is no alignment. Tags are nested as
    in the source. Surplus placeholders of printf go.

    Args:
        protected: where the protected words are in the source, in order.
        source_of: the source word of target words, by their numbers; may be empty.
        spaces: whether spaces separate the words of the target language.
        given: phrases of the translation that nothing is put into.
        prefix: what the translation must begin with.
    """
    repair = _Repair(source, protected, translation, source_of, spaces, [prefix, *given], prefix)
    repair.take_copies()
    repair.take_others()
    repair.insert_missing()
    repair.nest_tags()
    return repair.repaired()


@dataclass
class _Repair:
    """Puts the protected words of a source into its translation; see `with_protected`."""

    source: str
    protected: Sequence[ProtectedSpan]
    translation: str
    source_of: Mapping[int, int]
    spaces: bool
    given: Iterable[str]
    prefix: str

    def __post_init__(self) -> None:
        self.replaced: dict[Span, Span] = {}  # for each protected span of the source, what it replaces
        # For each character of the translation, the end of the copy or given phrase around it; 0 if there is none
        self._taken = [0] * len(self.translation)
        for phrase in filter(self.translation.count, self.given):
            start = self.translation.find(phrase)
            self._taken[start : start + len(phrase)] = [start + len(phrase)] * len(phrase)
        self._source_starts = [word.start() for word in RAW_WORD.finditer(self.source)]
        self._words = [word.span() for word in RAW_WORD.finditer(self.translation)]

    def _take(self, word: Span, target: Span) -> None:
        """Has a text of the translation replaced by a protected word."""
        self.replaced[word] = target
        self._taken[slice(*target)] = [target[1]] * (target[1] - target[0])

    def take_copies(self) -> None:
        """Takes the words that the translation has, first those with the same capitals and spaces."""
        texts = {span.word(self.source) for span in self.protected}
        copies = defaultdict[str, list[Span]](list)
        for match in [*regex.finditer(_ANY, self.translation, texts=texts)][::-1]:
            copies[match[0]].append(match.span())
        missing = defaultdict[str, list[Span]](list)  # by their letters and signs alone
        for start, stop, kind in self.protected:
            word = self.source[start:stop]
            if copies[word]:
                begin, end = copies[word].pop()
                longer = _LONGER.match(self.translation, end) if kind == "address" else None
                self._take((start, stop), (begin, longer.end() if longer else end))
            else:
                missing["".join(word.lower().split()).lstrip("-@#") or word].append((start, stop))
        if not missing:
            return
        visible = [i for i, character in enumerate(self.translation) if not character.isspace()]
        squeezed = "".join(self.translation[i].lower()[0] for i in visible)
        for match in regex.finditer(rf"[-@#]{{,2}}+({_ANY})", squeezed, texts=set(missing)):
            start, stop = visible[match.start()], visible[match.end() - 1] + 1
            around = self.translation[max(0, start - 1) : start] + self.translation[stop : stop + 1]
            if missing[match[1]] and not any(self._taken[start:stop]) and not any(map(str.isalnum, around)):
                self._take(missing[match[1]].pop(0), (start, stop))

    def take_others(self) -> None:
        """Takes other words of their kind for missing ones, and has surplus placeholders of printf removed."""
        source, translation = self.source, self.translation
        missing = defaultdict[str, list[Span]](list)
        for start, stop, kind in self.protected:
            if (start, stop) not in self.replaced and not self._take_translated(start, stop, kind):
                missing[kind].append((start, stop))
        has_printf = any(source.startswith("%", span.start) for span in self.protected)
        for start, stop, kind in PROTECTED.spans(translation) if missing or has_printf else ():
            if any(self._taken[start:stop]):
                continue
            if missing[kind]:
                self._take(missing[kind].pop(0), (start, stop))
            elif has_printf and SURPLUS.match(translation, start):
                word = translation[start:stop]
                if translation.count(word) > source.count(word):
                    start -= translation[:start].endswith(" ") and not translation[stop : stop + 1].isalnum()
                    stop += start == 0 and translation.startswith(" ", stop)
                    self._take((len(source) + start, len(source) + start), (start, stop))

    def _take_translated(self, start: int, stop: int, kind: str) -> bool:
        """Takes the translation of ordinary words: consecutive linked words, and not many more of them.

        What markup protects may have punctuation, such as `Figure 3.1`.
        """
        first, last = (bisect_right(self._source_starts, edge) - 1 for edge in (start, stop - 1))
        linked = sorted(target for target, origin in self.source_of.items() if first <= origin <= last)
        are_together = bool(linked) and linked[-1] - linked[0] + 1 == len(linked) <= last - first + 2
        words = self.source[start:stop]
        if not are_together or not (_ORDINARY.fullmatch(words) or (kind == "markup" and has_letters(words))):
            return False
        begin, end = self._words[linked[0]][0], self._words[linked[-1]][1]
        if words[-1] not in _END:
            end = begin + len(self.translation[begin:end].rstrip(_END))
        if is_free := not any(self._taken[begin:end]):
            self._take((start, stop), (begin, end))
        return is_free

    def insert_missing(self) -> None:
        """Inserts the words that replace nothing yet, at edges of words of the translation.

        A word that only signs or a unit separate from the word before it, such as `{b}` in `{a}/{b}`, is put
        behind that one with them.
        """
        source, translation = self.source, self.translation
        by_source = sorted((origin, target) for target, origin in self.source_of.items())
        is_by_word = self.spaces or self.source_of
        ends = [0, *(stop for _, stop in self._words)] if is_by_word else range(len(translation) + 1)
        before, end, kind_before = (0, 0), 0, ""  # of the word before: its place, its end in the source, its kind
        first = len(self.prefix) if translation.startswith(self.prefix) else 0
        for start, stop, kind in self.protected:
            between = source[end:start]
            has_unit = kind == kind_before == "placeholder" and re.fullmatch("[a-z]|min", between)
            if (start, stop) in self.replaced:
                begin, position = start, 0
            elif has_unit or (end and not any(map(str.isalnum, between))):
                begin, position = start, before[1]
                if between and not any(map(str.isspace, between)):
                    is_written = translation.startswith(between, position) and before[0] < before[1]
                    begin, position = (start, position + len(between)) if is_written else (end, position)
            else:
                begin, count = start, round(start / max(1, len(source) - (stop - start)) * (len(ends) - 1))
                if self.source_of:
                    linked = bisect_left(by_source, (bisect_right(self._source_starts, start) - 1, -1))
                    count = by_source[linked - 1][1] + 1 if linked else 0
                position = ends[min(count, len(ends) - 1)]
                if source[:start].rstrip()[-1:].isalnum():  # no punctuation stands before the word
                    position = len(translation[:position].rstrip(_END))
                around = self._taken[max(0, position - 1) : position + 1]
                position = around[0] if len(around) == 2 and around[0] == around[1] != 0 else position
            position = max(position, first)
            before, end = self.replaced.setdefault((begin, stop), (position, position)), stop
            kind_before = kind

    def nest_tags(self) -> None:
        """Has tags and blocks follow each other as in the source, unless all of them are nested as there."""
        words = sorted(word for word in self.replaced if _ORDERED.search(self.source, *word))
        in_order = sorted(words, key=lambda word: (self.replaced[word], word))
        tags = ["".join(self.source[slice(*word)] for word in each) for each in (words, in_order)]
        while (fewer := [_PAIR.sub("", each) for each in tags]) != tags:
            tags = fewer
        if tags[0] != tags[1]:
            self.replaced |= zip(words, [self.replaced[word] for word in in_order], strict=True)

    def repaired(self) -> tuple[str, dict[int, int]]:
        """Returns the translation with its copies of protected words, and the source words of its words."""
        source, translation = self.source, self.translation
        # The source word that each character comes from, or -1. Those of copies are larger than all others.
        linked, origins, copied = [-1] * len(translation), list[int](), len(source)
        for target, (start, stop) in enumerate(self._words):
            linked[start:stop] = [self.source_of.get(target, -1)] * (stop - start)
        text, end, kinds = "", 0, {span.stop: span.kind for span in self.protected}
        edits = sorted((target, word) for word, target in self.replaced.items())
        for ((start, stop), (begin, last)), (following, _) in pairwise([*edits, ((-1, -1), (0, 0))]):
            word, is_new = source[begin:last], start == stop
            text += translation[end:start]
            kind = "" if _ORDERED.search(word) else kinds.get(last, "")
            left, right = text[-6:][::-1], "" if following == (stop, stop) else translation[stop : stop + 6]
            in_source = source[max(0, begin - 6) : begin][::-1], source[last : last + 6]
            # The brackets of a link or a citation touch the text inside.
            has_left, has_right = word[:1] not in "]", word[-1:] not in "[|"
            before = " " * (has_left and self._is_apart(kind, left, in_source[0], _OPENING * is_new))
            behind = " " * (has_right and self._is_apart(kind, right, in_source[1], _CLOSING * is_new))
            text += before + word + behind
            word_origins = (copied + bisect_right(self._source_starts, i) - 1 for i in range(begin, last))
            origins += [*linked[end:start], *[-1] * len(before), *word_origins, *[-1] * len(behind)]
            end = max(end, stop)
        text, origins = text + translation[end:], origins + linked[end:]
        words = ((i, max(origins[slice(*word.span())])) for i, word in enumerate(RAW_WORD.finditer(text)))
        return text, {i: origin % copied for i, origin in words if origin >= 0 and self.source_of}

    def _is_apart(self, kind: str, rest: str, source_rest: str, touching: str) -> bool:
        """Returns whether a space must separate a protected word from what stands beside it in the translation.

        Args:
            rest, source_rest: the text on this side of the word in the translation and the source, away from the word.
            touching: marks that an inserted word may touch; empty for other words.
        """
        if not rest or rest[0].isspace():
            return False
        if kind == "placeholder" and rest[0].isalnum() and (unit := _UNIT.match(source_rest)):
            return not re.match(rf"(?i){unit[0]}(?![a-z])", rest)
        if rest[0] == source_rest[:1] or re.match("[a-zA-Z0-9]", source_rest):
            return False
        if touching and self.spaces:
            return rest[0] not in touching
        joined = _JOINED if kind in ("address", "citation") else r"[^\W_]"
        return bool(re.match(joined, rest)) and (self.spaces or rest[0].isascii())
