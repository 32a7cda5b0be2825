"""Measures how fast this machine multiplies matrices, which is the limit for the FLOP/s of training."""

import time

import torch

from nmt.model.device import Runtime

_WARM_UPS = 2
_TRIALS = 5


def product_flops(runtime: Runtime) -> float:
    """Returns the FLOP/s of large square matrix products in the runtime's precision, the best of a few trials."""
    size = 8192 if runtime.device.type == "cuda" else 2048
    dtype = runtime.dtype
    a, b = (torch.randn(size, size, device=runtime.device).to(dtype) for _ in range(2))
    seconds = []
    for _ in range(_WARM_UPS + _TRIALS):
        started = time.perf_counter()
        torch.mm(a, b)
        runtime.wait()
        seconds.append(time.perf_counter() - started)
    return 2 * size**3 / min(seconds[_WARM_UPS:])
