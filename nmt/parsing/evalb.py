"""Labelled bracket scores as EVALB computes them with COLLINS.prm (Sekine and Collins 1997).

Words with the tags -NONE- , : `` '' and . are deleted. Brackets with the label TOP and brackets without words do
not count. A label ends before its first - or =, and PRT is equivalent to ADVP.
"""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from nmt.parsing.trees import EMPTY, Node, Word, walk, words_of

_DELETED = {"TOP", EMPTY, ",", ":", "``", "''", "."}
# Sentences of at most this many words, not counting empty elements, are also scored separately.
SHORT = 40


# A label, and the bracket around the words from a start up to but not including an end.
Bracket = tuple[str, int, int]


class Counts(NamedTuple):
    """Counts over sentences. Sentences with errors and skipped sentences contribute to no other count.

    Attributes:
        sentences: all sentences.
        errors: sentences whose words differ from the words of the gold tree, or whose brackets are not balanced.
        skipped: sentences whose test tree has no words.
        gold, test, matched: brackets of the gold trees, of the test trees, and of both.
        exact: sentences whose test brackets equal the gold brackets.
        crossing: test brackets that cross a gold bracket.
        no_crossing, few_crossing: sentences with no such bracket, and with at most two.
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

    @property
    def valid(self) -> int:
        """The number of sentences that are scored."""
        return self.sentences - self.errors - self.skipped

    @property
    def recall(self) -> float:
        """The percentage of gold brackets that are matched."""
        return 100 * self.matched / self.gold if self.gold else 0.0

    @property
    def precision(self) -> float:
        """The percentage of test brackets that are matched."""
        return 100 * self.matched / self.test if self.test else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall, in per cent."""
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0

    def summary(self) -> dict[str, float]:
        """Returns the figures that EVALB prints, rounded as by EVALB; shares are percentages of valid sentences."""
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


def evalb(pairs: Iterable[tuple[Node, Node | None]]) -> tuple[Counts, Counts]:
    """Returns counts over all pairs, and over those of at most SHORT words; None is an unbalanced test tree."""
    all_counts, short_counts = list[Counts](), list[Counts]()
    for gold, test in pairs:
        all_counts.append(sentence_counts(gold, test))
        if sum(word.tag != EMPTY for word in words_of(gold)) <= SHORT:
            short_counts.append(all_counts[-1])
    everything, short = (Counts(*map(sum, zip(*counts, strict=True))) for counts in (all_counts, short_counts))
    return everything, short


def sentence_counts(gold: Node, test: Node | None) -> Counts:
    """Returns the counts for a single sentence. See `evalb`."""
    if test is None:
        return Counts(sentences=1, errors=1)
    gold_words, gold_brackets = _words_and_brackets(gold)
    test_words, test_brackets = _words_and_brackets(test)
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
    """Returns how many test brackets cross a gold bracket in a sentence of `length` words.

    If a test bracket crosses a gold bracket that is open at one of its ends, it also crosses the innermost gold
    bracket at that end. So each test bracket is compared only with the innermost gold brackets at its two ends.
    """
    innermost = [(-1, length + 1)] * (length + 1)  # start and end of the innermost bracket at each gap between words
    for _, start, end in sorted(gold, key=lambda bracket: bracket[1] - bracket[2]):  # outer brackets first
        innermost[start + 1 : end] = [(start, end)] * (end - start - 1)
    return sum(innermost[end][0] > start or innermost[start][1] < end for _, start, end in test)


def _words_and_brackets(tree: Node) -> tuple[list[str], list[Bracket]]:
    """Returns the words that are not deleted, and the brackets that count."""
    words: list[str] = []
    brackets: list[Bracket] = []
    starts: list[int] = []
    for item, opens in walk(tree):
        if isinstance(item, Word):
            if item.tag not in _DELETED:
                words.append(item.text)
        elif opens:
            starts.append(len(words))
        else:
            start = starts.pop()
            # EVALB cuts every label at its first - or =; `plain_label` in trees.py keeps labels such as -LRB- whole.
            label = item.label.split("-")[0].split("=")[0]
            if len(words) > start and label not in _DELETED:
                brackets.append(("ADVP" if label == "PRT" else label, start, len(words)))
    return words, brackets
