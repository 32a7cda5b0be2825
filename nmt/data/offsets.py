"""Checks of the offsets that cut a side's tokens into sentences."""

import numpy as np

# Offsets checked at a time, so that the check of 36 million takes 5 MB of memory.
_AT_ONCE = 1 << 18


def offsets_problem(offsets: np.ndarray, tokens: int, max_length: int | None) -> str | None:
    """Returns what is wrong with offsets [sentences + 1] into so many `tokens`, in words; None if nothing is.

    Args:
        max_length: pieces that no sentence may have more of; None for any number.
    """
    if offsets[0] != 0:
        return f"sentence 1 starts at token {offsets[0]:,} instead of 0"
    if offsets[-1] != tokens:
        return f"the last sentence ends at token {offsets[-1]:,} instead of {tokens:,}"
    for first in range(0, len(offsets) - 1, _AT_ONCE):
        block = offsets[first : first + _AT_ONCE + 1]
        falling = block[1:] < block[:-1]  # before lengths are computed, which could overflow
        if falling.any():
            at = int(falling.argmax())
            return f"sentence {first + at + 1:,} starts at token {block[at]:,} and ends at token {block[at + 1]:,}"
        if max_length is not None and (lengths := np.diff(block)).max() > max_length:
            at = int(lengths.argmax())
            return f"sentence {first + at + 1:,} has {lengths[at]:,} pieces instead of at most {max_length:,}"
    return None
