"""Aligns the sentences of two texts in rounds, each of which learns words from the alignment before."""

from collections.abc import Sequence

import numpy as np

from nmt.aligning.costs import Comparison, Lexicon, Text, outline
from nmt.aligning.path import Bead, best_path

_ROUNDS = 2
# How far the first search and the later ones go from what is known, in sentences.
_FAR, _NEAR = 40, 15


def align(sources: Sequence[str], targets: Sequence[str]) -> list[Bead]:
    """Returns the beads of the sentences of two texts, in order."""
    source, target = Text(sources), Text(targets)
    centre, beads = outline(source, target), list[Bead]()
    for _ in range(_ROUNDS):
        comparison = Comparison(source, target, Lexicon(source, target, beads))
        beads = best_path(comparison.scores, comparison.unpaired, centre, _NEAR if beads else _FAR)
        rows, columns = (np.array([0, *(bead[side].stop for bead in beads)]) for side in (0, 1))
        centre = np.interp(np.arange(len(source) + 1), rows, columns).astype(int)
    return beads
