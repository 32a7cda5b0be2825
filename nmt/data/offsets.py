"""Checks the offsets that cut the tokens of one side of a split into sentences."""

import numpy as np

# The number of offsets checked at once. It bounds the memory: checking 36 million offsets takes 5 MB.
_AT_ONCE = 1 << 18


def offsets_problem(offsets: np.ndarray, tokens: int, max_length: int | None) -> str | None:
    """Returns, in words, the first problem with the offsets of a side, or None if there is none.

    Args:
        offsets: where each sentence starts, and where the last one ends; [sentences + 1].
        tokens: the number of tokens of the side.
        max_length: the largest number of pieces that a sentence may have; None for any number.
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
