"""Reads the files of other toolkits' models, which are not trusted: JSON, and what torch.save wrote."""

import json
import pickle
import re
import zipfile
from collections.abc import Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from nmt.checkpoint import Computed, materialized
from nmt.errors import NmtError
from nmt.files import loading, read_bytes
from nmt.model.device import is_out_of_memory

# The files of a model of transformers.
CONFIG, GENERATION = "config.json", "generation_config.json"
WEIGHTS, _TORCH_WEIGHTS = "model.safetensors", "pytorch_model.bin"
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


# The files of an adapter of PEFT, and the beginning of the names in it.
ADAPTER_CONFIG, _ADAPTER, _PREFIX = "adapter_config.json", "adapter_model.safetensors", "base_model.model."
# An embedding, and what the model computes with. Those that a file lacks are copies of the last one that it has.
SHARED, SOFTMAX = "model.shared.weight", "lm_head.weight"
EMBEDDINGS = SHARED, "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", SOFTMAX
# Options of an adapter that change how it is merged, and the values that nmt merges.
_PLAIN = {"peft_type": "LORA", "use_dora": False, "fan_in_fan_out": False, "alpha_pattern": {}, "rank_pattern": {}}


def with_adapter(tensors: Mapping[str, Tensor], folder: Path) -> dict[str, Tensor | Computed]:
    """Returns the tensors of a model with the LoRA adapter in a folder (Hu et al. 2021): W + B A alpha / r.

    Tensors that were trained as a whole, such as biases, replace those of the model. Sums are computed in fp32
    when a tensor is needed, and get the type of the model.
    """
    path = folder / ADAPTER_CONFIG
    options, adapter = read_json(path), read_safetensors(folder / _ADAPTER)
    for name, plain in _PLAIN.items():
        if (given := options.get(name, plain)) != plain:
            raise NmtError(f"{path} has {name} {given!r:.40}, which nmt does not merge; merge it with peft first")
    initialisation = options.get("init_lora_weights", True)
    if initialisation not in (True, False, "gaussian", "eva", "orthogonal"):
        problem = f"{path} has init_lora_weights {initialisation!r:.40}, which changes the weights of the model itself"
        raise NmtError(f"{problem}; merge it with peft first")
    if not isinstance(options.get("lora_alpha"), int | float):
        raise NmtError(f"{path} has no number as its lora_alpha; download it again")
    stored = [name for name in EMBEDDINGS if name in tensors] or [SHARED]
    copies = [name for name in EMBEDDINGS[1:] if name not in stored[:-1]]
    merged: dict[str, Tensor | Computed] = {**dict.fromkeys(copies, tensors.get(stored[-1], torch.empty(0))), **tensors}
    modules = {re.sub("[.]lora_[AB][.]weight$", "", name) for name in adapter}
    for name in sorted(modules, key=lambda name: (name not in adapter, name)):  # LoRA may change what is replaced
        trained = adapter.get(name)
        target = name.removeprefix(_PREFIX).replace(".base_layer.", ".") + (".weight" if trained is None else "")
        down, up = (adapter.get(f"{name}.lora_{factor}.weight", torch.empty(0)) for factor in "AB")
        weight, rank = merged.get(target, torch.empty(0)), down.shape[:1]
        fitting = (*weight.shape[:1], *rank, *rank, *weight.shape[1:])
        fits = down.dim() == 2 and down.numel() > 0 and (*up.shape, *down.shape) == fitting
        if not (fits if trained is None else trained.shape == weight.shape):
            misfit = f"{folder / _ADAPTER} has the tensor {name!r:.80}, which does not fit the model of --base"
            raise NmtError(f"{misfit}; give the model that the adapter is for, or merge it with peft first")
        if trained is None:
            scale = options["lora_alpha"] / len(down) ** (0.5 if options.get("use_rslora") else 1)
            update = partial(_updated, down=down, up=up, scale=scale)
            merged[target] = Computed(weight.dtype, tuple(weight.shape), [weight], update)
        else:
            merged[target] = trained.to(weight.dtype)
    for name in copies:
        if merged[name] is not merged[copies[0]] and not torch.equal(
            materialized(merged[name]), materialized(merged[copies[0]])
        ):
            difference = f"{folder / _ADAPTER} makes {name} differ from {copies[0]}"
            raise NmtError(f"{difference}, but nmt uses one matrix for both; train it with ensure_weight_tying")
    merged[stored[-1]] = merged[copies[0]]
    return {name: merged[name] for name in tensors}


def _updated(weight: Tensor, down: Tensor, up: Tensor, scale: float) -> Tensor:
    return (weight.float() + up.float() @ down.float() * scale).to(weight.dtype)


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
