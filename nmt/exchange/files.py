"""Reads the files of models of other toolkits, which are not trusted."""

import json
import os
from collections.abc import Iterable, Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from nmt.errors import NmtError

_FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def opened(path: Path) -> BufferedReader:
    """Returns an open file of a model.

    Raises:
        NmtError: the file is missing, is a folder, or cannot be read.
    """
    try:
        return open(path, "rb")
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> NmtError:
    reason = "it is a folder" if os.path.isdir(path) else error.strerror
    return NmtError(
        f"{path} cannot be read ({reason}); give the name of a file, or download all files of the model again"
    )


def read_bytes(path: Path) -> bytes:
    """Returns the content of a file of a model.

    Raises:
        NmtError: the file cannot be read.
    """
    with opened(path) as file:
        try:
            return file.read()
        except OSError as error:
            raise _unreadable(path, error) from error


def read_json(path: Path) -> dict[str, Any]:
    """Returns the object in a JSON file.

    Raises:
        NmtError: the file cannot be read, or is not a JSON object.
    """
    try:
        values = json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise NmtError(f"{path} is not JSON ({error!s:.100}); download it again") from error
    if not isinstance(values, dict):
        raise NmtError(f"{path} is a JSON {type(values).__name__}, not an object; download it again")
    return values


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """Returns the floating-point tensors of a safetensors file, in fp32. The library checks all sizes before reading.

    Raises:
        NmtError: the file cannot be read or is damaged.
    """
    opened(path).close()  # safe_open does not say that a folder is one
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no mapping)
    except (SafetensorError, OSError, ValueError, TypeError) as error:
        raise NmtError(
            f"{path} is not a safetensors file, or is damaged ({error!s:.100}); download it again"
        ) from error
    return {name: tensor.float() for name, tensor in tensors.items() if tensor.dtype in _FLOATS}


class Tensors:
    """The tensors of a model by name. Each is taken once.

    Args:
        origin: the name of their file, for messages.
        plan: what says which tensors there are and which shapes they have, for messages.
        advice: what the user can do if plan and tensors differ.
    """

    def __init__(self, tensors: Mapping[str, Tensor], origin: Path, plan: str, advice: str) -> None:
        self._tensors, self.origin, self._plan, self._advice = dict(tensors), origin, plan, advice

    def rows(self, name: str) -> int:
        """Returns the rows of a tensor, which may still be taken.

        Raises:
            NmtError: it is missing, or is a single number.
        """
        found = self._tensors.get(name)
        if found is None or not found.dim():
            raise self._missing(name)
        return len(found)

    def _missing(self, name: str) -> NmtError:
        return NmtError(f"{self.origin} has no tensor {name}, but {self._plan} says that it has one; {self._advice}")

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Returns a tensor.

        Raises:
            NmtError: it is missing or has another shape.
        """
        found = self.take_if_there(name)
        if found is None:
            raise self._missing(name)
        if found.shape != shape:
            raise NmtError(
                f"{self.origin} has the tensor {name} with the shape {tuple(found.shape)}, but {self._plan} says that "
                f"it has {shape}; {self._advice}"
            )
        return found

    def take_if_there(self, name: str) -> Tensor | None:
        """Returns a tensor of any shape, or None if there is none."""
        return self._tensors.pop(name, None)

    def drop_copies(self, names: Iterable[str], target_embedding_VD: Tensor, advice: str) -> None:
        """Removes the tensors with these names, which are copies of the target embedding.

        Raises:
            NmtError: such a tensor differs from it. The message ends in `advice`.
        """
        for name in names:
            copy = self.take_if_there(name)
            if copy is not None and not torch.equal(copy, target_embedding_VD):
                raise NmtError(
                    f"{name} in {self.origin} differs from the target embedding, but nmt uses one matrix for both; "
                    f"{advice}"
                )

    def check_all_taken(self) -> None:
        """Raises an error if tensors are left, because the model computes more than nmt would.

        Raises:
            NmtError: a tensor is left.
        """
        if self._tensors:
            name = min(self._tensors)
            raise NmtError(
                f"{self.origin} has the tensor {name!r:.80}, which nmt does not know; use a model without changes"
            )
