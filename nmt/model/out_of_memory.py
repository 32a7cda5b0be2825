"""What happens when memory runs out: whether an error says so, and work that is done in halves."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from nmt.errors import NmtError

_T = TypeVar("_T")
_R = TypeVar("_R")

# Parts of the errors when memory runs out: of torch's allocator, oneDNN and C++ on a CPU, of CUDA and cuBLAS on a GPU.
_OUT_OF_MEMORY = (
    "can't allocate memory",
    "could not create a primitive",
    "std::bad_alloc",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
)


def in_halves(
    work: Callable[[Sequence[_T]], list[_R]],
    items: Sequence[_T],
    too_large: Callable[[_T], NmtError],
    halved: Callable[[int], None] = lambda _: None,
) -> list[_R]:
    """Returns `work(items)`, a result for each item. If memory runs out, works on each half of the items in turn.

    Args:
        too_large: makes the error to raise if memory runs out for a single item.
        halved: called with the number of items that were too many.
    """
    try:
        return work(items)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        if len(items) == 1:
            raise too_large(items[0]) from error
    # Outside the handler, because the error keeps the tensors of the failed attempt alive.
    halved(len(items))
    half = len(items) // 2
    return in_halves(work, items[:half], too_large, halved) + in_halves(work, items[half:], too_large, halved)


def is_out_of_memory(error: BaseException) -> bool:
    """Returns whether memory ran out, on a GPU or on a CPU. The error may be a plain RuntimeError."""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or (
        isinstance(error, RuntimeError) and any(sign in str(error) for sign in _OUT_OF_MEMORY)
    )
