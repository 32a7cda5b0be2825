"""Reads tensors and options from files that torch.save wrote for other toolkits, without running code from them.

There are two formats: a zip archive, and before torch 1.6 several pickles with the numbers behind them. All sizes are
compared with the size of the file before memory is allocated.
"""

import io
import math
import os
import sys
import zipfile
from io import BufferedReader
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt.checkpoint_file import data_start, uncompressed_entries
from nmt.errors import NmtError
from nmt.exchange.files import opened
from nmt.exchange.torch_pickle import ForeignMachine, Storage, Stored
from nmt.model.runtime import is_out_of_memory

_DTYPES = {
    "Float": torch.float32,
    "Half": torch.float16,
    "BFloat16": torch.bfloat16,
    "Double": torch.float64,
}
_BYTES = {"Float": 4, "Half": 2, "BFloat16": 2, "Double": 8, "Long": 8, "Int": 4, "Short": 2}  # others take 1
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
# The pickles of a legacy file are at its beginning. Those of published models take less than a megabyte.
_LONGEST_PICKLES = 1 << 26
_COUNT_BYTES = 8  # the number of numbers, before the numbers of each storage of a legacy file


class _TorchFile:
    """The content of a torch file: plain data, `Inert` and `Stored`; and the tensors, which are read on demand.

    Raises:
        Exception: the file is damaged; zipfile may raise any exception.
    """

    def __init__(self, file: BufferedReader) -> None:
        self._file, self._size = file, os.fstat(file.fileno()).st_size
        machine = ForeignMachine()
        if zipfile.is_zipfile(file):
            self.content, self._starts = _zip_content(file, machine)
        else:
            self.content, self._starts = _legacy_content(file, machine)
        self._read: dict[tuple[str, int, tuple[int, ...]], Tensor] = {}
        self._left = self._size

    def tensor(self, stored: Stored) -> Tensor:
        """Returns a tensor in fp32, on the CPU. The same part of a storage is read once.

        Raises:
            ValueError: the tensor is not made of floating-point numbers, is not contiguous, or is not in the file.
        """
        storage, offset, shape = stored.storage, stored.offset, stored.shape
        if type(offset) is not int or type(shape) is not tuple or not all(type(n) is int and n >= 0 for n in shape):
            raise ValueError("a tensor whose shape is not made of whole numbers")
        key = storage.key, offset, shape
        if key not in self._read:
            if not 0 <= offset <= storage.numbers - math.prod(shape) or stored.stride != _strides(shape):
                raise ValueError("a tensor that is not contiguous, or is larger than its storage")
            self._read[key] = self._numbers(storage, offset, math.prod(shape)).view(shape)
        return self._read[key]

    def _numbers(self, storage: Storage, offset: int, count: int) -> Tensor:
        start, each = self._starts[storage.key], _BYTES[storage.kind]
        self._left -= count * each
        if start + storage.numbers * each > self._size or self._left < 0:
            raise ValueError("a tensor beyond the end of the file, or parts of tensors that overlap")
        found = torch.empty(count, dtype=_DTYPES[storage.kind])
        self._file.seek(start + offset * each)
        if self._file.readinto(found.view(torch.uint8).numpy().data) != count * each:
            raise EOFError
        return found.float()


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the strides of a contiguous tensor."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _zip_content(file: BufferedReader, machine: ForeignMachine) -> tuple[Any, dict[str, int]]:
    """Returns the content of a zip archive, and where the numbers of each storage start."""
    entries = uncompressed_entries(file)
    with zipfile.ZipFile(file) as archive:
        content = machine.content(archive.read(entries["data.pkl"]))
        if "byteorder" in entries and archive.read(entries["byteorder"]).decode() != sys.byteorder:
            raise ValueError("numbers in another byte order")
    for key, storage in machine.storages.items():
        if entries[f"data/{key}"].file_size != storage.numbers * _BYTES.get(storage.kind, 1):
            raise ValueError("a storage that does not fit the size of its entry")
    return content, {key: data_start(file, entries[f"data/{key}"]) for key in machine.storages}


def _legacy_content(file: BufferedReader, machine: ForeignMachine) -> tuple[Any, dict[str, int]]:
    """Returns the content of a legacy file, and where the numbers of each storage start."""
    file.seek(0)
    pickles = io.BytesIO(file.read(_LONGEST_PICKLES))
    if ForeignMachine().content(pickles) != _LEGACY_MAGIC:
        raise ValueError("not a torch file")
    for _ in ("protocol", "system"):
        ForeignMachine().content(pickles)
    content = machine.content(pickles)
    keys = ForeignMachine().content(pickles)
    if not isinstance(keys, list) or sorted(keys) != sorted(machine.storages):
        raise ValueError("storages that the content does not refer to")
    starts, start = {}, pickles.tell()
    for key in keys:
        starts[key] = start + _COUNT_BYTES
        storage = machine.storages[key]
        start = starts[key] + storage.numbers * _BYTES.get(storage.kind, 1)
    return content, starts


def read_torch_file(path: Path, part: str | None = None) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Returns the content of a torch file, and the floating-point tensors in it or in one of its parts, in fp32.

    Args:
        part: the key of the part with the tensors; None if the content itself has them.

    Raises:
        NmtError: the file cannot be read, is not a torch file, is damaged, or has no such part.
    """
    with opened(path) as file:
        try:
            archive = _TorchFile(file)
            content = archive.content
            named = content if part is None else content[part]
            stored = {n: t for n, t in named.items() if isinstance(t, Stored) and t.storage.kind in _DTYPES}
            return content, {name: archive.tensor(tensor) for name, tensor in stored.items()}
        except Exception as error:  # for a damaged file, zipfile may raise any exception
            if is_out_of_memory(error):
                raise NmtError(f"{path} does not fit into memory; free some memory or use another machine") from error
            raise NmtError(
                f"{path} is not a torch file with the weights of a model, or it is damaged; download it again"
            ) from error
