"""The device and the precision in which a model computes, and what happens when memory runs out."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from nmt import console
from nmt.config import RuntimeConfig
from nmt.errors import NmtError
from nmt.resources import keep_freed_memory, process_peak_mib, usable_cores

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


@dataclass(frozen=True)
class Runtime:
    """The device and the precision in which a model computes.

    Attributes:
        device: the device of all tensors.
        dtype: the type in which matrix products are computed. Translation on a GPU converts the weights to
            it, and training converts frozen embeddings.
    """

    device: torch.device
    dtype: torch.dtype

    def autocast(self) -> AbstractContextManager[object]:
        """Returns a context in which matrix products are computed in the chosen precision."""
        return nullcontext() if self.dtype == torch.float32 else torch.autocast(self.device.type, dtype=self.dtype)

    def wait(self) -> None:
        """Waits until the device has finished its work."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    @property
    def peak_memory_mib(self) -> float:
        """The peak memory so far, in MiB: of the GPU if there is one, otherwise of this process."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_reserved(self.device) / 2**20
        return process_peak_mib()

    @property
    def name(self) -> str:
        """The name of the device: `NVIDIA H200`, or `CPU, 2 threads`."""
        if self.device.type == "cuda":
            return torch.cuda.get_device_name(self.device)
        return f"CPU, {console.counted(torch.get_num_threads(), 'thread')}"

    @property
    def precision(self) -> str:
        """`bf16`, `fp16` or `fp32`."""
        return next(name for name, dtype in _DTYPES.items() if dtype == self.dtype)


def set_up(config: RuntimeConfig, process: int = 0, *, shares_gpus: bool = False) -> Runtime:
    """Prepares this process for the device that the options choose on this machine; returns the runtime.

    On a CPU, it limits torch's threads and makes malloc keep memory. On a GPU, it makes GPU number `process` the
    current one; with `shares_gpus`, the numbers start again behind the last GPU. It warns if the precision is emulated.
    """
    if device_type(config) == "cpu":
        keep_freed_memory()
        if "OMP_NUM_THREADS" not in os.environ and usable_cores() < torch.get_num_threads():
            torch.set_num_threads(usable_cores())
        device = torch.device("cpu")
    elif process >= (gpus := _gpus()) and not shares_gpus:
        raise NmtError(f"process {process} has no GPU, because torch sees only {gpus}; start at most {gpus} processes")
    else:
        device = torch.device("cuda", process % gpus)
        torch.cuda.set_device(device)
        # cuDNN prepares its attention for every new shape, which takes longer than the attention.
        torch.backends.cuda.enable_cudnn_sdp(False)
    runtime = Runtime(device, _DTYPES[precision_of(config)])
    if process == 0 and not is_native(runtime.dtype, device.type):
        console.warn_once(f"--precision {runtime.precision} is emulated here and may be slow; leave out --precision")
    return runtime


def precision_of(config: RuntimeConfig) -> str:
    """Returns `bf16`, `fp16` or `fp32`, the precision that the options choose on this machine. Changes no settings."""
    if config.precision != "auto":
        return config.precision
    kind = device_type(config)
    candidates = ("bf16", "fp16", "fp32") if kind == "cuda" else ("bf16", "fp32")
    return next(name for name in candidates if is_native(_DTYPES[name], kind))


def device_type(config: RuntimeConfig) -> str:
    """Returns `cuda` or `cpu`, the device that the options choose on this machine. Does not touch the device."""
    if config.device == "cuda" and not _gpus():
        raise NmtError(
            "--device is cuda, but torch sees no GPU here; give --device cpu, or install the build "
            "of torch for the GPU and its driver (docs/install.md#a-gpu)"
        )
    return "cuda" if config.device != "cpu" and _gpus() else "cpu"


def product_dtype(x: Tensor) -> torch.dtype:
    """Returns the dtype of matrix products: autocast's dtype if it is enabled, otherwise the tensor's own."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


class _WithoutRandomWeights(TorchFunctionMode):
    """Skips `nn.init.normal_`, for which torch loads its compiler on the meta device. There are no numbers to draw."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        return kwargs["tensor"] if func is nn.init.normal_ else func(*args, **kwargs)


@contextmanager
def without_memory() -> Iterator[None]:
    """Gives modules that are made in the block weights on torch's meta device, which have shapes but no numbers."""
    with torch.device("meta"), _WithoutRandomWeights():
        yield


def moved(value: Any, device: torch.device) -> Any:
    """Returns a tensor, or a dataclass such as a batch with its tensors, on the device.

    A GPU copies from pinned memory without making the CPU wait. Values of other types stay as they are.
    """
    if isinstance(value, Tensor):
        return value.to(device) if device.type == "cpu" else value.pin_memory().to(device, non_blocking=True)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: moved(getattr(value, field.name), device) for field in fields(value)})
    return value


def _gpus() -> int:
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def is_native(dtype: torch.dtype, device_type: str) -> bool:
    """Returns whether `cpu` or `cuda` has instructions for products of this type; emulated ones are far slower.

    ATEN_CPU_CAPABILITY, which limits the instructions that torch uses, counts as a limit of the processor.
    """
    if dtype == torch.float32:
        return True
    if device_type == "cuda":
        if dtype == torch.bfloat16:
            return torch.cuda.is_bf16_supported(including_emulation=False)
        return torch.cuda.get_device_capability(device_type) >= (7, 0)  # V100, the first with fast products in fp16
    has_products = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return dtype == torch.bfloat16 and has_products and torch.backends.cpu.get_cpu_capability().startswith("AVX512")


# When memory runs out

_T = TypeVar("_T")
_R = TypeVar("_R")

# Parts of the errors when memory runs out: of torch's allocator, oneDNN and C++ on a CPU, of CUDA and cuBLAS on a GPU.
_OUT_OF_CPU_MEMORY = "can't allocate memory", "could not create a primitive", "std::bad_alloc"
_OUT_OF_GPU_MEMORY = "CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED"


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
        isinstance(error, RuntimeError)
        and any(sign in str(error) for sign in (*_OUT_OF_CPU_MEMORY, *_OUT_OF_GPU_MEMORY))
    )
