"""Aligns the sentences of two texts in rounds, each of which learns words from the alignment before."""

from collections.abc import Callable, Sequence

import numpy as np

from nmt.aligning.costs import Comparison, Lexicon, Text, outline
from nmt.aligning.path import Bead, best_path, ends_of

_ROUNDS = 2
# In the first search and in later ones, how far the search goes from where the path probably is, in sentences.
_FAR, _NEAR = 40, 15


def align(
    sources: Sequence[str], targets: Sequence[str], embed: Callable[[Sequence[str]], np.ndarray] | None = None
) -> list[Bead]:
    """Returns the beads of the sentences of two texts, in order, with scores between 0 and 1.

    Args:
        embed: an `Embedder`, if vectors are compared, too.
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
