"""Converts constituency trees to sequences and back (Vinyals et al. 2015, arXiv:1412.7449).

A tree of the Penn Treebank such as (S (NP-SBJ (DT The) (NN cat)) (VP (VBD slept))) becomes two lines of parallel
text. The first line has the words. The second line has the brackets, which are labelled on both ends, and a symbol
for each word:

    The cat slept
    (S (NP XX XX )NP (VP XX )VP )S
"""

from collections import Counter
from collections.abc import Sequence
from itertools import count

from nmt.parsing.trees import TOP, WORD, Node, Word, walk


def linearized(tree: Node, numbered: bool = False) -> list[str]:
    """Returns symbols such as `(S`, `XX` and `)S` without the TOP bracket; `numbered` words are `#1`, `#2`, …"""
    numbers = count(1)

    def symbol(item: Node | Word, opens: bool) -> str:
        if isinstance(item, Node):
            return f"({item.label}" if opens else f"){item.label}"
        return f"#{next(numbers)}" if numbered else WORD

    return [symbol(item, opens) for item, opens in list(walk(tree))[1:-1]]


def are_sequences(lines: Sequence[str]) -> bool:
    """Returns whether lines look like `linearized` trees rather than treebank trees."""
    closing = any(t[0] == ")" and t.strip(")") and "(" not in t for line in lines for t in line.split())
    return closing or not any(")" in line for line in lines)


def restored(symbols: Sequence[str], words: Sequence[Word]) -> tuple[Node, Counter[str]]:
    """Returns a tree over exactly `words` for any sequence of symbols, and how often each of these repairs was made.

    - unknown: a symbol that is neither a bracket nor a word is dropped.
    - surplus words: a word's symbol is dropped if no word is left, or if its number is not the number of a word left.
    - missing words: words that the numbers skip are added before the numbered word. Words that are left at the end
      join the innermost open bracket, or the last bracket if none is open.
    - unclosed: an open bracket is closed where a bracket around it closes, or at the end.
    - mismatched: a closing bracket whose label no open bracket has closes the innermost bracket.
    - unopened: a closing bracket is dropped if no bracket is open.
    - empty: a bracket without words is removed.

    A correct sequence needs no repairs.
    """
    repairs, labels = Counter[str](), Counter[str]()  # `labels` counts the open brackets with a label
    opened: list[tuple[str, list[Node | Word]]] = [(TOP, [])]  # label and children of each open bracket
    used = 0  # words in the tree

    def close() -> None:
        label, children = opened.pop()
        labels[label] -= 1
        if children:
            opened[-1][1].append(Node(label, tuple(children)))
        else:
            repairs["empty"] += 1

    for symbol in symbols:
        label = symbol[1:]
        is_numbered = symbol.startswith("#") and label.isdecimal() and len(label) < 10
        if symbol == WORD or is_numbered:
            number = int(label) if is_numbered else used + 1
            if used < number <= len(words):
                repairs["missing words"] += number - used - 1
                opened[-1][1].extend(words[used:number])
                used = number
            else:
                repairs["surplus words"] += 1
        elif symbol.startswith("(") and label:
            opened.append((label, []))
            labels[label] += 1
        elif not symbol.startswith(")") or not label:
            repairs["unknown"] += 1
        elif len(opened) == 1:
            repairs["unopened"] += 1
        elif not labels[label]:
            repairs["mismatched"] += 1
            close()
        else:
            while opened[-1][0] != label:
                repairs["unclosed"] += 1
                close()
            close()
    left, top = words[used:], opened[0][1]
    repairs["missing words"] += len(left)
    if left and len(opened) == 1 and top and isinstance(last := top[-1], Node):
        del top[-1]
        opened.append((last.label, list(last.children)))
        repairs["unclosed"] -= 1  # the sequence had closed this bracket, so that to close it again is no repair
    opened[-1][1].extend(left)
    while len(opened) > 1:
        repairs["unclosed"] += 1
        close()
    return Node(TOP, tuple(top)), +repairs


def first_restored(alternatives: Sequence[Sequence[str]], words: Sequence[Word]) -> tuple[Node, Counter[str]]:
    """Returns the tree of the first sequence that needs no repair, or of the first sequence if all need repairs.

    The repairs are also returned, as by `restored`. Choosing a later sequence counts as one repair. If the chosen
    sequence needs repairs, it is also counted under "sequences".
    """
    tree, repairs = restored(alternatives[0], words)
    if not repairs:
        return tree, repairs
    others = (restored(symbols, words) for symbols in alternatives[1:])
    sound = next((other for other, other_repairs in others if not other_repairs), None)
    if sound is None:
        return tree, repairs + Counter({"sequences": 1})
    return sound, Counter({"replaced by a later hypothesis": 1})
