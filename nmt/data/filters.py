"""Filters of training pairs: which pairs `nmt preprocess` drops, and why."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from nmt.config import DataConfig


def filter_pairs(
    source: Sequence[Sequence[int]], target: Sequence[Sequence[int]], max_length: float, max_ratio: float
) -> tuple[list[int], Counter[str]]:
    """Returns the indices of the pairs to keep, and the number of dropped pairs by the first reason that applies."""
    lengths = np.array([list(map(len, source)), list(map(len, target))])
    shorter, longer = lengths.min(axis=0), lengths.max(axis=0)
    empty = shorter == 0
    too_long = ~empty & (longer > max_length)
    uneven = ~empty & ~too_long & (longer > max_ratio * shorter)
    reasons = {"empty": empty, "too_long": too_long, "uneven": uneven}
    dropped = Counter({reason: int(mask.sum()) for reason, mask in reasons.items()})
    return np.flatnonzero(~(empty | too_long | uneven)).tolist(), dropped


def dropped_in_words(dropped: Counter[str], config: DataConfig) -> str:
    """Returns the numbers of dropped pairs in words."""
    return (
        f"{dropped['empty']:,} with an empty side, "
        f"{dropped['too_long']:,} longer than --max-length {config.max_length}, "
        f"{dropped['uneven']:,} beyond --max-length-ratio {config.max_length_ratio:g}"
    )
