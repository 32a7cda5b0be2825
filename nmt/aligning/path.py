"""The best alignment of the sentences of two texts: a dynamic program over beads, in a band that widens as needed."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

# The most sentences of a side in a bead.
MOST = 4
# Within so many sentences of the edge of the band, the path counts as touching it.
_MARGIN = 4
# Scores of the beads that end behind source sentence i and behind each target sentence of a range: `scores(i, j, k)`
# has at [a - 1, b - 1, l] the bead of `a` source sentences and the `b` target sentences before number j + l.
Scores = Callable[[int, int, int], np.ndarray]


class Bead(NamedTuple):
    """Sentences that belong together. One of the spans may be empty."""

    source: range
    target: range
    score: float = 0.0


def best_path(scores: Scores, unpaired: tuple[np.ndarray, np.ndarray], centre: np.ndarray, half: int) -> list[Bead]:
    """Returns the beads, in order, whose scores have the largest sum.

    Args:
        scores: of beads with one to four sentences of each side.
        unpaired: the score of each source and target sentence as one without a partner.
        centre: for each number of source sentences, about how many target sentences belong to them.
        half: the number of target sentences on both sides of the centre that the search begins with.
    """
    targets = len(unpaired[1])
    halves = np.full(len(centre), half)
    while True:
        low = np.minimum.accumulate(np.clip(np.r_[0, centre[:-1]] - halves, 0, targets)[::-1])[::-1]
        high = np.maximum.accumulate(np.clip(np.r_[centre[1:], targets] + halves, 0, targets))
        low[0], high[-1] = 0, targets
        beads = _search(scores, *unpaired, low, high)
        rows, columns = ends_of(beads)
        near = ((columns - low[rows] < _MARGIN) & (low[rows] > 0)) | (
            (high[rows] - columns < _MARGIN) & (high[rows] < targets)
        )
        if not near.any():
            return beads
        for row in np.unique(rows[near]).tolist():
            around = slice(max(0, row - 2 * halves[row]), row + 2 * halves[row])
            halves[around] = np.maximum(halves[around], 2 * halves[row])


def ends_of(beads: Sequence[Bead]) -> np.ndarray:
    """Returns the numbers of source and target sentences before each bead, and in all; int64, [2, beads + 1]."""
    return np.array([(0, 0), *((source.stop, target.stop) for source, target, _ in beads)]).T


def _search(
    scores: Scores, source_alone: np.ndarray, target_alone: np.ndarray, low: np.ndarray, high: np.ndarray
) -> list[Bead]:
    """Returns the best beads among those between column low[i] and high[i] of row i."""
    rows, columns = len(source_alone), len(target_alone)
    skipped = np.r_[0.0, np.cumsum(target_alone)]
    best = np.full((MOST + 1, columns + 1 + MOST), -np.inf)  # of the last rows, by row modulo MOST + 1
    best[0, MOST] = 0
    # Of each row: (MOST + 1) * a + b of the best bead that ends in each column, and the score of the best path there.
    steps, values = list[np.ndarray](), list[np.ndarray]()
    for i in range(rows + 1):
        j, k = int(low[i]), int(high[i])
        row = best[i % (MOST + 1)]
        value = row[MOST + j : MOST + k + 1].copy()
        step = np.zeros(len(value), np.uint8)
        if i:
            row[:] = -np.inf
            value = best[(i - 1) % (MOST + 1), MOST + j : MOST + k + 1] + source_alone[i - 1]
            step[:] = MOST + 1
            beads = scores(i, j, k)
            for a in range(1, min(i, MOST) + 1):
                before = best[(i - a) % (MOST + 1)]
                for b in range(1, MOST + 1):
                    new = before[MOST + j - b : MOST + k + 1 - b] + beads[a - 1, b - 1]
                    step[new > value] = (MOST + 1) * a + b
                    np.maximum(value, new, out=value)
        relative = value - skipped[j : k + 1]
        reached = np.maximum.accumulate(relative)
        step[reached > relative] = 1
        row[MOST + j : MOST + k + 1] = value = reached + skipped[j : k + 1]
        steps.append(step)
        values.append(value)
    path = list[Bead]()
    i, j = rows, columns
    while i or j:
        a, b = divmod(int(steps[i][j - low[i]]), MOST + 1)
        before, behind = values[i - a][j - b - low[i - a]], values[i][j - low[i]]
        path.append(Bead(range(i - a, i), range(j - b, j), float(behind - before)))
        i, j = i - a, j - b
    return path[::-1]
