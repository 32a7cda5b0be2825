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
    """Sentences that belong together: those from each start up to the stop. One of the sides may be empty."""

    source_start: int
    source_stop: int
    target_start: int
    target_stop: int
    score: float = 0.0

    @property
    def is_pair(self) -> bool:
        """Whether both sides have sentences."""
        return self.source_start < self.source_stop and self.target_start < self.target_stop


def best_path(scores: Scores, unpaired: float, targets: int, centre: np.ndarray, half: int) -> list[Bead]:
    """Returns the beads, in order, whose scores have the largest sum.

    Args:
        scores: of beads with one to four sentences of each side.
        unpaired: the score of a sentence without a partner.
        targets: the number of target sentences.
        centre: for each number of source sentences, about how many target sentences belong to them.
        half: the number of target sentences on both sides of the centre that the search begins with.
    """
    halves = np.full(len(centre), half)
    while True:
        low = np.minimum.accumulate(np.clip(np.r_[0, centre[:-1]] - halves, 0, targets)[::-1])[::-1]
        high = np.maximum.accumulate(np.clip(np.r_[centre[1:], targets] + halves, 0, targets))
        low[0], high[-1] = 0, targets
        beads = _search(scores, unpaired, low, high)
        rows, columns = ends_of(beads)
        near_low = (columns - low[rows] < _MARGIN) & (low[rows] > 0)
        near_high = (high[rows] - columns < _MARGIN) & (high[rows] < targets)
        near = np.unique(rows[near_low | near_high]).tolist()
        if not near:
            return beads
        doubled = 2 * halves
        for row in near:
            around = slice(max(0, row - doubled[row]), row + doubled[row])
            halves[around] = np.maximum(halves[around], doubled[row])


def ends_of(beads: Sequence[Bead]) -> np.ndarray:
    """Returns the numbers of source and target sentences before each bead, and in all; int64, [2, beads + 1]."""
    return np.array([(0, 0), *((bead.source_stop, bead.target_stop) for bead in beads)]).T


def _search(scores: Scores, unpaired: float, low: np.ndarray, high: np.ndarray) -> list[Bead]:
    """Returns the best beads among those between column low[i] and high[i] of row i."""
    rows, columns = len(low) - 1, int(high[-1])
    best = np.full((MOST + 1, columns + 1 + MOST), -np.inf)  # of the last rows, by row modulo MOST + 1
    # Of each row: (MOST + 1) * a + b of the best bead that ends in each column, and the score of the best path there.
    steps, totals = list[np.ndarray](), list[np.ndarray]()
    for i in range(rows + 1):
        j, k = int(low[i]), int(high[i])
        total = best[(i - 1) % (MOST + 1), MOST + j : MOST + k + 1] + unpaired
        step = np.full(len(total), MOST + 1, np.uint8)
        if i == 0:
            total[0] = 0
        beads = scores(i, j, k) if i else np.empty(0)
        for a in range(1, min(i, MOST) + 1):
            earlier_row = best[(i - a) % (MOST + 1)]
            for b in range(1, MOST + 1):
                new = earlier_row[MOST + j - b : MOST + k + 1 - b] + beads[a - 1, b - 1]
                step[new > total] = (MOST + 1) * a + b
                np.maximum(total, new, out=total)
        skipped = unpaired * np.arange(len(total))
        relative = total - skipped
        reached = np.maximum.accumulate(relative)
        step[reached > relative] = 1
        row = best[i % (MOST + 1)]
        row[:] = -np.inf
        row[MOST + j : MOST + k + 1] = total = reached + skipped
        steps.append(step)
        totals.append(total)
    path = list[Bead]()
    i, j = rows, columns
    while i or j:
        a, b = divmod(int(steps[i][j - low[i]]), MOST + 1)
        score = totals[i][j - low[i]] - totals[i - a][j - b - low[i - a]]
        path.append(Bead(i - a, i, j - b, j, float(score)))
        i, j = i - a, j - b
    return path[::-1]
