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
from html import unescape
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from nmt.documents.document import Document, Passage, has_letters

_MARK = re.compile(r"""<x(?P<leaf>\d+)(?:/>| translate="no">[^<]*</x\d+>)|<(?P<end>/?)g(?P<group>\d+)>""")

# Two empty leaves in a row share the spaces between them.
_EMPTY = re.compile(r"(?:(?<!\s)\s+)?<x(?P<leaf>\d+)/>\s*(?=(?:<x(?P<next>\d+)/>)?)")

LeafKind = Literal["mark", "break", "end", "open", "close"]
_DEPTH = 50  # groups that `paired` nests, so that recursion ends


@dataclass(frozen=True, eq=False)
class Leaf:
    """What stands in text and is not translated.

    Attributes:
        item: what the format writes.
        words: what stands for it in the sentence, as HTML.
        kind: an "end" separates the texts around it, such as a tab. So does a "break", such as the end of a line,
            unless a lower-case letter follows it. "open" and "close" are the ends of a group that is not found yet.
        key: leaves with the same key keep their order, such as both ends of a bookmark.
    """

    item: Any
    words: str = ""
    kind: LeafKind = "mark"
    key: object = None

    @property
    def separates_words(self) -> bool:
        return self.kind in ("break", "end")


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
    texts = (part if isinstance(part, str) else plain(getattr(part, "content", ())) for part in content)
    return "".join(texts)


def paired(content: Iterable[Inline]) -> list[Inline]:
    """Joins each opening leaf, the closing leaf with the same key, and the content between them into a group.

    Where two pairs overlap, one of them stays two leaves.
    """
    found: list[Inline] = []
    opened: list[tuple[object, int]] = []  # the key and the place of each opening leaf
    for part in content:
        found.append(part)
        if not isinstance(part, Leaf) or part.kind not in ("open", "close"):
            continue
        if part.kind == "open":
            opened += [(part.key, len(found) - 1)] if len(opened) < _DEPTH else []
        elif part.key in (keys := [key for key, _ in opened]):
            number = len(keys) - 1 - keys[::-1].index(part.key)
            start = opened[number][1]
            opening = found[start]
            assert isinstance(opening, Leaf)
            found[start:] = [Group(Ends(opening, part), found[start + 1 : -1])]
            del opened[number:]
    return found


def flattened(content: Iterable[Inline], keeps_empty: Callable[[Leaf], bool] = lambda _: True) -> Iterator[str | Leaf]:
    """Yields the texts and leaves of content whose groups are from `paired`.

    Args:
        keeps_empty: whether a group without content stays, by the leaf that begins it.
    """
    for part in content:
        if not isinstance(part, Group):
            yield part
        elif (inner := list(flattened(part.content, keeps_empty))) or keeps_empty(part.item.start):
            yield from [part.item.start, *inner, part.item.end]


class Content:
    """Inline content: what of it is translated, and what stays."""

    def __init__(self, content: Sequence[Inline]) -> None:
        self._parts: list[Inline | Fragment | _Nested] = []
        for part in _cut(content):
            before, core, after = _trimmed(part)
            self._parts += [*before, *_translated_part(core), *after]

    @property
    def passages(self) -> list[Passage]:
        return [passage for part in self._parts if isinstance(part, Fragment | _Nested) for passage in part.passages]

    def translated(self, translations: Iterator[str]) -> list[Inline]:
        """Returns the content with the next translations, one for each passage."""
        found: list[Inline] = []
        for part in self._parts:
            if isinstance(part, _Nested):
                found.append(Group(part.item, part.inner.translated(translations)))
            else:
                found += part.content(next(translations)) if isinstance(part, Fragment) else [part]
        return found


class _Nested(NamedTuple):
    """A group around all words of a text. It stays around them, and has passages of its own."""

    item: Any
    inner: Content

    @property
    def passages(self) -> list[Passage]:
        return self.inner.passages


def _cut(content: Sequence[Inline]) -> list[Sequence[Inline]]:
    """Returns the parts that end with leaves that separate texts."""
    cuts, following = [len(content)], ""
    for i, part in reversed(list(enumerate(content))):
        following = plain([part]).lstrip()[:1] or following
        if isinstance(part, Leaf) and (part.kind == "end" or (part.kind == "break" and not following.islower())):
            cuts.append(i + 1)
    return [content[start:stop] for start, stop in pairwise([0, *reversed(cuts)])]


def _trimmed(content: Sequence[Inline]) -> tuple[Sequence[Inline], Sequence[Inline], Sequence[Inline]]:
    """Returns the leaves and spaces before the words, what has words, and the leaves and spaces behind them."""
    places = [i for i, part in enumerate(content) if plain([part]).strip() or (isinstance(part, Leaf) and part.words)]
    start, stop = (places[0], places[-1] + 1) if places else (0, 0)
    return content[:start], content[start:stop], content[stop:]


def _translated_part(core: Sequence[Inline]) -> Sequence["Inline | Fragment | _Nested"]:
    if not has_letters(unescape(plain(core))):
        return core
    if len(core) == 1 and isinstance(core[0], Group):
        return [_Nested(core[0].item, Content(core[0].content))]
    return [Fragment(core)]


class Fragment:
    """Content that is one passage."""

    def __init__(self, content: Sequence[Inline]) -> None:
        self._numbered: list[Leaf | Group] = []
        marked = "".join(map(self._marked, content))
        self._spaces = dict(self._spaces_around(marked))
        self.passages = [Passage(re.sub(r"<x(\d+)/>", self._separated, marked), "html")]

    def _marked(self, part: Inline) -> str:
        if isinstance(part, str):
            return part
        number = len(self._numbered)
        self._numbered.append(part)
        if isinstance(part, Group):
            return f"<g{number}>{''.join(map(self._marked, part.content))}</g{number}>"
        if part.words:
            return f'<x{number} translate="no">{part.words}</x{number}>'
        return f"<x{number}/>"

    def _separated(self, match: re.Match[str]) -> str:
        leaf = self._numbered[int(match[1])]
        return match[0] + " " * (isinstance(leaf, Leaf) and leaf.separates_words)

    def content(self, translation: str) -> list[Inline]:
        """Returns the content with the translation of the passage."""
        translation = _EMPTY.sub(self._with_spaces, translation)
        waiting = defaultdict[object, list[Leaf]](list)
        for part in reversed(self._numbered):
            if isinstance(part, Leaf):
                waiting[part.key].append(part)
        opened: list[list[Inline]] = [[]]
        place = 0
        for match in _MARK.finditer(translation):
            opened[-1] += filter(None, [translation[place : match.start()]])
            place = match.end()
            part = self._numbered[int(match["leaf"] or match["group"])]
            if isinstance(part, Leaf):
                opened[-1].append(part if part.key is None else waiting[part.key].pop())
            elif match["end"]:
                inner = opened.pop()
                opened[-1].append(Group(part.item, inner))
            else:
                opened.append([])
        return [*opened[0], *filter(None, [translation[place:]])]

    def _spaces_around(self, marked: str) -> Iterator[tuple[str, tuple[str, str]]]:
        """Yields the number of each empty leaf and the spaces before and behind it.

        A translation may lose or change these spaces.
        """
        place = 0
        for match in re.finditer(r"<x(\d+)/>(?=(\s*))", marked):
            between, after, leaf = marked[place : match.start()], match[2], self._numbered[int(match[1])]
            before = between[len(between.rstrip()) :]
            if (before and after) or (isinstance(leaf, Leaf) and leaf.separates_words):
                yield match[1], (before, after)
            place = match.end()

    def _with_spaces(self, match: re.Match[str]) -> str:
        if match["leaf"] not in self._spaces:
            return match[0].rstrip() if match["next"] in self._spaces else match[0]
        before, after = self._spaces[match["leaf"]]
        return f"{before}<x{match['leaf']}/>{'' if match['next'] in self._spaces else after}"


class Place(NamedTuple):
    """A place in a document that has passages.

    Attributes:
        put: takes the translations of the passages, and writes them to this place.
    """

    passages: Sequence[Passage]
    put: Callable[[Iterator[str]], None]


def document_of(places: Sequence[Place], written: Callable[[], bytes], skipped: Mapping[str, int]) -> Document:
    """Returns the document with these places. `written` returns its file when all translations are in their places."""

    def write(translations: Sequence[str]) -> bytes:
        remaining = iter(translations)
        for place in places:
            place.put(remaining)
        return written()

    return Document([passage for place in places for passage in place.passages], write, skipped)
