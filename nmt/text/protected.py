"""Protected words: what of a text comes out of its translation as it went in.

Addresses, placeholders of programs, tags, references of HTML and emoji are protected, and what the patterns of a user
match. A search can require them, but it may lack pieces for their characters, or write letters directly behind them.
`with_protected` therefore puts them right in any translation, whatever engine made it.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from functools import cached_property
from typing import Any, Literal, NamedTuple

import regex

from nmt.errors import NmtError
from nmt.text.words import RAW_WORD

Span = tuple[int, int]

# Characters of addresses. Brackets belong to them in pairs, and punctuation only if more follows.
_ADDRESS = (
    r"""(?:[^\s<>"'()\[\]{}`|«»“”。，！？；：、（）「」『』《》—]|'(?=\w)|\([^\s<>"()]*+\)|\[[^\s<>"\[\]]*+\]"""
    r"|\{\{?[\w.]*+\}?\})"
)
_ADDRESS_END = r"(?<![.,;:!?*…。，！？；：、])"
_NAME = r"[A-Za-z_][\w.-]*+"
# What a text must have for a pattern to be tried: one of these, separated by spaces; and the pattern. Possessive and
# limited repetition keep the time linear.
_PATTERNS = (
    # Addresses: with a scheme, of mail, and bare ones with a path
    ("://", rf"(?<![A-Za-z0-9_+.-])(?i:[a-z][a-z0-9+.-]{{1,15}}+)://(?=\w){_ADDRESS}+{_ADDRESS_END}"),
    ("www. WWW. mailto:", rf"(?<![A-Za-z0-9_@.-])(?i:www\.|mailto:)(?=\w){_ADDRESS}+{_ADDRESS_END}"),
    (
        "@",
        r"(?<![A-Za-z0-9_.+%'-])[A-Za-z0-9_+%-](?:[A-Za-z0-9_.+%'-]*[A-Za-z0-9_+%-])?@(?:[A-Za-z0-9-]+\.)+[A-Za-z0-9-]+",
    ),
    (
        "/",
        rf"(?<![A-Za-z0-9_@./:-])(?:[A-Za-z0-9][A-Za-z0-9-]*+\.)+[a-z]{{2,}}+(?::\d+)?/(?!/){_ADDRESS}*{_ADDRESS_END}",
    ),
    # Placeholders of templates, which may have spaces inside, and of programs
    ("{{", r"\{\{\{?(?:(?!\}\}).){1,200}+\}\}\}?"),
    ("{", r"'\{[^{}'\n]*\}'|[$#%]?\{\s*+[^{}\s]*+\s*+\}|\{%.{0,200}?%\}|\{#.{0,200}?#\}"),
    ("{", r"\{\s*+[\w.]++\s*+,\s*+(?:number|date|time|spellout|ordinal|duration)\b[^{}]*+\}"),
    ("<% <?", r"<%.{0,200}?%>|<\?.{0,200}?\?>"),
    ("$", r"\$t\([^()\n]*+\)|(?<![\w$])\$[A-Za-z_]\w*+\$(?!\w)"),
    ("@", r"@(?:\.\w++)?:(?:\([\w.]++\)|[\w.]*\w)"),
    ("\\", r'(?<!\w)[A-Za-z]:\\[^\s<>"|?*]++|\\[nrt](?![a-z])'),
    ("__", r"(?<!\w)__\w+?__(?!\w)"),
    (
        "%",
        r"(?<![\w%])%[A-Za-z_]\w++%(?![\w%])|(?<![\w%])%L?\d{1,2}(?![\w%$]|\.\d)"
        # Not a percentage, such as `50 %ig`
        r"|(?<![\d%])%(?:\([^()%]{1,99}+\)|<\w++>|\d++\$)?[-+#0'_^]*+(?:\d++|\*)?(?:\.(?:\d++|\*))?"
        r"(?:hh?|ll?|[qLjzt])?[@a-zA-Z](?![^\W\d_]{2}|(?<=\d\s%[a-zA-Z])[^\W\d_])",
    ),
    (":", r"(?<![\w:)/]):[a-z_]\w++(?![\w:])|(?<![\w:]):[a-z0-9_+-]{2,40}+:(?!\w)"),
    # Tags and references
    ("<", rf"""</?(?:\d++|{_NAME})(?:\s+[^<>=]*=(?:"[^"]*"|'[^']*'|[^<>"'])*+)?\s*/?>"""),
    ("&", r"&(?:[A-Za-z]\w*+|\#\d++|\#x[\dA-Fa-f]++);"),
)
_EMOJI = (
    r"\p{RI}\p{RI}|[0-9#*]\uFE0F?\u20E3"
    r"|(?:\p{Emoji_Presentation}|\p{Extended_Pictographic}(?=[\uFE0F\u200D]|\p{EMod}))\uFE0F?\p{EMod}?"
    "[\U000e0020-\U000e007f]*"  # flags of regions
    r"(?:\u200D\p{Extended_Pictographic}\uFE0F?\p{EMod}?)*+"
)
# Text has an emoji only with one of these characters.
_SIGNS_OF_EMOJI = re.compile(r"[\u20E3\u203c-\u3299\uFE0F\U0001f000-\U0001ffff]")
_PATIENCE_SECONDS = 1.0  # for a pattern in one text


class Protected:
    """Finds what of a text stays as it is.

    Args:
        keep: more regular expressions, such as those of --keep.

    Raises:
        NmtError: a regular expression is not valid, or matches an empty text.
    """

    def __init__(self, keep: Iterable[str] = ()) -> None:
        self.keep = tuple(keep)
        for pattern in self.keep:
            try:
                matches_nothing = regex.fullmatch(pattern, "", timeout=_PATIENCE_SECONDS)
            except (regex.error, TimeoutError) as error:
                raise NmtError(f"--keep {pattern!r:.80} is not a regular expression ({error}); correct it") from error
            if matches_nothing:
                raise NmtError(f"--keep {pattern!r:.80} matches an empty text; write what must be there")
        self._own = [regex.compile(pattern) for pattern in self.keep]

    @cached_property
    def _default(self) -> list[tuple[list[str], regex.Pattern[str]]]:
        """The default patterns, each with its signs. Commands that translate nothing do not compile them."""
        return [(signs.split(), regex.compile(pattern, regex.DOTALL)) for signs, pattern in _PATTERNS]

    def spans(self, text: str, others: Iterable[Span] = ()) -> list[Span]:
        """Returns where protected words begin and end, in order. Those that overlap are one.

        Args:
            others: more of what stays.

        Raises:
            NmtError: a pattern of `keep` takes too long.
        """
        patterns = [pattern for signs, pattern in self._default if any(sign in text for sign in signs)]
        if not text.isascii() and _SIGNS_OF_EMOJI.search(text):
            patterns.append(regex.compile(_EMOJI))  # which the library keeps
        spans = [*others, *(match.span() for pattern in patterns for match in pattern.finditer(text))]
        for pattern in self._own:
            try:
                spans += [match.span() for match in pattern.finditer(text, timeout=_PATIENCE_SECONDS) if match[0]]
            except TimeoutError as error:
                raise NmtError(
                    f"--keep {pattern.pattern!r:.80} takes more than {_PATIENCE_SECONDS:g} second for a text of "
                    f"{len(text):,} characters; write it without nested repetitions"
                ) from error
        joined: list[Span] = []
        for start, stop in sorted(spans):
            if joined and start < joined[-1][1]:
                joined[-1] = joined[-1][0], max(stop, joined[-1][1])
            else:
                joined.append((start, stop))
        return joined


def javascript_patterns() -> list[dict[str, Any]]:
    """Returns the default patterns for JavaScript, which has no possessive repetition: pattern, flags, and signs."""
    patterns = []
    for signs, pattern in [*_PATTERNS, ("", _EMOJI)]:
        is_caseless = "(?i:" in pattern
        pattern = re.sub(r"(?<=[*+}])\+", "", pattern.replace("(?i:", "(?:")).replace(r"\#", "#")
        patterns.append({"pattern": pattern, "flags": "isu" if is_caseless else "su", "signs": signs.split()})
    return patterns


class _Copy(NamedTuple):
    """Where a translation has, or gets, a protected word: `translation[start:stop]` becomes `source[begin:end]`."""

    start: int
    stop: int
    begin: int
    end: int


def with_protected(
    source: str,
    words: Sequence[Span],
    translation: str,
    links: Mapping[int, int],
    *,
    spaces: bool,
    given: Iterable[str] = (),
) -> tuple[str, dict[int, int]]:
    """Returns the translation with every protected word of the source, and the links between words of both.

    A word that the translation has stays where it is, apart from other letters and digits, unless the source joins them
    too. A damaged copy of a word, or the translation of ordinary words, is replaced. A word that is missing is inserted
    behind the translation of the word before it, or at the same share of the length if there are no links.

    Args:
        words: where the protected words are in the source.
        links: the source word of target words, by their numbers; may be empty.
        spaces: whether spaces separate the words of the target language.
        given: phrases of the translation that nothing is put into.
    """
    # A phrase of the user is a copy of no word of the source.
    starts = [(translation.find(phrase), phrase) for phrase in given if phrase in translation]
    fixed = [_Copy(start, start + len(phrase), -1, -1) for start, phrase in starts if phrase]
    copies: list[_Copy] = []
    longest_first = sorted(words, key=lambda word: (word[0] - word[1], word))
    missing = []
    for word in longest_first:
        span = _exact(source, word, translation, copies)
        if span:
            copies.append(_Copy(*span, *word))
        else:
            missing.append(word)
    for word in sorted(missing):
        taken = copies + fixed
        span = _damaged(source[slice(*word)], translation, taken)
        span = span or _translated(source, word, translation, links, taken)
        copies.append(
            _Copy(*span, *word) if span else _inserted(source, word, translation, links, taken, spaces=spaces)
        )
    return _written(source, translation, sorted(copies), links, spaces=spaces)


def _is_free(start: int, stop: int, copies: Iterable[_Copy]) -> bool:
    return all(stop <= copy.start or copy.stop <= start for copy in copies)


def _exact(source: str, word: Span, translation: str, copies: Sequence[_Copy]) -> Span | None:
    """Returns where the translation has a word as it is written. Copies that are words of their own go first."""
    text = source[slice(*word)]
    starts = [match.start() for match in regex.finditer(regex.escape(text), translation)]
    spans = [(start, start + len(text)) for start in starts if _is_free(start, start + len(text), copies)]
    joined = _is_joined(source, word[0], -1), _is_joined(source, word[1], 1)

    def differences(span: Span) -> int:
        edges = _is_joined(translation, span[0], -1), _is_joined(translation, span[1], 1)
        return sum(edge != own for edge, own in zip(edges, joined, strict=True))

    span = min(spans, key=differences, default=None)
    if span and not joined[1] and (longer := _LONGER.match(translation, span[1])):
        span = span[0], longer.end()  # a copy of an address that goes on
    return span if span and _is_free(*span, copies) else None


# How a translation goes on behind a copy of an address that is too long
_LONGER = regex.compile(r"(?<=[\w/])[/=&#%@+~?][^\s,;!?)\]]*(?<![.:])")
# What lengthens an address if letters follow it.
_JOINING = "/-_=&#%@+~.:"


def _is_joined(text: str, edge: int, direction: Literal[-1, 1]) -> bool:
    """Returns whether what stands before (-1) or behind (1) the edge of a protected word seems to belong to it."""
    beside = text[max(0, edge - 2) : edge][::-1] if direction < 0 else text[edge : edge + 2]
    own = text[edge : edge + 1] if direction < 0 else text[edge - 1 : edge]
    if beside[:1].isalnum() or not beside[1:].isalnum():
        return beside[:1].isalnum()
    return beside[0] in _JOINING and (own.isalnum() or own in _JOINING)


_CHARACTER = regex.compile(r"\S")
# A part of a translation this similar to a protected word is a damaged copy of it; 1 means equal.
_SIMILAR = 0.7
# Damaged copies are looked for if the characters of word and translation have at most this product.
_MOST_COMPARED = 100_000


def _damaged(word: str, translation: str, copies: Sequence[_Copy]) -> Span | None:
    """Returns where the translation has a copy of a word with other letters, capitals or spaces."""
    wanted = "".join(word.lower().split())
    if len(wanted) < 2 or len(wanted) * len(translation) > _MOST_COMPARED:
        return None
    # A word without the signs of a placeholder is a word of the translation.
    signs = {sign for sign in wanted if not sign.isalnum() and sign not in ".-'’_"}
    tokens = [match.span() for match in RAW_WORD.finditer(translation)]
    matcher = SequenceMatcher(None, "", wanted, autojunk=False)
    best, most = None, _SIMILAR if signs else 0.999
    for first, (start, end) in enumerate(tokens):
        start += len(translation[start:end]) - len(translation[start:end].lstrip(_without("([{\"'«„“", wanted[0])))
        token = translation[start:end].lower()
        if not any(token[i : i + 3] in wanted for i in range(max(1, len(token) - 2))):
            continue
        for _, stop in tokens[first:]:
            written = translation[start:stop].rstrip(_without(".,;:!?…)]}\"'»”", wanted[-1]))
            squeezed = "".join(written.lower().split())
            if len(squeezed) > 2 * len(wanted) or not _is_free(start, start + len(written), copies):
                break
            if signs and not signs & set(squeezed):
                continue
            matcher.set_seq1(squeezed)
            if matcher.real_quick_ratio() > most and matcher.quick_ratio() > most and (ratio := matcher.ratio()) > most:
                best, most = (start, start + len(written)), ratio
    return best


def _without(signs: str, sign: str) -> str:
    return signs.replace(sign, "")


# Ordinary words, which stay because markup says so, and which a model translates.
_ORDINARY = regex.compile(r"[^\W\d_][\w'’ -]*")


def _translated(
    source: str, word: Span, translation: str, links: Mapping[int, int], copies: Sequence[_Copy]
) -> Span | None:
    """Returns where ordinary words are translated: at consecutive words that are linked to them, and not many more."""
    if not links or not _ORDINARY.fullmatch(source, *word):
        return None
    first, last = (len(RAW_WORD.findall(source[: edge + 1])) - 1 for edge in (word[0], word[1] - 1))
    linked = sorted(target for target, origin in links.items() if first <= origin <= last)
    spans = [match.span() for match in RAW_WORD.finditer(translation)]
    if not linked or linked[-1] - linked[0] + 1 != len(linked) or len(linked) > last - first + 2:
        return None
    start, stop = spans[linked[0]][0], spans[linked[-1]][1]
    stop = start + len(translation[start:stop].rstrip(".,;:!?"))
    return (start, stop) if _is_free(start, stop, copies) else None


def _inserted(
    source: str, word: Span, translation: str, links: Mapping[int, int], copies: Sequence[_Copy], *, spaces: bool
) -> _Copy:
    """Returns where a word is inserted: at the edge of a word of the translation.

    A word that only signs separate from another one, such as `{b}` in `{a}/{b}`, is inserted behind it with the signs.
    """
    for copy in copies:
        between = source[copy.end : word[0]]
        if 0 <= copy.begin < copy.end <= word[0] and not any(map(str.isalnum, between)):
            if between and not any(map(str.isspace, between)):
                is_written = translation.startswith(between, copy.stop) and copy.start < copy.stop
                position = copy.stop + len(between) * is_written
                return _Copy(position, position, word[0] if is_written else copy.end, word[1])
            return _Copy(copy.stop, copy.stop, *word)
    tokens = [match.span() for match in (RAW_WORD if spaces or links else _CHARACTER).finditer(translation)]
    is_last = not any(map(str.isalnum, source[word[1] :]))
    if links:
        own = len(RAW_WORD.findall(source[: word[0] + 1])) - 1
        before = {target: linked for target, linked in links.items() if linked < own}
        nearest = max(before.values(), default=None)
        last = max((target for target, linked in before.items() if linked == nearest), default=-1)
    else:
        share = word[0] / max(1, len(source) - (word[1] - word[0]))
        last = len(tokens) - 1 if is_last else round(share * len(tokens)) - 1
    position = tokens[min(last, len(tokens) - 1)][1] if last >= 0 and tokens else 0
    if source[: word[0]].rstrip()[-1:].isalnum():  # no punctuation stands before the word
        position = len(translation[:position].rstrip(".,;:!?…。，！？；："))
    if is_last and last >= len(tokens) - 1:  # it stands before the final punctuation
        position = len(translation.rstrip(" .!?:;…。！？"))
    inside = [copy for copy in copies if copy.start < position < copy.stop]
    position = inside[0].stop if inside else position
    return _Copy(position, position, *word)


def _written(
    source: str, translation: str, copies: Sequence[_Copy], links: Mapping[int, int], *, spaces: bool
) -> tuple[str, dict[int, int]]:
    """Returns the translation with its copies of protected words, and the links of its words."""
    text, end = "", 0
    origins: list[int] = []  # of each character of the text: its place in the translation, or -1 - that in the source
    for copy in copies:
        text += translation[end : copy.start]
        origins += range(end, copy.start)
        left, right = source[copy.begin - 1 : copy.begin], source[copy.end : copy.end + 1]
        if not left.isalnum() and left.strip() and text.endswith(f"{left} "):
            text = text[:-1]  # in the source, a bracket or the like touches the word
            origins.pop()
        elif _is_apart(text, len(text), -1, left, copy, spaces=spaces):
            text += " "
            origins.append(copy.start)
        text += source[copy.begin : copy.end]
        origins += range(-1 - copy.begin, -1 - copy.end, -1)
        touches = not right.isalnum() and right.strip() and translation.startswith(f" {right}", copy.stop)
        end = copy.stop + bool(touches)
        if _is_apart(text + translation[end:], len(text), 1, right, copy, spaces=spaces):
            text += " "
            origins.append(end)
    text += translation[end:]
    origins += range(end, len(translation))
    return text, _moved_links(source, translation, text, origins, links) if links else {}


def _is_apart(text: str, edge: int, direction: Literal[-1, 1], in_source: str, copy: _Copy, *, spaces: bool) -> bool:
    """Returns whether a space must separate a protected word from what stands beside it in the translation.

    Args:
        in_source: what stands beside it in the source.
    """
    beside = text[edge - 1 : edge] if direction < 0 else text[edge : edge + 1]
    if not beside or beside.isspace() or beside == in_source or in_source.isalnum():
        return False
    if copy.start == copy.stop and spaces:  # it was inserted
        return beside not in ("([{\"'«“„" if direction < 0 else ".,;:!?…)]}\"'»”")
    return _is_joined(text, edge, direction) and (spaces or beside.isascii())


def _moved_links(
    source: str, translation: str, text: str, origins: Sequence[int], links: Mapping[int, int]
) -> dict[int, int]:
    """Returns the links of the words of `text`, in which the copies are linked to the protected words."""
    starts, source_starts = ([match.start() for match in RAW_WORD.finditer(side)] for side in (translation, source))
    moved: dict[int, int] = {}
    for word, match in enumerate(RAW_WORD.finditer(text)):
        for origin in sorted(origins[slice(*match.span())], reverse=True):  # a copy in the word goes last, and counts
            if origin < 0:
                moved[word] = bisect_right(source_starts, -1 - origin) - 1
            elif (target := bisect_right(starts, origin) - 1) in links:
                moved[word] = links[target]
    return moved
