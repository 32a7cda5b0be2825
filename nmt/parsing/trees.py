"""Reads and writes constituency trees as the Penn Treebank does, and normalises them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from nmt.errors import NmtError
from nmt.text.words import RAW_WORD

WORD = "XX"  # the symbol of a word, and the tag of a word whose tag is unknown
TOP = "TOP"
EMPTY = "-NONE-"
# The tags of words that are always punctuation. EVALB deletes words with these tags.
_PUNCTUATION = {",": ",", "``": "``", "`": "``", "''": "''"}
_PUNCTUATION |= dict.fromkeys((".", "?", "!"), ".") | dict.fromkeys((":", ";", "--", "-", "..."), ":")


@dataclass(frozen=True, slots=True)
class Word:
    """A leaf of a tree: a word with its part-of-speech tag."""

    tag: str
    text: str


@dataclass(frozen=True, slots=True)
class Node:
    """A constituent: a label over one or more children."""

    label: str
    children: tuple[Node | Word, ...]


def read_trees(
    lines: Iterable[str], origin: str, first: int = 1, *, keeps_empty: bool = False
) -> Iterator[tuple[int, Node]]:
    """Yields the trees of a file without any change, with the line of each; `keeps_empty` allows empty brackets."""
    # The open brackets: the line of each, and what it holds so far, a label or a tag, then a word or children.
    stack: list[tuple[int, list[str], list[Node | Word]]] = []
    line_number = first
    for line_number, line in enumerate(lines, start=first):
        for token in RAW_WORD.findall(line.replace("(", " ( ").replace(")", " ) ")):
            if token == "(":
                stack.append((line_number, [], []))
            elif not stack:
                raise NmtError(
                    f"{origin}, line {line_number}: {token!r} is outside of all brackets; correct or remove it"
                )
            elif token != ")":
                _, texts, _ = stack[-1]
                texts.append(token)
            else:
                begin, texts, children = stack.pop()
                if len(texts) == 2 and not children and stack:
                    stack[-1][2].append(Word(*texts))
                elif len(texts) > 1 or not (children or keeps_empty):
                    wrong = f"a bracket that begins in line {begin} holds neither a tag and a word nor a label and"
                    raise NmtError(f"{origin}, line {line_number}: {wrong} brackets; correct or remove it")
                elif stack:
                    stack[-1][2].append(Node("".join(texts), tuple(children)))
                else:
                    yield begin, Node("".join(texts), tuple(children))
    if stack:
        opening = f"a bracket that begins in line {stack[0][0]:,}"
        raise NmtError(f"{origin}: {opening} is not closed at the end of line {line_number:,}; add the missing bracket")


def walk(tree: Node) -> Iterator[tuple[Node | Word, bool]]:
    """Yields all nodes and words from left to right: a node with True before its children and with False after them."""
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
    """Returns the tree as it is learnt and scored, under a TOP node; None if it has no words.

    Empty elements (-NONE-) are removed, and so are nodes without words. Labels lose function tags and indices (see
    `plain_label`). Unary chains stay.
    """
    whole = Node(TOP, tree.children if tree.label in ("", TOP, "ROOT", "S1", "VROOT") else (tree,))
    return rebuilt(whole, lambda word: None if word.tag == EMPTY else word, plain_label)


def rebuilt(tree: Node, word: Callable[[Word], Word | None], label: Callable[[str], str]) -> Node | None:
    """Returns the tree with the words and labels that the functions return; None if no word remains."""
    unclosed: list[list[Node | Word]] = [[]]  # the children of each open bracket
    for item, opens in walk(tree):
        if isinstance(item, Word):
            if (new := word(item)) is not None:
                unclosed[-1].append(new)
        elif opens:
            unclosed.append([])
        elif children := unclosed.pop():
            unclosed[-1].append(Node(label(item.label), tuple(children)))
    return unclosed[0][0] if unclosed[0] else None  # type: ignore[return-value]


def plain_label(label: str) -> str:
    """Returns a label without function tags and indices: `NP` for `NP-SBJ-1` and for `NP=2`."""
    return label if label.startswith("-") else label.split("-")[0].split("=")[0]


def words_of(tree: Node) -> list[Word]:
    """Returns the words of a tree from left to right."""
    return [item for item, _ in walk(tree) if isinstance(item, Word)]


def tagged_as(gold: Node, tree: Node) -> Node:
    """Returns the tree with gold tags instead of XX if it has the gold words, otherwise without any change."""
    gold_words, words = ([word for word in words_of(side) if word.tag != EMPTY] for side in (gold, tree))
    if [word.text for word in gold_words] != [word.text for word in words]:
        return tree
    following = iter(gold_words)

    def tagged(word: Word) -> Word:
        gold_word = word if word.tag == EMPTY else next(following)
        return gold_word if word.tag == WORD else word

    return rebuilt(tree, tagged, str) or tree


def untagged(words: Sequence[str]) -> list[Word]:
    """Returns words with the tag XX, or with their tag if they are punctuation."""
    return [Word(_PUNCTUATION.get(word, WORD), word) for word in words]


def escaped(word: str) -> str:
    """Returns the word with -LRB- and -RRB- for its parentheses, which would be brackets in a treebank."""
    return word.replace("(", "-LRB-").replace(")", "-RRB-")


def write_tree(tree: Node) -> str:
    """Returns the tree on one line; an empty string if it has no words."""
    if not tree.children:
        return ""
    written = ""
    for item, opens in walk(tree):
        if isinstance(item, Word):
            written += f" ({item.tag} {escaped(item.text)})"
        else:
            written += f" ({item.label}" if opens else ")"
    return written[1:]
