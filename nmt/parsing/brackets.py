"""Labelled bracket scores as EVALB gives them with its COLLINS.prm (Sekine and Collins 1997).

Words with the tags -NONE- , : `` '' and . are deleted with their brackets, TOP is not counted, nor is a bracket without
words; what follows - or = in a label is ignored, and ADVP is equivalent to PRT.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import NamedTuple

from nmt.parsing.trees import Node, Word, walk, words_of

_DELETED = {"TOP", "-NONE-", ",", ":", "``", "''", "."}
_SAME = {"PRT": "ADVP"}
# Sentences of at most so many words, without empty elements, are also scored by themselves.
SHORT = 40


class Bracket(NamedTuple):
    label: str
    start: int
    end: int


@dataclass
class Counts:
    """Sums over sentences; those with an error count as sentences and errors and nowhere else.

    Attributes:
        errors: sentences whose words are not those of the gold tree; `skipped` those without any.
        gold, test, matched: brackets.
        exact: sentences with all brackets right.
        crossing: test brackets that cross one of the gold tree; `no_crossing` sentences without, `few_crossing` with
            two at most.
    """

    sentences: int = 0
    errors: int = 0
    skipped: int = 0
    gold: int = 0
    test: int = 0
    matched: int = 0
    exact: int = 0
    crossing: int = 0
    no_crossing: int = 0
    few_crossing: int = 0

    def add(self, other: "Counts") -> None:
        for f in fields(self):
            setattr(self, f.name, getattr(self, f.name) + getattr(other, f.name))

    @property
    def valid(self) -> int:
        return self.sentences - self.errors - self.skipped

    @property
    def recall(self) -> float:
        return 100 * self.matched / self.gold if self.gold else 0.0

    @property
    def precision(self) -> float:
        return 100 * self.matched / self.test if self.test else 0.0

    @property
    def f1(self) -> float:
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0

    def summary(self) -> dict[str, float]:
        """The figures EVALB prints, rounded as there; shares are of the valid sentences, in per cent."""
        valid = self.valid or 1
        figures = {
            "f1": self.f1,
            "precision": self.precision,
            "recall": self.recall,
            "exact_match": 100 * self.exact / valid,
            "average_crossing": self.crossing / valid,
            "no_crossing": 100 * self.no_crossing / valid,
            "two_or_less_crossing": 100 * self.few_crossing / valid,
        }
        counts = {"sentences": self.sentences, "errors": self.errors, "skipped": self.skipped}
        return {name: round(value, 2) for name, value in figures.items()} | counts


@dataclass
class Evalb:
    """Counts over all sentences, and over those of at most `SHORT` words."""

    all: Counts = field(default_factory=Counts)
    short: Counts = field(default_factory=Counts)


def evalb(pairs: Iterable[tuple[Node, Node]]) -> Evalb:
    """Scores of pairs of a gold tree and a test tree."""
    found = Evalb()
    for gold, test in pairs:
        counts = sentence_counts(gold, test)
        found.all.add(counts)
        if _length(gold) <= SHORT:
            found.short.add(counts)
    return found


def sentence_counts(gold: Node, test: Node) -> Counts:
    gold_words, gold_brackets = _read(gold)
    test_words, test_brackets = _read(test)
    if not test_words:
        return Counts(sentences=1, skipped=1)
    if gold_words != test_words:
        return Counts(sentences=1, errors=1)
    matched = (Counter(gold_brackets) & Counter(test_brackets)).total()
    crossing = _crossing(gold_brackets, test_brackets, len(gold_words))
    return Counts(
        sentences=1,
        gold=len(gold_brackets),
        test=len(test_brackets),
        matched=matched,
        exact=int(matched == len(gold_brackets) == len(test_brackets)),
        crossing=crossing,
        no_crossing=int(crossing == 0),
        few_crossing=int(crossing <= 2),
    )


def _crossing(gold: list[Bracket], test: list[Bracket], length: int) -> int:
    """Returns how many test brackets cross a gold bracket.

    If a bracket crosses any that is open at one of its ends, it crosses the innermost of them. So the time grows with
    the number of brackets, not with its square.
    """
    innermost = _innermost(gold, length)
    return sum(innermost[b.end][0] > b.start or innermost[b.start][1] < b.end for b in test)


def _innermost(brackets: list[Bracket], length: int) -> list[tuple[int, int]]:
    """Returns start and end of the innermost bracket that is open at each place, from before the first word on."""
    whole = (-1, length + 1)
    # Outer brackets before inner ones, from the end of the list.
    waiting = sorted({(b.start, b.end) for b in brackets}, key=lambda span: (-span[0], span[1]))
    around, found = [whole], []
    for place in range(length + 1):
        while around[-1][1] <= place:
            around.pop()
        found.append(around[-1])
        while waiting and waiting[-1][0] == place:
            around.append(waiting.pop())
    return found


def _read(tree: Node) -> tuple[list[str], list[Bracket]]:
    """The words that are not deleted, and the brackets that count."""
    words: list[str] = []
    brackets: list[Bracket] = []
    starts: list[int] = []
    for item, before in walk(tree):
        if isinstance(item, Word):
            if item.tag not in _DELETED:
                words.append(item.text)
        elif before:
            starts.append(len(words))
        else:
            start, label = starts.pop(), item.label.split("-")[0].split("=")[0]
            if len(words) > start and label not in _DELETED:
                brackets.append(Bracket(_SAME.get(label, label), start, len(words)))
    return words, brackets


def _length(tree: Node) -> int:
    return sum(word.tag != "-NONE-" for word in words_of(tree))
