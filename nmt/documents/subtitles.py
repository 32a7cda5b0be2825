"""Subtitles, SRT and WebVTT: the text of cues. Times, numbers, settings and comments stay.

A sentence that goes on over several cues is translated as a whole, and its translation is divided over these cues.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape, unescape
from itertools import accumulate, pairwise
from typing import NamedTuple

from nmt.documents.content import Fragment, Inline, Leaf, LeafKind, flattened, paired
from nmt.documents.document import Document, ReadOptions, decoded, encoded, has_letters, lines_of
from nmt.errors import NmtError

# Where possible, a line of a cue has at most this many characters, and a cue two lines.
_WIDTH = 42
# The most cues that are translated together. Some files have no punctuation that ends sentences.
_MOST_CUES = 6
_TIMES = re.compile(r"\s*(?:\d+:)?\d+:\d\d[,.]\d+\s*-->\s*(?:\d+:)?\d+:\d\d[,.]\d+")
_TAG = re.compile(r"(<(/?)([a-zA-Z]\w*+)[^<>]*>|<[\d:.]+>|\{\\[^{}]*\})")
# What stays at the beginning of a line: a position, a speaker's name or dash.
_LEAD = re.compile(r"(?:\{\\[^{}]*\}|<v[\s.][^<>]*>|\s)*(?:[-–—]\s*)?")
_DASH = re.compile(r"[-–—]\s*$")
_SENTENCE_END = re.compile(r"""[.!?…。！？♪][\s"'»”’)\]]*$""")
# Where text is cut: before a space, unless a dash follows, and before any character of scripts without spaces.
_CUT = re.compile(" (?![-–—])|[\u0e00-\u0fff\u3040-\u9fff]")


class _Part(NamedTuple):
    """A cue, or what one of its speakers says.

    Attributes:
        lead: what stays before the text.
        is_alone: whether it is the whole cue.
    """

    cue: int
    lead: str
    lines: list[str]
    is_alone: bool

    @property
    def text(self) -> str:
        """The text on one line."""
        return " ".join(" ".join([self.lines[0][len(self.lead) :], *self.lines[1:]]).split())

    @property
    def visible(self) -> str:
        """The text without tags. A line break counts as the space that the passage has there."""
        return _TAG.sub(lambda tag: " " * ((tag[3] or "").lower() == "br"), self.text)


def read(data: bytes, options: ReadOptions) -> Document:
    """Returns the document in a file of SRT or WebVTT."""
    text = decoded(data, options)
    lines, starts = lines_of(text)
    cues = list(_cues([line for line, _ in lines]))
    # Where the text of each cue begins and ends in the file.
    spans = [(starts[first], starts[last] - len(lines[last - 1][1])) for first, last in cues]
    is_vtt = text.startswith("WEBVTT")
    if text.strip() and not is_vtt and not cues:
        raise NmtError(f"{options.name} has no times such as 00:00:01,000 --> 00:00:04,000; is it a file of subtitles?")
    parts = (_parts(number, [line for line, _ in lines[slice(*cue)]]) for number, cue in enumerate(cues))
    groups = [_Group(group, has_entities=is_vtt) for group in _groups(parts)]
    passages = [passage for group in groups if group.has_text for passage in group.fragment.passages]

    line_end = lines[0][1] or "\n"

    def write(translations: Sequence[str]) -> bytes:
        rest, written, place, here = iter(translations), list[str](), 0, -1
        for group in groups:
            of_parts = group.divided(next(rest)) if group.has_text else [part.text for part in group.parts]
            for part, found in zip(group.parts, of_parts, strict=True):
                start, stop = spans[part.cue]
                written.append(text[place:start] if part.cue != here else line_end)
                shown = _wrapped(found) if part.is_alone else [found]
                new = part.lines if found == part.text else [part.lead + shown[0], *shown[1:]]
                written.append(line_end.join(new))
                place, here = stop, part.cue
        return encoded("".join([*written, text[place:]]), data)

    return Document(passages, write)


def _cues(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yields the range of the lines of text of each cue."""
    times = [number for number, line in enumerate(lines) if _TIMES.match(line)]
    for number, following in pairwise([*times, len(lines) + 1]):
        last = number + 1
        while last < min(following, len(lines)) and lines[last].strip():
            last += 1
        if last == following and lines[last - 1].strip().isdecimal():  # the number of the next cue
            last -= 1
        yield number + 1, last


def _parts(number: int, lines: Sequence[str]) -> list[_Part]:
    """Returns what each speaker says in a cue. Without dashes, it is one part."""
    starts = [i for i, line in enumerate(lines) if i == 0 or _DASH.search(_lead(line))]
    return [
        _Part(number, _lead(lines[first]), list(lines[first:last]), len(starts) == 1)
        for first, last in pairwise([*starts, len(lines)])
    ]


def _lead(line: str) -> str:
    found = _LEAD.match(line)
    return found[0] if found else ""


def _groups(cues: Iterable[list[_Part]]) -> Iterator[list[_Part]]:
    """Yields the parts that are translated together, in order. Cues without letters stay as they are."""
    group: list[_Part] = []
    for parts in cues:
        if not has_letters("".join(part.visible for part in parts)):
            continue
        for part in parts:
            is_new = not part.is_alone or part.lead or len(group) == _MOST_CUES
            if group and (is_new or _SENTENCE_END.search(group[-1].visible)):
                yield group
                group = []
            group.append(part)
        if len(parts) > 1:
            yield group
            group = []
    if group:
        yield group


class _Group:
    """Parts whose text is translated together."""

    def __init__(self, parts: list[_Part], *, has_entities: bool) -> None:
        self.parts, self._has_entities = parts, has_entities
        self.has_text = any(has_letters(part.visible) for part in parts)

    @property
    def fragment(self) -> Fragment:
        """The text of all parts. It is made when it is needed, because it takes much memory."""
        content, place = list[Inline](), 0
        text = " ".join(part.text for part in self.parts)
        for tag in _TAG.finditer(text):
            name = tag[3]
            is_break = (name or "").lower() == "br"
            kind: LeafKind = "break" if is_break else "close" if tag[2] else "open" if name else "mark"
            content += [self._escaped(text[place : tag.start()]), Leaf(tag[0], kind=kind, key=name)]
            place = tag.end()
        return Fragment(paired([*content, self._escaped(text[place:])]))

    def _escaped(self, text: str) -> str:
        return text if self._has_entities else escape(text, quote=False)

    def divided(self, translation: str) -> list[str]:
        """Returns the translation of each part, in proportion to the lengths of the parts."""
        ends = list(accumulate(len(self._escaped(part.visible)) + 1 for part in self.parts))
        scale = len(_TAG.sub("", translation)) / max(1, ends[-1] - 1)
        cut = _balanced(_cut(translation, [(end - 1) * scale for end in ends[:-1]]))
        # The parts, which NUL separates, are read together: leaves with the same key keep their order over all of them.
        joined = "\0".join(part.replace("\0", "") for part in cut)
        written: Callable[[str], str] = str if self._has_entities else unescape
        content = flattened(self.fragment.translated(iter([joined])))
        text = "".join(written(inline) if isinstance(inline, str) else inline.item for inline in content)
        return [part.strip() for part in text.split("\0")]


def _wrapped(text: str) -> list[str]:
    """Returns a cue in one line or two."""
    length = len(_TAG.sub("", text))
    return [text] if length <= _WIDTH else list(filter(None, _cut(text, [length / 2])))


def _cut(text: str, goals: Sequence[float]) -> list[str]:
    """Returns a text in parts that end near the goals, which count characters without tags."""
    tags = [tag.span() for tag in _TAG.finditer(text)]
    inside = {place for start, stop in tags for place in range(start, stop)}
    visible = [place for place in range(len(text)) if place not in inside]
    spaces = [i for i, place in enumerate(visible) if i and _CUT.match(text, place)]
    parts, start = list[str](), 0
    for number, goal in enumerate(goals):
        left = len(goals) - number - 1  # keep a space for each part that follows
        possible = [i for i in spaces[: len(spaces) - left] if visible[i] > start]
        if possible:
            stop = visible[min(possible, key=lambda i: abs(i - goal))]
            parts.append(text[start:stop].strip())
            start = stop
        else:
            parts.append("")
    return [*parts, text[start:].strip()]


def _balanced(parts: Iterable[str]) -> Iterator[str]:
    """Yields parts of HTML in which the elements that are open at a cut end, and begin again in the next part."""
    opened: list[str] = []
    for part in parts:
        before = "".join(f"<g{number}>" for number in opened)
        for end, number in re.findall(r"<(/?)g(\d+)>", part):
            opened = opened[:-1] if end else [*opened, number]
        yield before + part + "".join(f"</g{number}>" for number in reversed(opened))
