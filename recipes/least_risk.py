"""Chooses translations by minimum Bayes risk (Kumar and Byrne 2004) with chrF (Popović 2015).

    python recipes/least_risk.py N FILE... > OUTPUT

Each FILE has N translations of each input line, as `nmt generate --samples N` writes them. Of those of all files, the
one is printed that has the highest mean chrF when all of them are taken as references.
"""

import sys
from collections import defaultdict

import numpy as np

from nmt.text.corpus import read_lines

ORDER, BETA = 6, 2  # of chrF2, which is sacrebleu's default


def ngram_counts(texts: list[str], order: int) -> np.ndarray:
    """Returns how often each n-gram of characters occurs in each text: shape (texts, n-grams)."""
    columns: dict[str, int] = defaultdict(lambda: len(columns))
    cells = [
        (row, columns[text[start : start + order]])
        for row, text in enumerate(texts)
        for start in range(len(text) - order + 1)
    ]
    counts = np.zeros((len(texts), max(len(columns), 1)), np.int32)
    if cells:
        np.add.at(counts, tuple(np.array(cells).T), 1)
    return counts


def mean_chrf(translations: list[str]) -> np.ndarray:
    """Returns the mean chrF of each translation against all of them, itself included: shape (translations,)."""
    texts = ["".join(translation.split()) for translation in translations]
    precisions, recalls, orders = (np.zeros((len(texts), len(texts))) for _ in range(3))
    for order in range(1, ORDER + 1):
        counts = ngram_counts(texts, order)
        matches = np.stack([np.minimum(row, counts).sum(1) for row in counts])  # (hypotheses, references)
        sizes = counts.sum(1)
        are_counted = (sizes[:, None] > 0) & (sizes > 0)
        precisions += are_counted * matches / np.maximum(sizes[:, None], 1)
        recalls += are_counted * matches / np.maximum(sizes, 1)
        orders += are_counted
    precision, recall = precisions / np.maximum(orders, 1), recalls / np.maximum(orders, 1)
    weighted = BETA**2 * precision + recall
    scores = (1 + BETA**2) * precision * recall / np.where(weighted > 0, weighted, 1)
    return scores.mean(1)


def main() -> None:
    samples = int(sys.argv[1])
    files = [list(read_lines(path)) for path in sys.argv[2:]]
    for start in range(0, len(files[0]), samples):
        translations = [line for lines in files for line in lines[start : start + samples]]
        print(translations[int(mean_chrf(translations).argmax())])


if __name__ == "__main__":
    main()
