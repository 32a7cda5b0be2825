"""The dynamic program finds what a full table finds, also where the band begins in the wrong place."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.aligning.path import MOST, best_path


def best_total(scores: np.ndarray, unpaired: float) -> float:
    """Returns the score of the best alignment, by recursion over all of them."""

    @cache
    def total(i: int, j: int) -> float:
        if i == j == 0:
            return 0.0
        ways = [total(i - 1, j) + unpaired] if i else []
        ways += [total(i, j - 1) + unpaired] if j else []
        sizes = range(1, MOST + 1)
        pairs = [(a, b) for a in sizes for b in sizes if a <= i and b <= j]
        return float(max([*ways, *(total(i - a, j - b) + scores[i, j, a - 1, b - 1] for a, b in pairs)]))

    return total(scores.shape[0] - 1, scores.shape[1] - 1)


@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 12), st.integers(0, 10_000))
def test_the_best_alignment_is_found(rows: int, columns: int, half: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    scores = draw.normal(size=(rows + 1, columns + 1, MOST, MOST))
    unpaired = float(draw.normal(-0.5))
    centre = np.linspace(0, columns, rows + 1).astype(int)
    is_whole = half >= columns
    beads = best_path(lambda i, j, k: scores[i, j : k + 1].transpose(1, 2, 0), unpaired, columns, centre, half)
    assert [i for bead in beads for i in range(*bead[:2])] == list(range(rows))
    assert [j for bead in beads for j in range(*bead[2:4])] == list(range(columns))
    for source_start, source_stop, target_start, target_stop, score in beads:
        a, b = source_stop - source_start, target_stop - target_start
        assert score == pytest.approx(scores[source_stop, target_stop, a - 1, b - 1] if a and b else unpaired * (a + b))
    total = sum(bead.score for bead in beads)
    assert (
        total == pytest.approx(best_total(scores, unpaired))
        if is_whole
        else total <= best_total(scores, unpaired) + 1e-9
    )


def test_the_band_widens_where_a_chapter_is_missing() -> None:
    rows, missing = 60, range(10, 310)
    columns = rows + len(missing)
    partner = [j for j in range(columns) if j not in missing]

    def scores(i: int, j: int, k: int) -> np.ndarray:
        beads = np.full((MOST, MOST, k - j + 1), -50.0)
        if j <= partner[i - 1] + 1 <= k:
            beads[0, 0, partner[i - 1] + 1 - j] = 5
        return beads

    beads = best_path(scores, -1.0, columns, np.arange(rows + 1), 10)
    assert [(bead.source_start, bead.target_start) for bead in beads if bead.is_pair] == list(enumerate(partner))
