"""The dynamic program finds what a full table finds, also where the band begins in the wrong place."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.aligning.path import MOST, best_path


def best_total(scores: np.ndarray, alone: tuple[np.ndarray, np.ndarray]) -> float:
    """Returns the score of the best alignment, by recursion over all of them."""

    @cache
    def total(i: int, j: int) -> float:
        if i == j == 0:
            return 0.0
        ways = [total(i - 1, j) + alone[0][i - 1]] if i else []
        ways += [total(i, j - 1) + alone[1][j - 1]] if j else []
        numbers = range(1, MOST + 1)
        pairs = [(a, b) for a in numbers for b in numbers if a <= i and b <= j]
        return float(max([*ways, *(total(i - a, j - b) + scores[i, j, a - 1, b - 1] for a, b in pairs)]))

    return total(len(alone[0]), len(alone[1]))


@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 12), st.integers(0, 10_000))
def test_the_best_alignment_is_found(rows: int, columns: int, half: int, seed: int) -> None:
    numbers = np.random.default_rng(seed)
    scores = numbers.normal(size=(rows + 1, columns + 1, MOST, MOST))
    alone = numbers.normal(-0.5, size=rows), numbers.normal(-0.5, size=columns)
    centre = np.linspace(0, columns, rows + 1).astype(int)
    is_whole = half >= columns
    beads = best_path(lambda i, j, k: scores[i, j : k + 1].transpose(1, 2, 0), alone, centre, half)
    assert [i for bead in beads for i in bead.source] == list(range(rows))
    assert [j for bead in beads for j in bead.target] == list(range(columns))
    for source, target, score in beads:
        is_paired = bool(source) and bool(target)
        expected = scores[source.stop, target.stop, len(source) - 1, len(target) - 1] if is_paired else (
            alone[0][source.start] if source else sum(alone[1][j] for j in target)
        )  # fmt: skip
        assert score == pytest.approx(expected)
    total = sum(bead.score for bead in beads)
    assert total == pytest.approx(best_total(scores, alone)) if is_whole else total <= best_total(scores, alone) + 1e-9


def test_the_band_widens_where_a_chapter_is_missing() -> None:
    rows, missing = 60, range(10, 310)
    columns = rows + len(missing)
    partner = [j for j in range(columns) if j not in missing]

    def scores(i: int, j: int, k: int) -> np.ndarray:
        beads = np.full((MOST, MOST, k - j + 1), -50.0)
        if j <= partner[i - 1] + 1 <= k:
            beads[0, 0, partner[i - 1] + 1 - j] = 5
        return beads

    alone = np.full(rows, -1.0), np.full(columns, -1.0)
    beads = best_path(scores, alone, np.arange(rows + 1), 10)
    assert [(bead.source[0], bead.target[0]) for bead in beads if bead.source and bead.target] == list(
        enumerate(partner)
    )
