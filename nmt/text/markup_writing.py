"""Puts markup into translations: each target word gets the elements around the source word that it is aligned with.

The rule is that of Bergamot. An element whose words are apart in the translation is closed and opened again. If it were
extended over the words between, one wrong link could mark a whole sentence. In a pair of words, punctuation at the
edges corresponds to punctuation. Text without a counterpart gets the elements around both of its neighbours. Markup
without words keeps its place relative to a neighbour. Placeholders and elements that are not translated stay in the
text; if the translation lacks one, it is inserted.

Text in tokens is plain text. How a format writes it is the concern of that format alone.
"""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, chain, groupby, pairwise, zip_longest
from typing import Any, Literal, NamedTuple

import regex as re

from nmt.text.protected import Protected, ProtectedSpan
from nmt.text.words import RAW_WORD, AlignedWords, is_blank

_WORD = re.compile(r"(\W*+)((?:.*\w)?)(\W*)", re.DOTALL)  # with the punctuation around it
_PART = re.compile(r"\d+|[^\W\d]+|\W+")
_IN_WORD = re.compile(r"(?<=\w)(?=\w)")
_LINE, _LINE_END = re.compile("[^\n]+"), re.compile("\n")
_SPACE, _CHARACTER = re.compile(r"\s+", re.ASCII), re.compile(r"\s+|\S", re.ASCII)
_SPACES = re.compile(r"(?<=\s)(?=\s+\S)")
_WORD_END = re.compile(r"(?<=\S)(?!\S)")
_Span = tuple[int, int]

# "hidden" markup separates no words, such as a comment; a "mark" may. A "space" separates words. An "end" separates
# texts, such as a tab, and so does a "break", such as the end of a line, unless a lower-case letter follows it. "open"
# and "close" are the ends of an element whose other end is not known yet. A "word" is a protected one in text.
Role = Literal["mark", "hidden", "space", "break", "end", "open", "close", "word"]


class Token(NamedTuple):
    """A part of marked-up text. `a <b>dog</b><br>` is text, start, text, end and leaf.

    Attributes:
        kind: start and end are those of an element. A leaf has no content that is translated.
        text: of text, what a reader sees; of a leaf, what stands for it in a sentence.
        item: what the format writes. For text, how it writes each character, or None for those written as usual; None
            if that holds for all.
        name: of an element.
        kept_by: whether attributes around it say that it stays, by their names.
        role: what a leaf does to the text around it.
        key: leaves with the same key keep their order, such as both ends of a bookmark. An "open" and a "close" with
            the same key are the ends of one element.
        around: the spaces before and behind a leaf in the source, as texts, if its translation must have the same ones.
    """

    kind: Literal["start", "end", "text", "leaf"]
    text: str = ""
    item: Any = None
    name: str = ""
    kept_by: Mapping[str, bool] = {}
    role: Role = "mark"
    key: object = None
    around: tuple[Any, Any] | None = None

    @property
    def is_kept(self) -> bool:
        """Whether it is in an element that is not translated."""
        return any(self.kept_by.values())

    @property
    def raw(self) -> str:
        """How the source writes it, in a format that is text."""
        if self.kind == "text" and self.item:
            both = zip(self.item, self.text, strict=True)
            return "".join(character if spelling is None else spelling for spelling, character in both)
        return self.text if self.kind == "text" else self.item or ""

    def part(self, start: int, stop: int | None = None) -> "Token":
        """Returns a part of a text."""
        return self._replace(text=self.text[start:stop], item=self.item and self.item[start:stop])

    def stripped(self, spaces: str | None = None, *, left: bool = True, right: bool = True) -> "Token":
        """Returns a text without the given characters at its ends, by default all that are spaces."""
        start = len(self.text) - len(self.text.lstrip(spaces)) if left else 0
        return self.part(start, max(start, len(self.text.rstrip(spaces)) if right else len(self.text)))


GAP = Token("text", " ", [""])  # a space that the source lacks


def merged(tokens: Iterable[Token]) -> Iterator[Token]:
    """Yields tokens in which adjacent texts are one. Empty texts are left out."""
    for is_text, group in groupby(tokens, lambda token: token.kind == "text"):
        if not is_text:
            yield from group
        elif texts := [token for token in group if token.text]:
            is_spelt = any(token.item for token in texts)
            items = [each for token in texts for each in token.item or [None] * len(token.text)] if is_spelt else None
            yield Token("text", "".join(token.text for token in texts), items)


class MarkedText:
    """Text that is translated as a whole, as nested tokens.

    Attributes:
        source: what is translated: one line, or several if the text has br elements.
        protected: what of `source` stays as it is.
    """

    __slots__ = ("_edges", "_starts", "protected", "source", "tokens")

    def __init__(self, tokens: Sequence[Token], protected: Protected) -> None:
        self.tokens = tokens
        source, kept = "", list[_Span]()
        # Where each token begins in the source. Spaces that are left out there count: a token begins before them.
        self._starts: list[int] = []
        self._edges: list[int] = []  # where elements begin or end in the source
        for token in tokens:
            is_text = token.kind == "text"
            words = _SPACE.sub(" ", token.text) if is_text else " ".join(RAW_WORD.findall(token.text)) or token.text
            is_kept = not is_text and bool(words.strip())
            if words[:1] == "\n":
                source = source.rstrip(" ")
            shown = words if is_kept else words.lstrip(" " if source else None) if source[-1:] in " \n" else words
            self._starts.append(len(source) - len(words) + len(shown))
            self._edges += [] if is_text or words else [len(source)]
            kept += [(len(source), len(source) + len(shown))] if is_kept else []
            source += shown
        self.source = source = source[: max(len(source.rstrip()), kept[-1][1] if kept else 0)]
        for token, start, end in zip(tokens, self._starts, [*self._starts[1:], len(source)], strict=True):
            edges = (source[i - 1 : i + 1] for i in (start, end) if i)
            # A word that touches other text may only be found by itself.
            if token.kind == "text" and any(len(edge) == 2 and not _SPACE.search(edge) for edge in edges):
                kept += [(start + a, start + b) for a, b, _ in protected.spans(_SPACE.sub(" ", token.text))]
        self.protected: list[ProtectedSpan] = []
        for start, stop in (line.span() for line in _LINE.finditer(self.source)):
            others = [(a - start, b - start) for a, b in kept if start <= a and b <= stop]
            for span in protected.spans(self.source[start:stop], others):
                self.protected.append(ProtectedSpan(start + span.start, start + span.stop, span.kind))

    @property
    def has_words(self) -> bool:
        """Whether some of it does not stay as it is."""
        edges = [0, *(edge for span in self.protected for edge in span[:2]), len(self.source)]
        return not all(is_blank(self.source[start:stop]) for start, stop in zip(edges[::2], edges[1::2], strict=True))

    def has_elements(self, start: int, stop: int) -> bool:
        """Returns whether elements begin or end in a part of the source that has no spaces at its ends."""
        return bisect_right(self._edges, start) < bisect_left(self._edges, stop)

    def restored(
        self, translation: str, alignment: Sequence[AlignedWords], optional: Container[str] = ()
    ) -> Sequence[Token]:
        """Returns the tokens of the translation, given the alignment between the words of `source` and of it.

        Args:
            optional: protected words that are not inserted if the translation lacks them.
        """
        if translation == self.source:
            return self.tokens
        if all(token.kind == "text" and not token.item for token in self.tokens) and not self.protected:
            left, right = _spaces_around("".join(token.text for token in self.tokens))
            return [Token("text", left + translation.strip() + right)]
        return list(merged(_Projection(self, translation, alignment).written(optional)))

    def with_words(self) -> Iterator[Token]:
        """Yields the tokens, with a leaf for each protected word that is in one text."""
        begins = [span.start for span in self.protected]
        for token, start, end in zip(self.tokens, self._starts, [*self._starts[1:], len(self.source)], strict=True):
            spans = self.protected[bisect_left(begins, start) : bisect_left(begins, end)]
            ends = [0, *(character.end() for character in _CHARACTER.finditer(token.text))] if spans else []
            position = 0
            for span in spans if token.kind == "text" else ():
                if span.stop - start < len(ends):
                    begin, stop = ends[span.start - start], ends[span.stop - start]
                    yield token.part(position, begin)
                    yield Token("leaf", self.source[span.start : span.stop], token.part(begin, stop), role="word")
                    position = stop
            yield token.part(position) if position else token


def _spaces_around(text: str) -> tuple[str, str]:
    return text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]


@dataclass(slots=True)
class _MarkupNode:
    """An element or leaf around the characters from `begin` to `end`. Its descendants follow it, before node `last`."""

    path: tuple[int, ...]  # the nodes around it, from the outermost, and itself
    begin: int
    opening: Token
    is_leaf: bool
    closing: Token | None = None
    end: int = 0
    last: int = 0


class _Projection:
    """A translation with the spaces around it, and for each of its characters the source character and the node."""

    def __init__(self, marked: MarkedText, translation: str, alignment: Sequence[AlignedWords]) -> None:
        self.source = ""
        self.nodes: list[_MarkupNode] = []  # of the source, each before its descendants; node 0 is around all others
        self.source_nodes: list[int] = []  # the innermost node around each character of the source
        self.spellings: list[str | None] = []  # how the source writes each of its characters
        unclosed: list[int] = []
        for token in [Token("start"), *marked.with_words(), Token("end")]:
            if token.kind in ("start", "leaf"):
                unclosed.append(len(self.nodes))
                self.nodes.append(_MarkupNode(tuple(unclosed), len(self.spellings), token, token.kind == "leaf"))
            is_spelt = token.kind == "text" and token.item
            self.spellings += token.item if is_spelt else [None] * len(token.text)
            self.source_nodes += unclosed[-1:] * len(token.text)
            self.source += token.text
            if token.kind in ("end", "leaf"):
                node = self.nodes[unclosed.pop()]
                node.end, node.last = len(self.spellings), len(self.nodes)
                if token.kind == "end":
                    node.closing, node.is_leaf = token, self.nodes[-1] is node and node.begin == node.end
        self.is_spelt = any(spelling is not None for spelling in self.spellings)
        left, right = map(len, _spaces_around(self.source))
        self.edges = sorted({edge for node in self.nodes for edge in (node.begin, node.end)})
        links = {target: source for source, target in sorted(alignment, reverse=True)}
        source_words = [match.span() for match in RAW_WORD.finditer(self.source, left, len(self.source) - right)]
        inner_target = self._with_spaces(translation.strip(), links, source_words)
        self.target = self.source[:left] + inner_target + self.source[len(self.source) - right :]
        target_words = [match.span() for match in RAW_WORD.finditer(self.target, left, len(self.target) - right)]
        self.words = [source_words, target_words]
        # The source character of each character of the translation; None if it has none.
        self.origins: list[int | None] = [*range(left), *[None] * len(inner_target)]
        self.origins += range(len(self.source) - right, len(self.source))
        inner = [(leaf, node) for leaf, node in enumerate(self.nodes) if left <= node.begin < len(self.source) - right]
        ends = [leaf for leaf, node in inner if node.is_leaf and self._words(node) == "\n"]
        lines = _LINE_END.finditer(self.target, left, len(self.target) - right)
        leaves = self._leaves_in_target(links) | dict(zip(ends, (line.start() for line in lines), strict=False))
        self._map_words(links, leaves)
        self.target_nodes = self._nodes_of_target(leaves, left, right)

    def _edges_between(self, start: int, stop: int) -> list[int]:
        """Returns where elements begin or end between two characters of the source, not directly at them."""
        return self.edges[bisect_right(self.edges, start) : bisect_left(self.edges, stop)]

    def _with_spaces(self, translation: str, links: Mapping[int, int], source_words: Sequence[_Span]) -> str:
        """Returns the translation with a space for each space that tags separate in the source."""
        words, gaps = RAW_WORD.findall(translation), RAW_WORD.split(translation)
        for i in range(1, len(words)):
            source_word = links.get(i, -1)
            if gaps[i] == " " and source_word > 0 and links.get(i - 1) == source_word - 1:
                start, stop = source_words[source_word - 1][1], source_words[source_word][0]
                gaps[i] += " " * len(self._edges_between(start, stop))
        return "".join(chain.from_iterable(zip_longest(gaps, words, fillvalue="")))

    def _words(self, node: _MarkupNode) -> str:
        return self.source[node.begin : node.end]

    def _word(self, side: int, position: int) -> int:
        """Returns the number of the word around a character of the source, 0, or of the translation, 1."""
        return bisect_right(self.words[side], position, key=lambda word: word[0]) - 1

    def _leaves_in_target(self, links: Mapping[int, int]) -> dict[int, int]:
        """Returns where the translation has the text of a leaf, by the leaf. Occurrences in aligned words go first."""
        ranked = []
        for leaf, node in enumerate(self.nodes):
            phrase = self._words(node) if node.is_leaf else ""
            word = self._word(0, node.begin)
            for match in re.finditer(f"(?={re.escape(phrase)})", self.target) if phrase.strip() else ():
                span = match.start(), match.start() + len(phrase)
                target_word = self._word(1, span[0])
                shift = span[0] - self.words[1][target_word][0] - node.begin + self.words[0][word][0]
                is_linked = links.get(target_word) == word
                is_moved = not is_linked or shift != 0
                in_word = is_moved and any(_IN_WORD.match(self.target, edge) for edge in span)
                ranked.append((not is_linked, in_word, abs(shift), leaf, *span))
        leaves: dict[int, int] = {}
        taken = set[int]()
        for *_, leaf, start, stop in sorted(ranked):
            if leaf not in leaves and taken.isdisjoint(range(start, stop)):
                leaves[leaf] = start
                taken.update(range(start, stop))
        return leaves

    def _map_words(self, links: Mapping[int, int], leaves: Mapping[int, int]) -> None:
        """Maps the characters of linked words, the last full stop, leaves, and spaces."""
        spans = [((self.nodes[leaf].begin, self.nodes[leaf].end), start) for leaf, start in leaves.items()]
        of_leaves = {
            self._word(1, start + i): self._word(0, begin + i)
            for (begin, end), start in spans
            for i in range(end - begin)
            if self.source[begin:end].strip()
        }
        source_words, target_words = self.words
        for target_word, source_word in {**links, **of_leaves}.items():
            self._map_word(source_words[source_word], target_words[target_word])
        if source_words and target_words:
            source_end, target_end = source_words[-1][1], target_words[-1][1]
            if not re.search(r"\w", self.source[source_end - 1] + self.target[target_end - 1]):
                self.origins[target_end - 1] = source_end - 1
        for (begin, end), start in spans:
            self._map((begin, end), (start, start + end - begin))
        for (_, start), (stop, _) in pairwise(target_words):
            left, right = self.origins[start - 1], self.origins[stop]
            if left is not None and right is not None and self.source[left + 1 : right].isspace():
                spaces = [left + 1, *self._edges_between(left + 1, right)][: stop - start]
                self.origins[start : start + len(spaces)] = spaces

    def _map_word(self, source: _Span, target: _Span) -> None:
        """Maps punctuation to punctuation, and each part of the word to a part if they have equally many."""
        sides = self.source, self.target
        if (self.source[slice(*source)] + self.target[slice(*target)]).isalpha():
            self._map(source, target)
            return
        matches = [_WORD.fullmatch(side, *span) for side, span in zip(sides, (source, target), strict=True)]
        has_cores = all(match and match[2] for match in matches)
        cuts = [[match.span(group) for group in ((1, 2, 3) if has_cores else (0,))] for match in matches if match]
        for pair in zip(*cuts, strict=True):
            parts = [list(_PART.finditer(side, *span)) for side, span in zip(sides, pair, strict=True)]
            if len(parts[0]) == len(parts[1]):
                for linked in zip(*parts, strict=True):
                    self._map(linked[0].span(), linked[1].span())
            elif all(parts):
                self._map(*pair)

    def _map(self, source: _Span, target: _Span) -> None:
        """Maps text that differs in capitals at most by character, and other text to the node with most of it."""
        positions: Sequence[int] = range(*source)
        words = self.source[slice(*source)], self.target[slice(*target)]
        if len(words[0]) != len(words[1]) or words[0].casefold() != words[1].casefold():
            ((node, _),) = Counter(self.source_nodes[slice(*source)]).most_common(1)
            positions = [position for position in positions if self.source_nodes[position] == node]
            length = target[1] - target[0]
            positions = [positions[i * (len(positions) - 1) // max(1, length - 1)] for i in range(length)]
        self.origins[slice(*target)] = positions

    def _nodes_of_target(self, leaves: Mapping[int, int], left: int, right: int) -> list[int]:
        """Returns the innermost node around each character of the translation."""

        def element(position: int) -> int:
            node = self.source_nodes[position]
            return self.nodes[node].path[-1 - self.nodes[node].is_leaf]

        def nearest(nodes: Sequence[int | None], edge: int) -> list[int]:
            return list(accumulate(nodes, lambda old, new: old if new is None else new, initial=edge))[1:]

        nodes = [None if origin is None else element(origin) for origin in self.origins]
        for leaf, start in leaves.items():
            length = self.nodes[leaf].end - self.nodes[leaf].begin
            nodes[start : start + length] = [leaf] * length
        nodes[:left] = self.source_nodes[:left]
        nodes[len(nodes) - right :] = self.source_nodes[len(self.source) - right :]
        before, behind = nearest(nodes, element(0)), nearest(nodes[::-1], element(-1))[::-1]
        return list(map(self._common, before, behind))

    def _common(self, a: int, b: int) -> int:
        """Returns the innermost node around both."""
        return a if a == b else next(node for node in reversed(self.nodes[a].path) if node in self.nodes[b].path)

    def written(self, optional: Container[str] = ()) -> Iterator[Token]:
        """Yields the tokens of the translation; see `MarkedText.restored`."""
        lost, inside = self._lost(), 0
        nodes = [0, *self.target_nodes, 0]
        changes = [i for i, (before, node) in enumerate(pairwise(nodes)) if before != node or i in lost]
        yield self._text(0, changes[0] if changes else None)
        for position, following in pairwise([*changes, len(self.target)]):
            target_node = nodes[position + 1]
            for i in lost.get(position, ()):
                node = self.nodes[i]
                if node.opening.role == "word" and self._words(node) in optional:
                    continue
                element = node.path[-1 - node.is_leaf]
                yield from self._tags(inside, element)
                inside = element
                if node.is_leaf:
                    # Text that is inserted is a word of its own. Markup between spaces stays between spaces.
                    sides = (self.target[max(0, position - 1) : position], self.target[position : position + 1])
                    around = self.source[max(0, node.begin - 1) : node.end + 1]
                    has_words = bool(self._words(node).strip())
                    is_apart = has_words or (len(around) > 1 and around.isspace() and " " in sides)
                    left, right = (Token("text", " " * bool(is_apart and side.strip())) for side in sides)
                    yield from (left, *self._tags(element, i), *self._tags(i, element), right)
            yield from self._tags(inside, target_node)
            inside = target_node
            if not self.nodes[target_node].is_leaf:
                yield self._text(position, following)

    def _text(self, start: int, stop: int | None) -> Token:
        """Returns a part of the translation with the spellings of characters that are those of the source."""
        text = self.target[start:stop]
        if not self.is_spelt:
            return Token("text", text)
        both = zip(text, self.origins[start:stop], strict=True)
        item = [self.spellings[i] if i is not None and self.source[i] == character else None for character, i in both]
        if "" in item:  # what is written with the character before, or a gap
            text = "".join(character for character, spelling in zip(text, item, strict=True) if spelling != "")
        item = [spelling for spelling in item if spelling != ""]
        return Token("text", text, item if any(item) else None)

    def _tags(self, start: int, goal: int) -> Iterator[Token]:
        """Yields what ends and begins between two characters that are directly in these nodes."""
        if start == goal:
            return
        closed, opened = self.nodes[start].path, self.nodes[goal].path
        yield from (end for node in reversed(closed) if node not in opened and (end := self.nodes[node].closing))
        for opening in (self.nodes[node].opening for node in opened if node not in closed):
            yield opening.item if opening.role == "word" else opening

    def _lost(self) -> dict[int, list[int]]:
        """Returns the nodes that have no text in the translation, in order, by the position where they are inserted."""
        held = {node for owner in {0, *self.target_nodes} for node in self.nodes[owner].path}
        mapped = [(origin, position) for position, origin in enumerate(self.origins) if origin is not None]
        first, last = dict(reversed(mapped)), dict(mapped)  # by the source character
        origins = sorted(last)
        left, gaps = [0, *self.target_nodes], [end for _, end in self.words[1]][:-1]
        common = list(map(self._common, left, [*self.target_nodes, 0]))

        @cache
        def position_of(parent: int, begin: int) -> int:
            around = self.nodes[parent].begin, begin, self.nodes[parent].end
            low, i, high = (bisect_left(origins, position) for position in around)
            if low == high:
                return 0
            is_behind = low < i and (i == high or bool(_WORD_END.match(self.source, begin)))
            position = last[origins[i - 1]] + 1 if is_behind else first[origins[i]]
            while common[position] not in self.nodes[parent].path:  # do not split a node in the parent
                position += 1 if is_behind else -1
            is_between = self.source[:begin].strip() and _SPACES.match(self.source, begin)
            if parent == 0 and gaps and is_between and not _SPACES.match(self.target, position):
                gap = min(max(position, gaps[0]), gaps[-1])  # what stands between words stays between them
                gap_or_edge = range(gap, position, 1 if gap < position else -1)
                position = next((edge for edge in gap_or_edge if common[edge] == parent), position)
            return position

        ranked = []
        for i, node in enumerate(self.nodes):
            if i not in held and node.path[-2] in held:
                position = position_of(node.path[-2], node.begin)
                # Nodes in a node that ends here, then others, then nodes in a node that begins here.
                ends_here = node.path[-2] in self.nodes[left[position]].path
                ranked.append((position, 0 if node.path[-2] == common[position] else -1 if ends_here else 1, i))
        lost = defaultdict[int, list[int]](list)
        for position, _, i in sorted(ranked):
            lost[position] += range(i, self.nodes[i].last)
        return lost


def text_only(text: str) -> str:
    """Returns text without the characters that XML does not allow."""
    return "".join(c for c in text if c in "\t\n\r" or (c >= " " and c not in "\ufffe\uffff"))
