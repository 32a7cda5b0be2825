"""Where a model runs and in which precision."""

import ctypes
import sys
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch

from nmt.config import RuntimeConfig
from nmt.errors import NmtError

# <malloc.h>: M_TRIM_THRESHOLD and M_MMAP_THRESHOLD.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3


@dataclass(frozen=True)
class Runtime:
    """Attributes:
    device: where tensors live.
    bf16: whether matrix products are computed in bfloat16; weights stay fp32.
    """

    device: torch.device
    bf16: bool

    def autocast(self) -> AbstractContextManager[object]:
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.bf16)

    @property
    def name(self) -> str:
        """`NVIDIA H200`, or `CPU, 2 threads`."""
        if self.device.type == "cuda":
            return torch.cuda.get_device_name(self.device)
        return f"CPU, {torch.get_num_threads()} threads"

    @property
    def precision(self) -> str:
        return "bf16" if self.bf16 else "fp32"


def resolve(config: RuntimeConfig) -> Runtime:
    """Settles what `auto` means on this machine.

    Raises:
        NmtError: --device cuda without a GPU that torch can use.
    """
    if config.device == "cuda" and not torch.cuda.is_available():
        raise NmtError("--device cuda was asked for, but torch sees no GPU here; use --device cpu")
    name = ("cuda" if torch.cuda.is_available() else "cpu") if config.device == "auto" else config.device
    if name == "cpu":
        _keep_freed_memory()
    bf16 = _has_bf16(name) if config.precision == "auto" else config.precision == "bf16"
    return Runtime(torch.device(name), bf16)


def _has_bf16(device: str) -> bool:
    if device == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def _keep_freed_memory() -> None:
    """Has glibc keep large freed blocks for the next update, instead of returning their pages to the system.

    Without this a good part of training time on a CPU goes into faulting them in anew.
    """
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # absent in other C libraries
        # Some versions take no threshold above 32 MiB, and then one below is better than none.
        if mallopt and (mallopt(_MMAP_THRESHOLD, 2**30) or mallopt(_MMAP_THRESHOLD, 2**25)):
            mallopt(_TRIM_THRESHOLD, 2**31 - 1)
