"""What search needs of a model: one step, and a cache that follows the hypotheses."""

from collections.abc import Callable
from typing import Protocol, Self

from torch import Tensor

# Finished sentences leave the batch when they are this share of it, because leaving copies the cache of the others.
DONE_SHARE = 0.25


class Cache(Protocol):
    """What `step` keeps from one call to the next."""

    def select(self, parents_BW: Tensor, sentences_B: Tensor | None) -> Self:
        """Reorders the cache: new hypothesis w continues old hypothesis `parents_BW[b, w]`.

        Keeps only `sentences_B`, if given; B of `parents_BW` counts those.
        """


# (newest ids R, cache) -> (logits RV of the next token, cache).
Step = Callable[[Tensor, Cache], tuple[Tensor, Cache]]
