"""Puts markup into translations: each target word gets the elements around the source word that it is aligned with.

The rule is that of Bergamot. An element whose words are apart in the translation is closed and opened again. If it were
extended over the words between, one wrong link could mark a whole sentence. In a pair of words, punctuation at the
edges corresponds to punctuation. Text without a counterpart gets the elements around both of its neighbours. Markup
without words keeps its place relative to a neighbour. Placeholders and elements that are not translated stay in the
text; if the translation lacks one, it is inserted.
"""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape, unescape
from html.entities import html5
from itertools import accumulate, chain, pairwise, zip_longest
from typing import Literal, NamedTuple

import regex as re

from nmt.text.words import RAW_WORD, AlignedWords

_REFERENCE = re.compile(r"&(?:#[0-9]+;?|#[xX][0-9a-fA-F]+;?|[0-9a-zA-Z]+;?)")
_BEGIN, _END = "\ufdd0", "\ufdd1"  # which are no characters of text
_LONGEST_REFERENCE = max(map(len, html5))
_WORD = re.compile(r"(\W*+)((?:.*\w)?)(\W*)", re.DOTALL)  # with the punctuation around it
_PART = re.compile(r"\d+|[^\W\d]+|\W+")
_IN_WORD = re.compile(r"(?<=\w)(?=\w)")
_LINE_END = re.compile("\n")
_SPACES = re.compile(r"(?<=\s)(?=\s+\S)")
_WORD_END = re.compile(r"(?<=\S)(?!\S)")
_Span = tuple[int, int]


class Token(NamedTuple):
    """A part of marked-up text."""

    # Start and end are tags. A leaf has no content that is translated. A gap is a space that the source lacks.
    kind: Literal["start", "end", "text", "leaf", "gap"]
    raw: str  # how the source writes it
    name: str = ""
    text: str = ""  # of a leaf or gap, what stands for it in a line
    kept_by: Mapping[str, bool] = {}  # whether attributes around it say that it stays, by their names

    @property
    def is_kept(self) -> bool:
        """Whether it is in an element that is not translated."""
        return any(self.kept_by.values())

    @property
    def words(self) -> str:
        """What a reader sees of it."""
        return unescape(self.raw) if self.kind == "text" else self.text


GAP = Token("gap", "", text=" ")


@dataclass(frozen=True, slots=True)
class MarkedText:
    """Text that is translated as a whole, as nested tokens."""

    tokens: Sequence[Token]

    @property
    def text(self) -> str:
        """The text without tags, with the spaces around it."""
        return "".join(token.words for token in self.tokens)

    @property
    def source(self) -> str:
        """What is translated: one line, or several if the text has br elements."""
        return self._marked.replace(_BEGIN, "").replace(_END, "")

    @property
    def kept(self) -> list[tuple[int, int]]:
        """Where the parts of `source` begin and end that stay as they are."""
        marked = re.finditer(f"{_BEGIN}[^{_END}]*{_END}", self._marked)
        return [(match.start() - 2 * i, match.end() - 2 * i - 2) for i, match in enumerate(marked)]

    @property
    def edges(self) -> list[int]:
        """Where elements begin or end, as the numbers of characters before them.

        White space is not counted, because `source` has less of it than the tokens.
        """
        counts = accumulate(len("".join(token.words.split())) for token in self.tokens)
        return [n for token, n in zip(self.tokens, counts, strict=True) if token.kind != "text" and not token.words]

    @property
    def _marked(self) -> str:
        """The source with marks around the parts that stay."""
        text = ""
        for token in self.tokens:
            words = token.words.replace(_BEGIN, "").replace(_END, "")
            if token.kind == "text":
                text += re.sub(r"\s+", " ", words, flags=re.ASCII)
            else:
                text += f"{_BEGIN}{' '.join(RAW_WORD.findall(words))}{_END}" if words.strip() else words
        return re.sub(r" *(\n| ) *", r"\1", text).strip()

    def restored(self, translation: str, alignment: Sequence[AlignedWords], optional: Container[str] = ()) -> str:
        """Returns the translation with markup, given the alignment between the words of `source` and of it.

        Args:
            optional: protected words that are not inserted if the translation lacks them.
        """
        if translation == self.source:
            return "".join(token.raw for token in self.tokens)
        if all(token.kind == "text" and not re.search("[&<>]", token.raw) for token in self.tokens):
            left, right = _spaces_around(self.text)
            return left + escape(translation.strip(), quote=False) + right
        return "".join(_Projection(self, translation, alignment).written(optional))


def spellings(raw: str) -> Sequence[str]:
    """Returns how text writes each of its characters. A semicolon may be missing behind a reference of HTML."""
    if "&" not in raw:
        return raw
    written, start = list[str](), 0
    for match in _REFERENCE.finditer(raw):
        reference = match[0]
        if reference[1] != "#":
            stops = range(min(len(reference), _LONGEST_REFERENCE + 1), 1, -1)
            reference = next((reference[:stop] for stop in stops if reference[1:stop] in html5), "&")
        characters = unescape(reference)
        written += raw[start : match.start()]
        written += [reference] if len(characters) == 1 else characters
        start = match.start() + len(reference)
    return [*written, *raw[start:]]


def _spaces_around(text: str) -> tuple[str, str]:
    return text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]


@dataclass(slots=True)
class _MarkupNode:
    """An element or leaf around the characters from `begin` to `end`. Its descendants follow it, before node `last`."""

    path: tuple[int, ...]  # the nodes around it, from the outermost, and itself
    begin: int
    start_tag: str
    is_leaf: bool
    end: int = 0
    end_tag: str = ""
    last: int = 0


class _Projection:
    """A translation with the spaces around it, and for each of its characters the source character and the node."""

    def __init__(self, marked: MarkedText, translation: str, alignment: Sequence[AlignedWords]) -> None:
        self.source = marked.text
        left, right = map(len, _spaces_around(self.source))
        self.nodes: list[_MarkupNode] = []  # of the source, each before its descendants; node 0 is around all others
        self.source_nodes: list[int] = []  # the innermost node around each character of the source
        self.spellings: list[str] = []  # how the source writes each of its characters
        unclosed: list[int] = []
        for token in [Token("start", ""), *marked.tokens, Token("end", "")]:
            if token.kind in ("start", "leaf"):
                unclosed.append(len(self.nodes))
                self.nodes.append(_MarkupNode(tuple(unclosed), len(self.spellings), token.raw, token.kind == "leaf"))
            written = spellings(token.raw) if token.kind == "text" else token.text
            self.spellings += [""] if token.kind == "gap" else written
            self.source_nodes += unclosed[-1:] * len(written)
            if token.kind in ("end", "leaf"):
                node = self.nodes[unclosed.pop()]
                node.end, node.last = len(self.spellings), len(self.nodes)
                node.end_tag = token.raw if token.kind == "end" else ""
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
        ends = [leaf for leaf, node in inner if node.is_leaf and self._text(node) == "\n"]
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

    def _text(self, node: _MarkupNode) -> str:
        return self.source[node.begin : node.end]

    def _word(self, side: int, position: int) -> int:
        """Returns the number of the word around a character of the source, 0, or of the translation, 1."""
        return bisect_right(self.words[side], position, key=lambda word: word[0]) - 1

    def _leaves_in_target(self, links: Mapping[int, int]) -> dict[int, int]:
        """Returns where the translation has the text of a leaf, by the leaf. Occurrences in aligned words go first."""
        ranked = []
        for leaf, node in enumerate(self.nodes):
            phrase = self._text(node) if node.is_leaf else ""
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

    def written(self, optional: Container[str] = ()) -> Iterator[str]:
        """Yields the parts of the marked-up translation; see `MarkedText.restored`."""
        lost = self._lost()
        inside = 0
        for position, target_node in enumerate([*self.target_nodes, 0]):
            for i in lost[position]:
                node = self.nodes[i]
                if self._text(node) in optional and not node.start_tag.startswith("<"):
                    continue
                element = node.path[-1 - node.is_leaf]
                yield from self._tags(inside, element)
                inside = element
                if node.is_leaf:
                    # Text that is inserted is a word of its own. Markup between spaces stays between spaces.
                    sides = (self.target[max(0, position - 1) : position], self.target[position : position + 1])
                    around = self.source[max(0, node.begin - 1) : node.end + 1]
                    has_words = bool(self._text(node).strip())
                    is_apart = has_words or (len(around) > 1 and around.isspace() and " " in sides)
                    left, right = (" " if is_apart and side.strip() else "" for side in sides)
                    yield f"{left}{node.start_tag}{right}"
            yield from self._tags(inside, target_node) if target_node != inside else ()
            inside = target_node
            if position < len(self.target) and not self.nodes[target_node].is_leaf:
                character, origin = self.target[position], self.origins[position]
                is_same = origin is not None and self.source[origin] == character
                yield self._spelling(position, origin or 0) if is_same else escape(character, quote=False)

    def _spelling(self, position: int, origin: int) -> str:
        """Returns how the source spells a character, if that has the same meaning in the translation."""
        spelling, following = self.spellings[origin], self.target[position + 1 : position + 1 + _LONGEST_REFERENCE]
        if spelling == "<" and re.match("[a-zA-Z/!?]", following):
            return "&lt;"
        is_open = spelling.startswith("&") and not spelling.endswith(";")
        if is_open and unescape(spelling + following) != self.target[position] + following:
            return "&amp;" if spelling == "&" else f"{spelling};"
        return spelling

    def _tags(self, start: int, goal: int) -> Iterator[str]:
        """Yields the tags between two characters that are directly in these nodes."""
        closed, opened = self.nodes[start].path, self.nodes[goal].path
        yield from (self.nodes[node].end_tag for node in reversed(closed) if node not in opened)
        yield from (self.nodes[node].start_tag for node in opened if node not in closed)

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
