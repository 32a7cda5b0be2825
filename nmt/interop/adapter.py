"""Merges LoRA adapters of PEFT into the weights of a model of Hugging Face."""

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from nmt.checkpoint import Computed, materialized
from nmt.errors import NmtError
from nmt.interop.foreign_files import EMBEDDINGS, SHARED, read_json, read_safetensors

# The files of an adapter of PEFT, and the beginning of the names in it.
ADAPTER_CONFIG, _ADAPTER, _PREFIX = "adapter_config.json", "adapter_model.safetensors", "base_model.model."
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
