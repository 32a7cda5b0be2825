"""What imports and exports share: files, which are not trusted, settings, vocabularies and layers."""

import json
import pickle
import zipfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from nmt.config import ModelConfig
from nmt.config.options import flag_name
from nmt.errors import NmtError
from nmt.model.out_of_memory import is_out_of_memory
from nmt.text.subword import without_surrogates


def unreadable(path: Path, error: OSError) -> NmtError:
    """Returns the error for a file of a model that cannot be read."""
    reason = "it is a folder" if path.is_dir() else error.strerror or error
    return NmtError(
        f"{path} cannot be read ({reason}); give the name of a file, or download all files of the model again"
    )


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
    found = {str(name): t for name, t in values.items() if isinstance(t, Tensor) and t.is_floating_point()}
    return {name: tensor.detach().float() for name, tensor in found.items()}


# Files that torch.save wrote for other toolkits are pickles, which may name any function. Here, a pickle gets the few
# functions that make tensors. A class of the toolkits that write such files becomes `Inert`, and any other name is
# refused, so that no code in them runs.
_FUNCTIONS = {
    ("collections", "OrderedDict"),
    ("torch._utils", "_rebuild_tensor"),
    ("torch._utils", "_rebuild_tensor_v2"),
    ("torch._utils", "_rebuild_parameter"),
}
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


def read_torch_file(path: Path, part: str | None = None) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Returns the content of a torch file, and the floating-point tensors in it or in one of its parts, in fp32.

    Args:
        part: the key of the part with the tensors; None if the content itself has them.
    """
    mapped = zipfile.is_zipfile(path)  # only what is used of a mapped file is read
    try:
        content = torch.load(path, map_location="cpu", pickle_module=_PICKLE, weights_only=False, mmap=mapped)
        return content, floats(content if part is None else content[part])
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
        found = self._tensors.pop(name, default)
        if found is None:
            raise NmtError(f"{self.origin} has no tensor {name}, but {self._plan} says that it has one; {self._advice}")
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
        found: dict[str, str] = {}
        for name, given_lang in given.items():
            lang = self.values.get(name) if given_lang is None else given_lang
            if not isinstance(lang, str) or not lang:
                side = name.removesuffix("_lang")
                raise NmtError(f"{self.path} does not say the {side} language; give it with {flag_name(name)}")
            found[name] = lang
        if found["source_lang"] == found["target_lang"]:
            raise NmtError(
                f"both languages are {found['source_lang']}; give others with --source-lang and --target-lang"
            )
        return found


# Model options that both CTranslate2 and MarianMT support, or that have no effect after training.
_COMMON = "activation", "attention_biases", "output_bias", "attention_dropout", "activation_dropout", "guided_alignment"


def check_supported(config: ModelConfig, origin: str, toolkit: str, more: Collection[str] = ()) -> None:
    """Raises an error unless a toolkit supports an architecture.

    Args:
        more: the options that this toolkit supports beyond `_COMMON`.
    """
    if config.d_k != config.d_v or config.heads * config.d_k != config.d_model:
        raise NmtError(
            f"{toolkit} needs d_k and d_v to be d_model / heads, but {origin} has d_model {config.d_model}, "
            f"heads {config.heads}, d_k {config.d_k} and d_v {config.d_v}; "
            f"nmt generate translates with --engine pytorch"
        )
    unsupported = [flag_name(name) for name in config.variants() if name not in (*_COMMON, *more)]
    if unsupported:
        raise NmtError(
            f"{toolkit} does not support {' or '.join(unsupported)}, which {origin} uses; "
            f"nmt generate translates with --engine pytorch"
        )


# How the ids of other toolkits become ours, in which 0 to 3 are PAD, UNK, BOS and EOS.

SPECIAL_PIECES = "<pad>", "<unk>", "<s>", "</s>"
# A logit of this size has practically the probability 0. It is finite, because label smoothing sums all logits.
SILENT = -100.0


@dataclass(frozen=True)
class Ids:
    """The ids of another toolkit."""

    special: tuple[int, ...]
    size: int

    @property
    def order(self) -> list[int]:
        """Their id for each of ours."""
        return [*self.special, *(i for i in range(self.size) if i not in self.special)]

    def output_bias(self, bias_V: Tensor) -> Tensor:
        """Returns the bias of our logits for the bias of theirs."""
        ours_V = bias_V[self.order]
        silent = [i for i, theirs in enumerate(self.special) if theirs in self.special[i + 1 :]]
        ours_V[silent] = SILENT
        return ours_V

    def embedding(self, theirs_VD: Tensor) -> Tensor:
        """Returns an embedding in the order of our ids and columns."""
        return theirs_VD[self.order].index_select(1, our_columns(theirs_VD.shape[1]))

    def vocabulary(self, pieces: Mapping[int, str], origin: str) -> list[str]:
        """Returns the piece of each id of an nmt model.

        The other toolkit's id may have no piece, or its piece may have the name of one of ours. It gets another name.
        """
        rest = (pieces.get(i, f"<unused {i}>") for i in self.order[len(SPECIAL_PIECES) :])
        found = [*SPECIAL_PIECES, *(f"<{piece}>" if piece in SPECIAL_PIECES else piece for piece in rest)]
        for piece, count in Counter(found).items():
            if piece != without_surrogates(piece):
                raise NmtError(f"{origin} has the piece {piece!r:.40}, which is not valid text; rename it")
            if count > 1:
                raise NmtError(f"{origin} has the piece {piece!r:.40}, a name that nmt uses itself; rename it")
        return found


# The weights of layers in this toolkit, and in MarianMT and fairseq models, which name them alike.


@dataclass(frozen=True)
class Part:
    """A weight matrix or a LayerNorm, with its bias.

    Attributes:
        ours: its name in nmt, without `.weight`.
        theirs: the names of the other toolkit's matrices, which nmt joins into one.
        shape: the shape of each of these matrices.
        axis: the axis of the model's width, which `our_columns` reorders.
    """

    ours: str
    theirs: tuple[str, ...]
    shape: tuple[int, ...]
    axis: int


def parts(config: ModelConfig) -> Iterator[Part]:
    """Yields all parts of the encoder and the decoder, without embeddings. The width of a head is d_model / heads."""
    d_model, d_ff = config.d_model, config.d_ff
    for stack, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for number in range(layers):
            ours, theirs = f"{stack}.{number}", f"{stack}.layers.{number}"
            yield from _attention(d_model, f"{ours}.self_attention", f"{theirs}.self_attn", ["query_key_value"])
            if stack == "decoder":
                cross = ["query", "key_value"]
                yield from _attention(d_model, f"{ours}.cross_attention", f"{theirs}.encoder_attn", cross)
            yield Part(f"{ours}.feed_forward.inner", (f"{theirs}.fc1",), (d_ff, d_model), 1)
            yield Part(f"{ours}.feed_forward.outer", (f"{theirs}.fc2",), (d_model, d_ff), 0)
            yield Part(f"{ours}.feed_forward_residual.norm", (f"{theirs}.final_layer_norm",), (d_model,), 0)
        if config.norm == "pre":
            yield Part(f"{stack}_norm", (f"{stack}.layer_norm",), (d_model,), 0)


def _attention(d_model: int, ours: str, theirs: str, inputs: Iterable[str]) -> Iterator[Part]:
    for name in inputs:
        projections = tuple(f"{theirs}.{word[0]}_proj" for word in name.split("_"))
        yield Part(f"{ours}.{name}", projections, (d_model, d_model), 1)
    yield Part(f"{ours}.output", (f"{theirs}.out_proj",), (d_model, d_model), 0)
    yield Part(f"{ours}_residual.norm", (f"{theirs}_layer_norm",), (d_model,), 0)


def our_columns(d_model: int) -> Tensor:
    """Returns, for each column of `d_model` in nmt, the number of the same column in the other toolkit.

    The columns of the sinusoidal position encoding have different orders. In nmt, sines and cosines alternate, as in
    section 3.5 of the paper. In the other toolkit, all sines come before all cosines.
    """
    return torch.arange(d_model).view(2, -1).T.flatten()


def from_theirs(config: ModelConfig, tensors: Tensors, prefix: str = "") -> dict[str, Tensor]:
    """Returns the weights of all parts by their names in nmt. Attention always gets biases, whatever the config says.

    Args:
        prefix: the beginning of the other toolkit's names.
    """
    columns, weights = our_columns(config.d_model), {}
    for part in parts(config):
        weight = torch.cat([tensors.take(f"{prefix}{name}.weight", part.shape) for name in part.theirs])
        bias = torch.cat([tensors.take(f"{prefix}{name}.bias", part.shape[:1]) for name in part.theirs])
        weights[f"{part.ours}.weight"] = weight.index_select(part.axis, columns)
        weights[f"{part.ours}.bias"] = bias[columns] if part.axis == 0 else bias
    return weights


def to_theirs(config: ModelConfig, weights: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Returns the weights of all parts by the other toolkit's names. Biases that the model lacks are zero."""
    columns, found = our_columns(config.d_model).argsort(), {}
    for part in parts(config):
        weight = weights[f"{part.ours}.weight"].index_select(part.axis, columns)
        bias = weights.get(f"{part.ours}.bias", weight.new_zeros(len(weight)))
        bias = bias[columns] if part.axis == 0 else bias
        for name, rows, biases in zip(part.theirs, weight.split(part.shape[0]), bias.split(part.shape[0]), strict=True):
            found[f"{prefix}{name}.weight"], found[f"{prefix}{name}.bias"] = rows.contiguous(), biases.contiguous()
    return found
