"""Constituency trees as sequences (Vinyals et al. 2015, arXiv:1412.7449): reading, normalising, linearising, restoring.

A tree of the Penn Treebank such as (S (NP-SBJ (DT The) (NN cat)) (VP (VBD slept))) becomes two lines of parallel text,
the words, and the brackets around them, the closing ones labelled, with one symbol for each word:

    The cat slept
    (S (NP XX XX )NP (VP XX )VP )S
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from nmt.errors import NmtError

WORD = "XX"  # the symbol of a word, and the tag of one whose tag is unknown
TOP = "TOP"
_DIGITS = 10  # of a word's number, at most
# What is counted when a sequence that needs repairs gives way to a later hypothesis that does not.
REPLACED = "replaced by a later hypothesis"
_ROOTS = {"", TOP, "ROOT", "S1", "VROOT"}
_EMPTY = "-NONE-"
# The tags of words that are always punctuation, which EVALB looks for.
_PUNCTUATION = {",": ",", "``": "``", "`": "``", "''": "''"}
_PUNCTUATION |= dict.fromkeys((".", "?", "!"), ".") | dict.fromkeys((":", ";", "--", "-", "..."), ":")


@dataclass(frozen=True, slots=True)
class Word:
    tag: str
    text: str


@dataclass(frozen=True, slots=True)
class Node:
    label: str
    children: tuple[Node | Word, ...]


# Reading


class _Open:
    """A bracket that is not closed yet."""

    def __init__(self, line: int) -> None:
        self.line = line
        self.texts: list[str] = []  # a label or a tag, then a word
        self.children: list[Node | Word] = []

    def closed(self) -> Node | Word | None:
        """What it makes; None if that is neither a word nor a node."""
        if len(self.texts) == 2 and not self.children:
            return Word(*self.texts)
        if len(self.texts) <= 1 and self.children:
            return Node("".join(self.texts), tuple(self.children))
        return None


def read_trees(lines: Iterable[str], origin: str) -> Iterator[tuple[int, Node]]:
    """The trees of a file as they stand there, however their brackets are laid out, each with the line it begins in.

    Raises:
        NmtError: brackets do not match, or something in them is no tree; names `origin` and the line.
    """
    stack: list[_Open] = []
    number = 0
    for number, line in enumerate(lines, start=1):
        for token in line.replace("(", " ( ").replace(")", " ) ").split():
            if token == "(":
                stack.append(_Open(number))
            elif not stack:
                raise NmtError(f"{origin}, line {number}: {token!r} is outside of all brackets; mend or remove it")
            elif token == ")":
                closed = stack.pop()
                made = closed.closed()
                if made is None or (isinstance(made, Word) and not stack):
                    raise NmtError(
                        f"{origin}, line {number}: a bracket that begins in line {closed.line} holds neither a tag and "
                        f"a word nor a label and brackets; mend or remove it"
                    )
                if stack:
                    stack[-1].children.append(made)
                elif isinstance(made, Node):
                    yield closed.line, made
            else:
                stack[-1].texts.append(token)
    if stack:
        raise NmtError(
            f"{origin}: a bracket that begins in line {stack[0].line} is not closed; {number:,} lines were read"
        )


def walk(tree: Node) -> Iterator[tuple[Node | Word, bool]]:
    """Everything in a tree from left to right: a word once, with True; a node with True before and False behind."""
    stack: list[tuple[Node, Iterator[Node | Word]]] = [(tree, iter(tree.children))]
    yield tree, True
    while stack:
        node, children = stack[-1]
        child = next(children, None)
        if child is None:
            stack.pop()
            yield node, False
            continue
        yield child, True
        if isinstance(child, Node):
            stack.append((child, iter(child.children)))


def normalized(tree: Node) -> Node | None:
    """The tree as it is learnt and scored, under a TOP node; None if it has no words.

    Empty elements (-NONE-) and the nodes they leave empty are removed, and what follows - or = in a label: function
    tags and indices. Labels and tags that begin with -, such as -LRB-, stay as they are, and so do unary chains.
    """
    whole = Node(TOP, tree.children if tree.label in _ROOTS else (tree,))
    return rebuilt(whole, lambda word: None if word.tag == _EMPTY else word, plain_label)


def rebuilt(tree: Node, word: Callable[[Word], Word | None], label: Callable[[str], str]) -> Node | None:
    """The tree with other words and labels, without words that are None and nodes that have no words."""
    made: list[list[Node | Word]] = [[]]
    for item, before in walk(tree):
        if isinstance(item, Word):
            if (new := word(item)) is not None:
                made[-1].append(new)
        elif before:
            made.append([])
        elif children := made.pop():
            made[-1].append(Node(label(item.label), tuple(children)))
    return made[0][0] if made[0] else None  # type: ignore[return-value]


def plain_label(label: str) -> str:
    """`NP-SBJ-1` and `NP=2` -> `NP`."""
    return label if label.startswith("-") else label.split("-")[0].split("=")[0]


def words_of(tree: Node) -> list[Word]:
    return [item for item, _ in walk(tree) if isinstance(item, Word)]


def escaped(word: str) -> str:
    """The word as treebanks write it, which would take its parentheses for brackets."""
    return word.replace("(", "-LRB-").replace(")", "-RRB-")


def write_tree(tree: Node) -> str:
    """The tree on one line; nothing for one without words."""
    if not tree.children:
        return ""
    parts = []
    for item, before in walk(tree):
        if isinstance(item, Word):
            parts.append(f" ({item.tag} {escaped(item.text)})")
        else:
            parts.append(f" ({item.label}" if before else ")")
    return "".join(parts)[1:]


# To sequences and back


def linearized(tree: Node, numbered: bool = False) -> list[str]:
    """The symbols of a normalised tree: `(S`, `XX`, `)S`; TOP, which all have, is left out.

    If they are `numbered`, words become `#1`, `#2`, … instead of `XX`.
    """
    numbers = count(1)

    def symbol(item: Node | Word, before: bool) -> str:
        if isinstance(item, Node):
            return f"({item.label}" if before else f"){item.label}"
        return f"#{next(numbers)}" if numbered else WORD

    return [symbol(item, before) for item, before in list(walk(tree))[1:-1]]


def are_sequences(lines: Sequence[str]) -> bool:
    """Whether lines are meant as `linearized` trees: one closes a bracket by its label, or none closes any."""
    closing = any(t[0] == ")" and t.strip(")") and "(" not in t for line in lines for t in line.split())
    return closing or not any(")" in line for line in lines)


def untagged(words: Sequence[str]) -> list[Word]:
    """Words whose tags are unknown, but for punctuation."""
    return [Word(_PUNCTUATION.get(word, WORD), word) for word in words]


def restored(symbols: Sequence[str], words: Sequence[Word]) -> tuple[Node, Counter[str]]:
    """A tree over exactly `words`, out of any symbols, and how often which of these repairs was made:

    unknown: a symbol that is no bracket and no word is left out;
    surplus words: so is a word's symbol when no word is left, or its number is not that of a word to come;
    missing words: words that a number leaves out stand before it; words that are left join the innermost bracket that
        is open at the end, or else the last one;
    unclosed: a bracket still open when one around it is closed, or at the end, is closed there;
    mismatched: a closing bracket of which none is open closes the innermost, whatever its label;
    unopened: one that comes when nothing is open is left out;
    empty: a bracket without a word in it is removed.

    A right sequence is restored as it is, with no repairs.
    """
    return _Restorer(words).run(symbols)


def first_restored(alternatives: Sequence[Sequence[str]], words: Sequence[Word]) -> tuple[Node, Counter[str]]:
    """The first of several sequences that needs no repair, or else the first one; then as `restored`."""
    first = restored(alternatives[0], words)
    if not first[1]:
        return first
    others = (restored(symbols, words) for symbols in alternatives[1:])
    found = next((tree for tree, repairs in others if not repairs), None)
    return first if found is None else (found, Counter({REPLACED: 1}))


class _Restorer:
    def __init__(self, words: Sequence[Word]) -> None:
        self.words = list(words)
        self.repairs: Counter[str] = Counter()
        self.open: list[tuple[str, list[Node | Word]]] = [(TOP, [])]
        self.labels: Counter[str] = Counter()  # of what is open, but for TOP
        self.used = 0

    def run(self, symbols: Sequence[str]) -> tuple[Node, Counter[str]]:
        for symbol in symbols:
            self._read(symbol)
        left = self.words[self.used :]
        self.repairs["missing words"] += len(left)
        if left:
            self._reopen()
            self.open[-1][1].extend(left)
        while len(self.open) > 1:
            self.repairs["unclosed"] += 1
            self._close()
        return Node(TOP, tuple(self.open[0][1])), +self.repairs

    def _read(self, symbol: str) -> None:
        label = symbol[1:]
        if symbol == WORD:
            self._word(self.used + 1)
        elif symbol.startswith("#") and label.isdecimal() and len(label) < _DIGITS:
            self._word(int(label))
        elif symbol.startswith("(") and label:
            self._open(label, [])
        elif not symbol.startswith(")") or not label:
            self.repairs["unknown"] += 1
        elif len(self.open) == 1:
            self.repairs["unopened"] += 1
        elif not self.labels[label]:
            self.repairs["mismatched"] += 1
            self._close()
        else:
            while self.open[-1][0] != label:
                self.repairs["unclosed"] += 1
                self._close()
            self._close()

    def _word(self, number: int) -> None:
        if not self.used < number <= len(self.words):
            self.repairs["surplus words"] += 1
            return
        self.repairs["missing words"] += number - self.used - 1
        self.open[-1][1].extend(self.words[self.used : number])
        self.used = number

    def _open(self, label: str, children: list[Node | Word]) -> None:
        self.open.append((label, children))
        self.labels[label] += 1

    def _close(self) -> None:
        label, children = self.open.pop()
        self.labels[label] -= 1
        if children:
            self.open[-1][1].append(Node(label, tuple(children)))
        else:
            self.repairs["empty"] += 1

    def _reopen(self) -> None:
        """Opens the last bracket again if none is open."""
        top = self.open[0][1]
        if len(self.open) == 1 and top and isinstance(top[-1], Node):
            last = top.pop()
            assert isinstance(last, Node)
            self._open(last.label, list(last.children))
            self.repairs["unclosed"] -= 1  # which it was not
