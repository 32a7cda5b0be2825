"""The tensors and settings of another toolkit's model, which are checked when they are taken."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt.config import ModelConfig
from nmt.config.options import flag_name
from nmt.errors import NmtError


class Tensors:
    """The tensors of a model by name. Taking a tensor removes it.

    Args:
        origin: the file with the tensors.
        plan: the settings from which the expected tensors follow, for messages.
        advice: what the user can do if the tensors do not fit.
    """

    def __init__(self, tensors: Mapping[str, Tensor], origin: Path, plan: str, advice: str) -> None:
        self._tensors, self.origin, self._plan, self._advice = dict(tensors), origin, plan, advice

    def take(self, name: str, shape: tuple[int, ...], default: Tensor | None = None) -> Tensor:
        """Returns a tensor. If it is missing, returns `default`, or raises an error if that is None."""
        tensor = self._tensors.pop(name, default)
        if tensor is None:
            raise NmtError(f"{self.origin} has no tensor {name}, but {self._plan} says that it has one; {self._advice}")
        if tensor.shape != shape:
            raise NmtError(
                f"{self.origin} has the tensor {name} with the shape {tuple(tensor.shape)}, but {self._plan} says that "
                f"it has {shape}; {self._advice}"
            )
        return tensor

    def take_if_there(self, name: str) -> Tensor | None:
        """Returns a tensor of any shape, or None if there is none."""
        return self._tensors.pop(name, None)

    def drop_copies(self, names: Iterable[str], target_embedding_VD: Tensor, advice: str) -> None:
        """Removes the tensors with these names, which are copies of the target embedding."""
        for name in names:
            copy = self.take_if_there(name)
            if copy is not None and not torch.equal(copy, target_embedding_VD):
                raise NmtError(
                    f"{name} in {self.origin} differs from the target embedding, but nmt uses one matrix for both; "
                    f"{advice}"
                )

    def check_all_taken(self) -> None:
        """Raises an error if tensors are left, because the model computes more than nmt would."""
        if self._tensors:
            name = min(self._tensors)
            raise NmtError(
                f"{self.origin} has the tensor {name!r:.80}, which nmt does not know; use a model without changes"
            )


@dataclass(frozen=True)
class Settings:
    """The settings of a model by name. They are not trusted and may be any data."""

    values: Mapping[str, Any]
    path: Path

    def required(self, name: str) -> Any:
        """Returns a setting."""
        if name not in self.values:
            raise NmtError(f"{self.path} has no {name}, which a Transformer needs; download it again")
        return self.values[name]

    def of_both_sides(self, name: str) -> Any:
        """Returns a setting that encoder and decoder have."""
        encoder, decoder = (self.required(f"{side}_{name}") for side in ("encoder", "decoder"))
        if encoder != decoder:
            raise NmtError(
                f"{self.path} has different encoder_{name} and decoder_{name}, but nmt has one; use another model"
            )
        return encoder

    def choice(self, name: str, choices: Iterable[Any], default: Any = None) -> Any:
        """Returns a setting, or `default` if it is missing. Raises an error if it is not one of `choices`."""
        value = self.values.get(name, default)
        if value not in list(choices):
            raise NmtError(f"{self.path} has {name} {value!r:.40}, which nmt does not have; use another model")
        return value

    def model_config(self, d_model: Any, d_ff: Any, **variants: Any) -> ModelConfig:
        """Returns the architecture, with all biases. `d_model` and `d_ff` are settings too, and may be any data."""
        heads = self.of_both_sides("attention_heads")
        if type(heads) is not int or type(d_model) is not int or heads < 1 or d_model % heads:
            raise NmtError(
                f"{self.path} has {heads!r:.20} heads, but their number must divide the width, {d_model!r:.20}; "
                f"use another model"
            )
        values = {name: self.required(name) for name in ("encoder_layers", "decoder_layers", "dropout")}
        values |= {name: self.values.get(name, 0.0) for name in ("attention_dropout", "activation_dropout")}
        values |= {"d_model": d_model, "d_ff": d_ff, "heads": heads, "d_k": d_model // heads, "d_v": d_model // heads}
        biases = {"attention_biases": True, "output_bias": True}
        return ModelConfig.from_dict(values | biases | variants, str(self.path))

    def languages(self, given: Mapping[str, str | None]) -> dict[str, str]:
        """Returns the languages by name.

        Args:
            given: `source_lang` and `target_lang`; None if the settings say which.
        """
        languages: dict[str, Any] = {
            name: self.values.get(name) if lang is None else lang for name, lang in given.items()
        }
        for name, lang in languages.items():
            if not isinstance(lang, str) or not lang:
                side = name.removesuffix("_lang")
                raise NmtError(f"{self.path} does not say the {side} language; give it with {flag_name(name)}")
        source_lang, target_lang = languages.values()
        if source_lang == target_lang:
            raise NmtError(f"both languages are {source_lang}; give others with --source-lang and --target-lang")
        return languages
