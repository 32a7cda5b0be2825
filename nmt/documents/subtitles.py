"""Subtitles, SRT and WebVTT: the text of cues. Times, numbers, settings and comments stay.

A sentence that goes on over several cues is translated as a whole, and its translation is divided over these cues.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
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


class _Utterance(NamedTuple):
    """The text of a cue, or what one of its speakers says.

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
    file = decoded(data, options)
    lines, starts = lines_of(file)
    cues = list(_cues([line for line, _ in lines]))
    # Where the text of each cue begins and ends in the file.
    spans = [(starts[first], starts[last] - len(lines[last - 1][1])) for first, last in cues]
    is_vtt = file.startswith("WEBVTT")
    if file.strip() and not is_vtt and not cues:
        raise NmtError(f"{options.name} has no times such as 00:00:01,000 --> 00:00:04,000; is it a file of subtitles?")
    texts = ([line for line, _ in lines[slice(*cue)]] for cue in cues)
    groups = [_CueGroup(group, has_entities=is_vtt) for group in _groups(texts)]
    passages = [passage for group in groups if group.has_text for passage in group.fragment.passages]
    line_end = lines[0][1] or "\n"

    def write(translations: Sequence[str]) -> bytes:
        rest, written, end, last_cue = iter(translations), list[str](), 0, -1
        for group in groups:
            for utterance, text in zip(group.utterances, group.translated(rest), strict=True):
                start, stop = spans[utterance.cue]
                written.append(file[end:start] if utterance.cue != last_cue else line_end)
                if text == utterance.text:
                    written.append(line_end.join(utterance.lines))
                else:
                    length = len(_TAG.sub("", text))
                    is_wrapped = utterance.is_alone and length > _WIDTH
                    first, *others = filter(None, _cut(text, [length / 2])) if is_wrapped else [text]
                    written.append(line_end.join([utterance.lead + first, *others]))
                end, last_cue = stop, utterance.cue
        return encoded("".join([*written, file[end:]]), data)

    return Document(passages, write)


def _cues(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yields the range of the lines of text of each cue."""
    times = [i for i, line in enumerate(lines) if _TIMES.match(line)]
    for time, following in pairwise([*times, len(lines) + 1]):
        last = time + 1
        while last < min(following, len(lines)) and lines[last].strip():
            last += 1
        if last == following and lines[last - 1].strip().isdecimal():  # the number of the next cue
            last -= 1
        yield time + 1, last


def _lead(line: str) -> str:
    lead = _LEAD.match(line)
    return lead[0] if lead else ""


def _groups(cues: Iterable[list[str]]) -> list[list[_Utterance]]:
    """Returns the utterances that are translated together, in order. Cues without letters stay as they are.

    A dash begins what another speaker says. A cue without dashes is a single utterance.
    """
    groups: list[list[_Utterance]] = []
    for cue, lines in enumerate(cues):
        starts = [i for i, line in enumerate(lines) if i == 0 or _DASH.search(_lead(line))]
        utterances = [
            _Utterance(cue, _lead(lines[first]), lines[first:last], len(starts) == 1)
            for first, last in pairwise([*starts, len(lines)])
        ]
        if not has_letters("".join(utterance.visible for utterance in utterances)):
            continue
        for utterance in utterances:
            group = groups[-1] if groups else []
            has_room = 0 < len(group) < _MOST_CUES and group[-1].is_alone
            goes_on = has_room and utterance.is_alone and not utterance.lead
            if goes_on and not _SENTENCE_END.search(group[-1].visible):
                group.append(utterance)
            else:
                groups.append([utterance])
    return groups


class _CueGroup:
    def __init__(self, utterances: list[_Utterance], *, has_entities: bool) -> None:
        self.utterances = utterances
        self._escaped: Callable[[str], str] = str if has_entities else partial(escape, quote=False)
        self._unescaped: Callable[[str], str] = str if has_entities else unescape
        self.has_text = any(has_letters(utterance.visible) for utterance in utterances)

    @property
    def fragment(self) -> Fragment:
        """The text of all utterances. It is made when it is needed, because it takes much memory."""
        content, start = list[Inline](), 0
        text = " ".join(utterance.text for utterance in self.utterances)
        for tag in _TAG.finditer(text):
            name = tag[3]
            is_break = (name or "").lower() == "br"
            kind: LeafKind = "break" if is_break else "close" if tag[2] else "open" if name else "mark"
            content += [self._escaped(text[start : tag.start()]), Leaf(tag[0], kind=kind, key=name)]
            start = tag.end()
        return Fragment(paired([*content, self._escaped(text[start:])]))

    def translated(self, translations: Iterator[str]) -> list[str]:
        """Returns the next translation, divided in proportion to the lengths of the utterances."""
        if not self.has_text:
            return [utterance.text for utterance in self.utterances]
        translation = next(translations)
        ends = list(accumulate(len(self._escaped(utterance.visible)) + 1 for utterance in self.utterances))
        scale = len(_TAG.sub("", translation)) / max(1, ends[-1] - 1)
        texts = _balanced(_cut(translation, [(end - 1) * scale for end in ends[:-1]]))
        # The texts, which NUL separates, are read together: leaves with the same key keep their order over all of them.
        joined = "\0".join(text.replace("\0", "") for text in texts)
        content = flattened(self.fragment.translated(iter([joined])))
        divided = "".join(self._unescaped(inline) if isinstance(inline, str) else inline.item for inline in content)
        return [text.strip() for text in divided.split("\0")]


def _cut(text: str, goals: Sequence[float]) -> list[str]:
    """Returns a text cut near the goals, which count characters without tags."""
    tags = [tag.span() for tag in _TAG.finditer(text)]
    inside = {i for start, stop in tags for i in range(start, stop)}
    visible = [i for i in range(len(text)) if i not in inside]
    spaces = [column for column, i in enumerate(visible) if column and _CUT.match(text, i)]
    texts, start = list[str](), 0
    for left, goal in enumerate(goals, start=1 - len(goals)):
        # Keep a space for each text that follows.
        possible = [column for column in spaces[: len(spaces) + left] if visible[column] > start]
        stop = visible[min(possible, key=lambda column: abs(column - goal))] if possible else start
        texts.append(text[start:stop].strip())
        start = stop
    return [*texts, text[start:].strip()]


def _balanced(texts: Iterable[str]) -> Iterator[str]:
    """Yields texts in HTML in which the elements that are open at a cut end, and begin again in the next text."""
    opened: list[str] = []
    for text in texts:
        before = "".join(f"<g{group}>" for group in opened)
        for end, group in re.findall(r"<(/?)g(\d+)>", text):
            opened = opened[:-1] if end else [*opened, group]
        yield before + text + "".join(f"</g{group}>" for group in reversed(opened))
