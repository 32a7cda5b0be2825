"""Reads the files of other toolkits' models, which are not trusted: JSON, safetensors, and what torch.save wrote."""

import json
import pickle
import zipfile
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from nmt.errors import NmtError
from nmt.files import loading, read_bytes
from nmt.model.device import is_out_of_memory

# The files of a model of transformers.
CONFIG, GENERATION = "config.json", "generation_config.json"
WEIGHTS, _TORCH_WEIGHTS = "model.safetensors", "pytorch_model.bin"
# An embedding, and what the model computes with. Those that a file lacks are copies of the last one that it has.
SHARED, SOFTMAX = "model.shared.weight", "lm_head.weight"
EMBEDDINGS = SHARED, "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", SOFTMAX
ADVICE = "give the name of a file, or download all files of the model again"


def read_json(path: Path, default: dict[str, Any] | None = None) -> dict[str, Any]:
    """Returns the object in a JSON file, or the default if there is no file."""
    if default is not None and not path.exists():
        return default
    try:
        values = json.loads(read_bytes(path, ADVICE))
    except (ValueError, RecursionError) as error:
        raise NmtError(f"{path} is not JSON ({error!s:.100}); download it again") from error
    if not isinstance(values, dict):
        raise NmtError(f"{path} is a JSON {type(values).__name__}, not an object; download it again")
    return values


def read_tensors(folder: Path) -> tuple[dict[str, Tensor], Path]:
    """Returns the floating-point tensors of a model of Hugging Face, mapped where possible, and their file."""
    for name, read in ((WEIGHTS, read_safetensors), (_TORCH_WEIGHTS, lambda file: read_torch_file(file)[1])):
        path, index = folder / name, folder / f"{name}.index.json"
        if path.exists():
            return read(path), path
        if index.exists():
            return dict(chain.from_iterable(read(file).items() for file in _shards(index))), index
    raise NmtError(f"{folder} has neither {WEIGHTS} nor {_TORCH_WEIGHTS}; download the model again")


def _shards(index: Path) -> list[Path]:
    """Returns the files that an index names, which must be in its folder."""
    shards = read_json(index).get("weight_map")
    names = sorted({*map(str, shards.values())}) if isinstance(shards, dict) else [""]
    for name in names:
        if Path(name).name != name or not (index.parent / name).is_file():
            raise NmtError(f"{index} names the file {name!r:.80}, which is not in its folder; download the model again")
    return [index.parent / name for name in names]


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """Returns the floating-point tensors of a file, mapped into memory. The library checks all sizes first."""
    try:
        with loading(path, ADVICE), path.open("rb"):  # the library would not say that it is a folder
            return _floats(load_file(path))
    except (SafetensorError, ValueError, TypeError) as error:
        why = f"{path} is not a safetensors file, or is damaged ({error!s:.100})"
        raise NmtError(f"{why}; download it again") from error


def _floats(values: Mapping[str, Any]) -> dict[str, Tensor]:
    """Returns the floating-point tensors among the values."""
    tensors = {str(name): value for name, value in values.items() if isinstance(value, Tensor)}
    return {name: tensor.detach() for name, tensor in tensors.items() if tensor.is_floating_point()}


# Files that torch.save wrote for other toolkits are pickles, which may name any function. Here, a pickle gets the
# few functions that make tensors. A class of the toolkits that write such files becomes `Inert`, and any other
# name is refused, so that no code in them runs.
_FUNCTIONS = {("torch._utils", f"_rebuild_{kind}") for kind in ("tensor", "tensor_v2", "parameter")}
_FUNCTIONS.add(("collections", "OrderedDict"))
# Packages whose classes hold options or the state of a training.
_INERT_PACKAGES = "argparse", "collections", "enum", "fairseq", "numpy", "omegaconf", "torch", "transformers", "typing"
_INERT_TYPES = ("bool", "bytearray", "complex", "dict", "float", "frozenset", "int", "list", "object", "set", "str")


class Inert:
    """Stands for an object of a class that is not imported. `state` is what the pickle gives it: its attributes."""

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
    """Returns the content of a torch file, and the floating-point tensors in it or under a key."""
    mapped = zipfile.is_zipfile(path)  # only what is used of a mapped file is read
    with loading(path, ADVICE):
        path.open("rb").close()
    try:
        content = torch.load(path, map_location="cpu", pickle_module=_PICKLE, weights_only=False, mmap=mapped)
        return content, _floats(content if key is None else content[key])
    except _ForbiddenError as error:
        raise NmtError(f"{path} names {error}, which models do not need; do not trust this file") from error
    except Exception as error:  # for a damaged file, torch may raise any exception
        why = "is not a torch file with the weights of a model, or it is damaged; download it again"
        if is_out_of_memory(error):
            why = "does not fit into memory; free some memory or use another machine"
        raise NmtError(f"{path} {why}") from error
