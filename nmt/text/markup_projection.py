"""Puts markup into translations: each target word gets the elements around the source word that it is aligned with.

The rule is that of Bergamot. An element whose words are apart in the translation is closed and opened again. If it
were extended over the words between, one wrong link could mark a whole sentence. In a pair of words, punctuation
at the edges corresponds to punctuation. Text without a counterpart gets the elements around both of its
neighbours. Markup without words keeps its place relative to a neighbour. An element that is not translated stays
where the translation has its text; if the translation lacks it, as one of a memory may, it is inserted.

Protected words are not inserted here: `with_protected` has put them into each translation of a model, before
sentences are joined. They only get the elements around them, and the spelling, of the source.
"""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, chain, pairwise, zip_longest
from operator import itemgetter

import regex as re

from nmt.text.languages import UNSPACED_SCRIPT
from nmt.text.marked import MarkedText, Token, merged
from nmt.text.protected import Span
from nmt.text.words import RAW_WORD, AlignedWords

_WORD = re.compile(r"(\W*+)((?:.*\w)?)(\W*)", re.DOTALL)  # with the punctuation around it
_RUN = re.compile(r"\d+|[^\W\d]+|\W+")
_IN_WORD = re.compile(r"(?<=\w)(?=\w)")
_SPACES = re.compile(r"(?<=\s)(?=\s+\S)")
_WORD_END = re.compile(r"(?<=\S)(?!\S)")
# Of many leaves with the same text, how far from its own place in their order each looks for it in the translation.
_MOST_APART = 50


def projected(marked: MarkedText, translation: str, alignment: Sequence[AlignedWords]) -> Sequence[Token]:
    """Returns the tokens of a translation, given the alignment between the words of `marked.source` and of it."""
    if translation == marked.source:
        return marked.tokens
    if all(token.kind == "text" and not token.item for token in marked.tokens) and not marked.protected:
        text = "".join(token.text for token in marked.tokens)
        return [Token("text", text.replace(text.strip(), translation.strip(), 1))]
    return list(merged(_Projection(marked, translation, alignment).tokens()))


@dataclass(slots=True)
class _MarkupNode:
    """An element or leaf around the characters from `begin` to `end`. Its descendants are the nodes up to `last`."""

    path: tuple[int, ...]  # the nodes around it, from the outermost, and itself
    begin: int
    opening: Token
    is_leaf: bool  # without tokens inside
    closing: Token | None = None
    end: int = 0
    last: int = 0


class _Projection:
    """A translation with the spaces around it, and the source character and the node of each character."""

    def __init__(self, marked: MarkedText, translation: str, alignment: Sequence[AlignedWords]) -> None:
        self.source = ""
        self.nodes: list[_MarkupNode] = []  # of the source, each before its descendants; node 0 is around all
        self.source_nodes: list[int] = []  # the innermost node around each character of the source
        self.spellings: list[str | None] = []  # how the source writes each of its characters
        unclosed: list[int] = []
        for token in [Token("start"), *marked.with_protected_leaves(), Token("end")]:
            if token.kind in ("start", "leaf"):
                unclosed.append(len(self.nodes))
                self.nodes.append(_MarkupNode(tuple(unclosed), len(self.spellings), token, token.kind == "leaf"))
            self.spellings += (token.kind == "text" and token.item) or [None] * len(token.text)
            self.source_nodes += unclosed[-1:] * len(token.text)
            self.source += token.text
            if token.kind in ("end", "leaf"):
                node = self.nodes[unclosed.pop()]
                node.end, node.last = len(self.spellings), len(self.nodes)
                if token.kind == "end":
                    node.closing, node.is_leaf = token, self.nodes[-1] is node and node.begin == node.end
        self.elements = [node.path[-1 - node.is_leaf] for node in self.nodes]  # a leaf has that around it
        # Where the source begins and ends without the spaces around it, which the translation gets
        self.left, self.end = left, end = len(self.source) - len(self.source.lstrip()), len(self.source.rstrip())
        self.edges = sorted({edge for node in self.nodes for edge in (node.begin, node.end)})
        self.source_of = {target: source for source, target in sorted(alignment, reverse=True)}
        self.last_source_of = {target: source for source, target in sorted(alignment)}
        self.source_words = [match.span() for match in RAW_WORD.finditer(self.source, left, end)]
        inner_target = self._with_spaces(translation.strip())
        self.target = self.source[:left] + inner_target + self.source[end:]
        self.target_words = [match.span() for match in RAW_WORD.finditer(self.target, left, left + len(inner_target))]
        # The source character of each character of the translation; None if it has none.
        self.origins = [*range(left), *[None] * len(inner_target), *range(end, len(self.source))]
        breaks = (i for i, node in enumerate(self.nodes) if node.opening.text == "\n" and left <= node.begin < end)
        lines = (i for i, character in enumerate(inner_target, left) if character == "\n")
        leaves = self._leaves_in_target() | dict(zip(breaks, lines, strict=False))
        self._map_words(leaves)
        self.target_nodes = self._nodes_of_target(leaves)

    def _edges_between(self, start: int, stop: int) -> list[int]:
        """Returns where elements begin or end between two characters of the source, not directly at them."""
        return self.edges[bisect_right(self.edges, start) : bisect_left(self.edges, stop)]

    def _with_spaces(self, translation: str) -> str:
        """Returns the translation with a space for each space that tags separate in the source."""
        words, gaps = RAW_WORD.findall(translation), RAW_WORD.split(translation)
        for i in range(1, len(words)):
            source_word = self.source_of.get(i, -1)
            if gaps[i] == " " and source_word > 0 and self.source_of.get(i - 1) == source_word - 1:
                start, stop = self.source_words[source_word - 1][1], self.source_words[source_word][0]
                gaps[i] += " " * len(self._edges_between(start, stop))
        return "".join(chain.from_iterable(zip_longest(gaps, words, fillvalue="")))

    def _leaves_in_target(self) -> dict[int, int]:
        """Returns where the translation has the text of each leaf. Occurrences in aligned words go first."""
        occurrences = []
        starts_by_text, leaves_by_text = dict[str, list[int]](), Counter[str]()
        for leaf, node in enumerate(self.nodes):
            text, word = node.opening.text, _word_at(self.source_words, node.begin)
            if text.strip() and text not in starts_by_text:
                matches = re.finditer(f"(?={re.escape(text)})", self.target)
                starts_by_text[text] = [match.start() for match in matches]
            index = leaves_by_text[text]
            leaves_by_text[text] += 1
            for start in starts_by_text.get(text, [])[max(0, index - _MOST_APART) : index + _MOST_APART]:
                stop = start + len(text)
                target_word = _word_at(self.target_words, start)
                shift = start - self.target_words[target_word][0] - node.begin + self.source_words[word][0]
                is_linked = self.source_of.get(target_word) == word
                is_moved = not is_linked or shift != 0
                in_word = is_moved and any(_IN_WORD.match(self.target, edge) for edge in (start, stop))
                occurrences.append((not is_linked, in_word, abs(shift), leaf, start, stop))
        leaves, taken = dict[int, int](), set[int]()
        for *_, leaf, start, stop in sorted(occurrences):
            if leaf not in leaves and taken.isdisjoint(range(start, stop)):
                leaves[leaf] = start
                taken.update(range(start, stop))
        return leaves

    def _map_words(self, leaves: Mapping[int, int]) -> None:
        """Maps the characters of linked words, the last full stop, leaves, and spaces."""
        source_of = {target: source for target, source in self.source_of.items() if target < len(self.target_words)}
        texts = [(self.nodes[leaf].begin, start, self.nodes[leaf].opening.text) for leaf, start in leaves.items()]
        for begin, start, text in texts:
            for i in range(len(text)) if text.strip() else ():
                source_of[_word_at(self.target_words, start + i)] = _word_at(self.source_words, begin + i)
        by_source = defaultdict[int, list[int]](list)
        for target_word, source_word in sorted(source_of.items()):
            last_word = self.last_source_of.get(target_word, source_word)
            source, target = self.source_words[source_word], self.target_words[target_word]
            if last_word > source_word and UNSPACED_SCRIPT.search(self.target, *target):
                self._spread((source[0], self.source_words[last_word][1]), range(*target))
            elif UNSPACED_SCRIPT.search(self.source, *source) and self._edges_between(*source):
                by_source[source_word].append(target_word)
            else:
                self._map_word(source, target)
        for source_word, target_words in by_source.items():
            characters = [i for word in target_words for i in range(*self.target_words[word])]
            self._spread(self.source_words[source_word], characters)
        if self.source_words and self.target_words:
            source_end, target_end = self.source_words[-1][1], self.target_words[-1][1]
            if not re.search(r"\w", self.source[source_end - 1] + self.target[target_end - 1]):
                self.origins[target_end - 1] = source_end - 1
        for begin, start, text in texts:
            self._map((begin, begin + len(text)), (start, start + len(text)))
        for (_, start), (stop, _) in pairwise(self.target_words):
            left, right = self.origins[start - 1], self.origins[stop]
            if left is not None and right is not None and self.source[left + 1 : right].isspace():
                spaces = [left + 1, *self._edges_between(left + 1, right)][: stop - start]
                self.origins[start : start + len(spaces)] = spaces

    def _spread(self, source: Span, target: Sequence[int]) -> None:
        """Maps characters of the translation by position. A sentence without spaces is one word to the alignment."""
        for i, character in enumerate(target):
            self.origins[character] = source[0] + i * (source[1] - source[0]) // len(target)

    def _map_word(self, source: Span, target: Span) -> None:
        """Maps punctuation to punctuation, and runs of letters, digits or signs in order if equally many."""
        sides = (self.source, source), (self.target, target)
        matches = [match for text, word in sides if (match := _WORD.fullmatch(text, *word))]
        for group in (1, 2, 3) if all(match[2] for match in matches) else (0,):
            spans = [match.span(group) for match in matches]
            runs = [[run.span() for run in _RUN.finditer(match.string, *match.span(group))] for match in matches]
            if len(runs[0]) == len(runs[1]):
                for source_run, target_run in zip(*runs, strict=True):
                    self._map(source_run, target_run)
            elif all(runs):
                self._map(*spans)

    def _map(self, source: Span, target: Span) -> None:
        """Maps text that differs in capitals at most by character, and other text to the node with most of it."""
        positions: Sequence[int] = range(*source)
        texts = self.source[slice(*source)], self.target[slice(*target)]
        if len(texts[0]) != len(texts[1]) or texts[0].casefold() != texts[1].casefold():
            ((node, _),) = Counter(self.source_nodes[slice(*source)]).most_common(1)
            positions = [position for position in positions if self.source_nodes[position] == node]
            length = target[1] - target[0]
            positions = [positions[i * (len(positions) - 1) // max(1, length - 1)] for i in range(length)]
        self.origins[slice(*target)] = positions

    def _nodes_of_target(self, leaves: Mapping[int, int]) -> list[int]:
        """Returns the innermost node around each character of the translation."""
        elements = [self.elements[node] for node in self.source_nodes]  # around the characters of the source
        nodes = [None if origin is None else elements[origin] for origin in self.origins]
        for leaf, start in leaves.items():
            length = len(self.nodes[leaf].opening.text)
            nodes[start : start + length] = [leaf] * length
        nodes[: self.left] = self.source_nodes[: self.left]
        nodes[len(nodes) - len(self.source) + self.end :] = self.source_nodes[self.end :]

        def nearest(nodes: Sequence[int | None], edge: int) -> list[int]:
            return list(accumulate(nodes, lambda old, new: old if new is None else new, initial=edge))[1:]

        return list(map(self._common, nearest(nodes, elements[0]), nearest(nodes[::-1], elements[-1])[::-1]))

    def _common(self, a: int, b: int) -> int:
        """Returns the innermost node around both."""
        return a if a == b else next(node for node in reversed(self.nodes[a].path) if node in self.nodes[b].path)

    def tokens(self) -> Iterator[Token]:
        """Yields the tokens of the translation. Its text may be cut anywhere."""
        lost, inside = self._lost(), 0
        nodes = [0, *self.target_nodes, 0]
        changes = [i for i, (before, node) in enumerate(pairwise(nodes)) if before != node or i in lost]
        yield self._text(0, changes[0] if changes else None)
        for position, following in pairwise([*changes, len(self.target)]):
            for i in lost.get(position, ()):
                node = self.nodes[i]
                yield from self._tags(inside, self.elements[i])
                inside = self.elements[i]
                if node.is_leaf:
                    # Text that is inserted is a word of its own. Markup between spaces stays between spaces.
                    sides = (self.target[max(0, position - 1) : position], self.target[position : position + 1])
                    around = self.source[max(0, node.begin - 1) : node.end + 1]
                    is_between_spaces = len(around) > 1 and around.isspace() and " " in sides
                    is_apart = bool(node.opening.text.strip()) or is_between_spaces
                    left, right = (Token("text", " " * bool(is_apart and side.strip())) for side in sides)
                    yield from (left, *self._tags(inside, i), *self._tags(i, inside), right)
            yield from self._tags(inside, nodes[position + 1])
            inside = nodes[position + 1]
            if not self.nodes[inside].is_leaf:
                yield self._text(position, following)

    def _text(self, start: int, stop: int | None) -> Token:
        """Returns text of the translation with the spellings of characters that are those of the source."""
        spelt = [
            (character, self.spellings[i] if i is not None and self.source[i] == character else None)
            for character, i in zip(self.target[start:stop], self.origins[start:stop], strict=True)
        ]
        spelt = [pair for pair in spelt if pair[1] != ""]  # what is written with the character before, or a gap
        spellings = [spelling for _, spelling in spelt]
        return Token("text", "".join(character for character, _ in spelt), spellings if any(spellings) else None)

    def _tags(self, start: int, goal: int) -> Iterator[Token]:
        """Yields what ends and begins between two characters that are directly in these nodes."""
        closed, opened = self.nodes[start].path, self.nodes[goal].path
        yield from (end for node in reversed(closed) if node not in opened and (end := self.nodes[node].closing))
        for opening in (self.nodes[node].opening for node in opened if node not in closed):
            yield opening.item if opening.role == "protected" else opening

    def _lost(self) -> dict[int, list[int]]:
        """Returns the nodes without text in the translation, in order, by the position where they are inserted."""
        held = {node for owner in {0, *self.target_nodes} for node in self.nodes[owner].path}
        mapped = [(origin, position) for position, origin in enumerate(self.origins) if origin is not None]
        first, last = dict(reversed(mapped)), dict(mapped)  # by the source character
        origins = sorted(last)
        before, gaps = [0, *self.target_nodes], [end for _, end in self.target_words][:-1]
        common = list(map(self._common, before, [*self.target_nodes, 0]))

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
                ends_here = node.path[-2] in self.nodes[before[position]].path
                ranked.append((position, 0 if node.path[-2] == common[position] else -1 if ends_here else 1, i))
        lost = defaultdict[int, list[int]](list)
        for position, _, i in sorted(ranked):
            inner = range(i, self.nodes[i].last)
            lost[position] += [node for node in inner if self.nodes[node].opening.role != "protected"]
        return lost


def _word_at(words: Sequence[Span], position: int) -> int:
    """Returns the number of the word around a character."""
    return bisect_right(words, position, key=itemgetter(0)) - 1
