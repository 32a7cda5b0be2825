"""Reads the files of other toolkits' models, which are not trusted: JSON, and what torch.save wrote."""

import json
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from nmt.errors import NmtError
from nmt.model.device import is_out_of_memory


def unreadable(path: Path, error: OSError) -> NmtError:
    """Returns the error for a file of a model that cannot be read."""
    why = "it is a folder" if path.is_dir() else error.strerror or error
    return NmtError(f"{path} cannot be read ({why}); give the name of a file, or download all files of the model again")


def read_bytes(path: Path) -> bytes:
    """Returns the content of a file of a model."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error


def read_json(path: Path) -> dict[str, Any]:
    """Returns the object in a JSON file."""
    try:
        values = json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise NmtError(f"{path} is not JSON ({error!s:.100}); download it again") from error
    if not isinstance(values, dict):
        raise NmtError(f"{path} is a JSON {type(values).__name__}, not an object; download it again")
    return values


def floats(values: Mapping[str, Any]) -> dict[str, Tensor]:
    """Returns the floating-point tensors among the values, in fp32."""
    tensors = {str(name): value for name, value in values.items() if isinstance(value, Tensor)}
    return {name: tensor.detach().float() for name, tensor in tensors.items() if tensor.is_floating_point()}


# Files that torch.save wrote for other toolkits are pickles, which may name any function. Here, a pickle gets the few
# functions that make tensors. A class of the toolkits that write such files becomes `Inert`, and any other name is
# refused, so that no code in them runs.
_FUNCTIONS = {("torch._utils", f"_rebuild_{kind}") for kind in ("tensor", "tensor_v2", "parameter")}
_FUNCTIONS.add(("collections", "OrderedDict"))
# Packages whose classes hold options or the state of a training.
_INERT_PACKAGES = "argparse", "collections", "enum", "fairseq", "numpy", "omegaconf", "torch", "transformers", "typing"
_INERT_TYPES = ("bool", "bytearray", "complex", "dict", "float", "frozenset", "int", "list", "object", "set", "str")


class Inert:
    """Stands for an object of a class that is not imported, or for the result of a function that is not called.

    Attributes:
        state: what the pickle gives the object, usually its attributes by name.
    """

    state: Any = None

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def append(self, item: Any) -> None:
        """Ignores an item of a class that is a list."""


class _ForbiddenError(Exception):
    pass


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _FUNCTIONS:
            return super().find_class(module, name)
        if module.partition(".")[0] in _INERT_PACKAGES or (module == "builtins" and name in _INERT_TYPES):
            return Inert
        raise _ForbiddenError(f"{module}.{name}")


# A replacement for the module `pickle`, with the names that torch.load uses.
_PICKLE = SimpleNamespace(
    __name__="pickle", Unpickler=_Unpickler, load=lambda file, **options: _Unpickler(file, **options).load()
)


def read_torch_file(path: Path, key: str | None = None) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Returns the content of a torch file, and the floating-point tensors in it or under a key, in fp32.

    Args:
        key: the key of the tensors; None if the content itself has them.
    """
    mapped = zipfile.is_zipfile(path)  # only what is used of a mapped file is read
    try:
        content = torch.load(path, map_location="cpu", pickle_module=_PICKLE, weights_only=False, mmap=mapped)
        return content, floats(content if key is None else content[key])
    except OSError as error:
        raise unreadable(path, error) from error
    except _ForbiddenError as error:
        raise NmtError(f"{path} names {error}, which models do not need; do not trust this file") from error
    except Exception as error:  # for a damaged file, torch may raise any exception
        if is_out_of_memory(error):
            raise NmtError(f"{path} does not fit into memory; free some memory or use another machine") from error
        raise NmtError(
            f"{path} is not a torch file with the weights of a model, or it is damaged; download it again"
        ) from error
