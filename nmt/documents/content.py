"""Text with elements inside, as several formats have it: its passages, and the same elements with the translations.

In a passage, `<g1>…</g1>` stands for an element with text, and `<x2/>` for anything else. What stands before the first
and behind the last word is no part of the passage, so that it keeps its place. Texts are HTML: they write `&` and `<`
as references. Markdown uses the spelling of a reference, such as `&#042;`, to remember how the source writes a
character.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import unescape
from itertools import islice, pairwise
from typing import Any, Literal, NamedTuple

from nmt.documents.document import Document, Passage, has_letters
from nmt.memories.matching import Match
from nmt.text.markup_reading import parse
from nmt.text.words import is_blank

_MARK = re.compile(r"""<x(?P<leaf>\d+)(?:/>| translate="no">[^<]*</x\d+>)|<(?P<end>/?)g(?P<group>\d+)>""")

# Two empty leaves in a row share the spaces between them.
_EMPTY = re.compile(r"(?:(?<!\s)\s+)?<x(?P<leaf>\d+)/>\s*(?=(?:<x(?P<next>\d+)/>)?)")

LeafKind = Literal["mark", "space", "break", "end", "open", "close"]
_DEPTH = 50  # groups that `paired` nests, so that recursion ends


@dataclass(frozen=True, eq=False)
class Leaf:
    """What stands in text and is not translated.

    Attributes:
        item: what the format writes.
        words: what stands for it in the sentence, as HTML.
        kind: an "end" separates the texts around it, such as a tab. So does a "break", such as the end of a line,
            unless a lower-case letter follows it. A "space" separates words. "open" and "close" are the ends of a group
            that is not found yet.
        key: leaves with the same key keep their order, such as both ends of a bookmark.
    """

    item: Any
    words: str = ""
    kind: LeafKind = "mark"
    key: object = None

    @property
    def separates(self) -> bool:
        """Whether it stands between words."""
        return self.kind in ("space", "break", "end")


@dataclass(frozen=True, eq=False)
class Group:
    """An element with text. It is repeated if its words are apart in a translation.

    Attributes:
        item: what the format writes, or the `Ends`.
    """

    item: Any
    content: Sequence["Inline"]


class Ends(NamedTuple):
    """The leaves at both ends of a group."""

    start: Leaf
    end: Leaf


Inline = str | Leaf | Group


def plain(content: Iterable[Inline]) -> str:
    """Returns the text that is translated."""
    return "".join(inline if isinstance(inline, str) else plain(getattr(inline, "content", ())) for inline in content)


def _has_words(inline: Inline) -> bool:
    return bool(getattr(inline, "words", "")) or not is_blank(unescape(plain([inline])))


@cache
def is_untranslated(tag: str) -> bool:
    """Returns whether an element of HTML with this start tag stays as it is."""
    return tag[1:2].isalpha() and all(isinstance(part, str) for part in parse(f"{tag}x", "html"))


def paired(content: Iterable[Inline]) -> list[Inline]:
    """Joins each opening leaf, the closing leaf with the same key, and the content between them into a group.

    Where two pairs overlap, one of them stays two leaves.
    """
    nested: list[Inline] = []
    opened: list[tuple[Leaf, int]] = []  # each opening leaf and its index
    for inline in content:
        nested.append(inline)
        if not isinstance(inline, Leaf):
            continue
        if inline.kind == "open" and len(opened) < _DEPTH:
            opened.append((inline, len(nested) - 1))
        elif inline.kind == "close":
            depth = max((depth for depth, (leaf, _) in enumerate(opened) if leaf.key == inline.key), default=None)
            if depth is not None:
                opening, start = opened[depth]
                nested[start:] = [Group(Ends(opening, inline), nested[start + 1 : -1])]
                del opened[depth:]
    return nested


def flattened(content: Iterable[Inline], keeps_empty: Callable[[Leaf], bool] = lambda _: True) -> Iterator[str | Leaf]:
    """Yields the texts and leaves of content whose groups are from `paired`.

    Args:
        keeps_empty: whether a group without content stays, by the leaf that begins it.
    """
    for inline in content:
        if not isinstance(inline, Group):
            yield inline
        elif (inner := list(flattened(inline.content, keeps_empty))) or keeps_empty(inline.item.start):
            yield from [inline.item.start, *inner, inline.item.end]


class Content:
    """Inline content: what of it is translated, and what stays.

    Args:
        item: the item of the group around the content, which stays around it.
    """

    def __init__(self, content: Sequence[Inline], item: Any = None) -> None:
        self._item = item
        self._parts: list[Inline | Fragment | Content] = []
        cuts, following = [len(content)], ""  # behind the leaves that separate texts
        for i, inline in reversed(list(enumerate(content))):
            following = plain([inline]).lstrip()[:1] or following
            kind = inline.kind if isinstance(inline, Leaf) else "mark"
            if kind == "end" or (kind == "break" and not following.islower()):
                cuts.append(i + 1)
        for text in (content[start:stop] for start, stop in pairwise([0, *reversed(cuts)])):
            words = [i for i, inline in enumerate(text) if _has_words(inline)]
            start, stop = (words[0], words[-1] + 1) if words else (0, 0)
            core: Sequence[Inline | Fragment | Content] = text[start:stop]
            if has_letters(unescape(plain(text[start:stop]))):
                group = text[start] if stop == start + 1 else None
                core = [Content(group.content, group.item) if isinstance(group, Group) else Fragment(text[start:stop])]
            self._parts += [*text[:start], *core, *text[stop:]]

    @property
    def passages(self) -> list[Passage]:
        return [passage for part in self._parts if isinstance(part, Fragment | Content) for passage in part.passages]

    def translated(self, translations: Iterator[str]) -> list[Inline]:
        """Returns the content with the next translations, one for each passage."""
        content: list[Inline] = []
        for part in self._parts:
            content += part.translated(translations) if isinstance(part, Fragment | Content) else [part]
        return content if self._item is None else [Group(self._item, content)]


class Fragment:
    """Content that is one passage."""

    def __init__(self, content: Sequence[Inline]) -> None:
        self._numbered: list[Leaf | Group] = []
        # The spaces before and behind an empty leaf, by its number. A translation may lose or change them.
        self._spaces: dict[str, tuple[str, str]] = {}
        marked = "".join(map(self._marked, content))
        self.passages = [Passage(re.sub(r"(?:(?<!\s)(\s+))?<x(\d+)/>(?=(\s*))", self._spaced, marked), "html")]

    def _marked(self, inline: Inline) -> str:
        if isinstance(inline, str):
            return inline
        number = len(self._numbered)
        self._numbered.append(inline)
        if isinstance(inline, Group):
            return f"<g{number}>{''.join(map(self._marked, inline.content))}</g{number}>"
        return f'<x{number} translate="no">{inline.words}</x{number}>' if inline.words else f"<x{number}/>"

    def _spaced(self, empty: re.Match[str]) -> str:
        """Returns an empty leaf with a space if it separates words. Notes the spaces around it."""
        before, number, after = empty.groups("")
        inline = self._numbered[int(number)]
        separates = isinstance(inline, Leaf) and inline.separates
        if (before and after) or separates:
            self._spaces[number] = before, after
        return empty[0] + " " * separates

    def translated(self, translations: Iterator[str]) -> list[Inline]:
        """Returns the content with the next translation."""
        translation = _EMPTY.sub(self._with_spaces, next(translations))
        waiting = defaultdict[object, list[Leaf]](list)
        for inline in reversed(self._numbered):
            if isinstance(inline, Leaf):
                waiting[inline.key].append(inline)
        opened: list[list[Inline]] = [[]]
        start = 0
        for mark in _MARK.finditer(translation):
            opened[-1] += filter(None, [translation[start : mark.start()]])
            start = mark.end()
            inline = self._numbered[int(mark["leaf"] or mark["group"])]
            if isinstance(inline, Leaf):
                opened[-1].append(inline if inline.key is None else waiting[inline.key].pop())
            elif mark["end"]:
                inner = opened.pop()
                opened[-1].append(Group(inline.item, inner))
            else:
                opened.append([])
        return [*opened[0], *filter(None, [translation[start:]])]

    def _with_spaces(self, empty: re.Match[str]) -> str:
        if empty["leaf"] not in self._spaces:
            return empty[0].rstrip() if empty["next"] in self._spaces else empty[0]
        before, after = self._spaces[empty["leaf"]]
        return f"{before}<x{empty['leaf']}/>{'' if empty['next'] in self._spaces else after}"


class Slot(NamedTuple):
    """A place in a document that has passages.

    Attributes:
        put: takes the translations of the passages, and writes them to this place.
        offer: takes the matches of memories for the only passage.
    """

    passages: Sequence[Passage]
    put: Callable[[Iterator[str]], None]
    offer: Callable[[Sequence[Match]], None] | None = None


def document_of(slots: Sequence[Slot], written: Callable[[], bytes], skipped: Mapping[str, int]) -> Document:
    """Returns the document with these slots. `written` returns its file when all translations are in their slots."""

    def write(translations: Sequence[str]) -> bytes:
        remaining = iter(translations)
        for slot in slots:
            slot.put(remaining)
        return written()

    def offer(matches: Sequence[Sequence[Match]]) -> None:
        remaining = iter(matches)
        for slot in slots:
            of_slot = list(islice(remaining, len(slot.passages)))
            if slot.offer and len(of_slot) == 1:
                slot.offer(of_slot[0])

    has_place = any(slot.offer for slot in slots)
    passages = [passage for slot in slots for passage in slot.passages]
    return Document(passages, write, skipped, offer if has_place else None)
