"""Minimum Bayes risk (Kumar and Byrne 2004): of several translations of a text, the one that is most like all of them.

Likeness is sacrebleu's chrF of sentences (Popović 2015) with its default settings. T texts, N n-grams.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from nmt.translate.units import Translation

_ORDER, _BETA = 6, 2  # of chrF: the longest n-grams, and how much recall weighs


def least_risk(translations: Sequence[Translation]) -> Translation:
    """Returns the translation with the highest mean chrF when all are taken as references; this is its `utility`."""
    utilities_T = mean_chrf([translation.text for translation in translations])
    best = int(utilities_T.argmax())
    return translations[best]._replace(utility=float(utilities_T[best]))


def mean_chrf(texts: Sequence[str]) -> np.ndarray:
    """Returns the mean chrF of each text against all of them, itself included, from 0 to 1; T."""
    stripped = ["".join(text.split()) for text in texts]
    counts = Counter(stripped)  # equal texts are compared once
    precisions_TT, recalls_TT, orders_TT = np.zeros((3, len(counts), len(counts)))
    for matches_TT in _matches(list(counts)):
        sizes_T = matches_TT.diagonal()
        are_counted_TT = (sizes_T[:, None] > 0) & (sizes_T > 0)
        precisions_TT += matches_TT / np.maximum(sizes_T[:, None], 1)
        recalls_TT += matches_TT / np.maximum(sizes_T, 1)
        orders_TT += are_counted_TT
    weighted_TT = _BETA**2 * precisions_TT + recalls_TT
    products_TT = (1 + _BETA**2) * precisions_TT * recalls_TT / np.maximum(orders_TT, 1)
    scores_TT = products_TT / np.where(weighted_TT > 0, weighted_TT, 1)
    means = scores_TT @ np.array([*counts.values()]) / len(texts)
    return np.array([dict(zip(counts, means, strict=True))[text] for text in stripped])


def _matches(texts: Sequence[str]) -> Iterator[np.ndarray]:
    """Yields how many n-grams of characters each two texts have in common, for every length of n-grams; TT."""
    characters = np.array([ord(character) for text in texts for character in text], np.int64)
    rows = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
    left = np.array([n for text in texts for n in range(len(text), 0, -1)])  # characters to the end of the text
    grams = np.zeros_like(characters)  # numbers the n-gram that begins at each character
    for order in range(1, _ORDER + 1):
        starts = np.flatnonzero(left >= order)
        longer = grams[starts] << 21 | characters[starts + order - 1]  # a character has 21 bits
        distinct, grams[starts] = np.unique(longer, return_inverse=True)
        size = len(texts), len(distinct)
        counts_TN = np.bincount(rows[starts] * size[1] + grams[starts], minlength=size[0] * size[1]).reshape(size)
        matches_TT = np.zeros((len(texts), len(texts)), np.float32)
        shared_TN = counts_TN
        # The matches of an n-gram are the smaller count: 1 for its first occurrence in both texts, 1 for the second, …
        while (shared_TN := shared_TN[:, (shared_TN > 0).sum(0) > 1]).size:
            has_TN = (shared_TN > 0).astype(np.float32)
            matches_TT += has_TN @ has_TN.T
            shared_TN = shared_TN - 1
        np.fill_diagonal(matches_TT, counts_TN.sum(1))
        yield matches_TT
