"""Converts constituency trees to sequences and back (Vinyals et al. 2015, arXiv:1412.7449).

A tree of the Penn Treebank such as (S (NP-SBJ (DT The) (NN cat)) (VP (VBD slept))) becomes two lines of parallel text.
The first line has the words. The second line has the brackets, which are labelled on both ends, and a symbol for each
word:

    The cat slept
    (S (NP XX XX )NP (VP XX )VP )S
"""

from collections import Counter
from collections.abc import Sequence
from itertools import count

from nmt.parsing.trees import TOP, WORD, Node, Word, walk

_TOO_MANY_DIGITS = 10  # for the number of a word


def linearized(tree: Node, numbered: bool = False) -> list[str]:
    """Returns the symbols of a normalised tree, such as `(S`, `XX` and `)S`, without its TOP bracket.

    If `numbered` is true, words become `#1`, `#2`, … instead of `XX`.
    """
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
    - missing words: words that the numbers skip are added before the numbered word. Words that are left at the end join
      the innermost open bracket, or the last bracket if none is open.
    - unclosed: an open bracket is closed where a bracket around it closes, or at the end.
    - mismatched: a closing bracket whose label no open bracket has closes the innermost bracket.
    - unopened: a closing bracket is dropped if no bracket is open.
    - empty: a bracket without words is removed.

    A correct sequence needs no repairs.
    """
    return _Restorer(words).run(symbols)


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


class _Restorer:
    """The state of `restored` between two symbols.

    Attributes:
        words: the words of the sentence.
        repairs: how often each repair was made.
        open: label and children of each open bracket, outermost first; the first is TOP.
        labels: how many open brackets have a label, TOP left out.
        used: how many words are in the tree.
    """

    def __init__(self, words: Sequence[Word]) -> None:
        self.words = list(words)
        self.repairs: Counter[str] = Counter()
        self.open: list[tuple[str, list[Node | Word]]] = [(TOP, [])]
        self.labels: Counter[str] = Counter()
        self.used = 0

    def run(self, symbols: Sequence[str]) -> tuple[Node, Counter[str]]:
        for symbol in symbols:
            label = symbol[1:]
            if symbol == WORD:
                self._word(self.used + 1)
            elif symbol.startswith("#") and label.isdecimal() and len(label) < _TOO_MANY_DIGITS:
                self._word(int(label))
            elif symbol.startswith("(") and label:
                self._open(label, [])
            elif not symbol.startswith(")") or not label:
                self.repairs["unknown"] += 1
            elif len(self.open) == 1:
                self.repairs["unopened"] += 1
            else:
                self._close_labelled(label)
        left = self.words[self.used :]
        self.repairs["missing words"] += len(left)
        if left:
            self._reopen()
            self.open[-1][1].extend(left)
        while len(self.open) > 1:
            self.repairs["unclosed"] += 1
            self._close()
        return Node(TOP, tuple(self.open[0][1])), +self.repairs

    def _close_labelled(self, label: str) -> None:
        if not self.labels[label]:
            self.repairs["mismatched"] += 1
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
            self.repairs["unclosed"] -= 1  # `run` will close it again and count it, but the sequence had closed it
