"""What imports and exports share: files, which are not trusted, settings, vocabularies and layers."""

import json
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from nmt.config import ModelConfig
from nmt.config.options import flag_name
from nmt.errors import NmtError
from nmt.text.subword import without_surrogates

_FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def opened(path: Path) -> BufferedReader:
    """Returns an open file of a model."""
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
    """Returns the content of a file of a model."""
    with opened(path) as file:
        try:
            return file.read()
        except OSError as error:
            raise _unreadable(path, error) from error


def read_json(path: Path) -> dict[str, Any]:
    """Returns the object in a JSON file."""
    try:
        values = json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise NmtError(f"{path} is not JSON ({error!s:.100}); download it again") from error
    if not isinstance(values, dict):
        raise NmtError(f"{path} is a JSON {type(values).__name__}, not an object; download it again")
    return values


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """Returns the floating-point tensors of a safetensors file, in fp32. The library checks all sizes first."""
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
    """The tensors of a model by name. Each is taken once."""

    def __init__(self, tensors: Mapping[str, Tensor], origin: Path, plan: str, advice: str) -> None:
        self._tensors, self.origin, self._plan, self._advice = dict(tensors), origin, plan, advice

    def rows(self, name: str) -> int:
        """Returns the rows of a tensor, which may still be taken."""
        found = self._tensors.get(name)
        if found is None or not found.dim():
            raise self._missing(name)
        return len(found)

    def _missing(self, name: str) -> NmtError:
        return NmtError(f"{self.origin} has no tensor {name}, but {self._plan} says that it has one; {self._advice}")

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Returns a tensor."""
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

    def choice(self, name: str, choices: Collection[str], default: str | None = None) -> str:
        """Returns a setting that is one of `choices`. Without a default, it is required."""
        value = self.required(name) if default is None else self.values.get(name, default)
        if not isinstance(value, str) or value not in choices:
            raise self.unknown(name)
        return value

    def unknown(self, name: str) -> NmtError:
        """Returns the error for a setting with a value that nmt does not have."""
        return NmtError(f"{self.path} has {name} {self.values[name]!r:.40}, which nmt does not have; use another model")

    def languages(self, given: Mapping[str, str | None]) -> dict[str, str]:
        """Returns the languages by name.

        Args:
            given: `source_lang` and `target_lang`; None if the settings say which.
        """
        found: dict[str, str] = {}
        for name, given_lang in given.items():
            lang = self.values.get(name) if given_lang is None else given_lang
            if not isinstance(lang, str) or not lang:
                raise NmtError(
                    f"{self.path} does not say the {name.removesuffix('_lang')} language; "
                    f"give it with --{name.replace('_', '-')}"
                )
            found[name] = lang
        if len(set(found.values())) < len(found):
            raise NmtError(
                f"both languages are {found['source_lang']}; give others with --source-lang and --target-lang"
            )
        return found


def head_widths(d_model: Any, heads: Any, path: Path) -> dict[str, int]:
    """Returns d_model, the number of heads, and the widths of the keys and values of a head."""
    if type(heads) is not int or type(d_model) is not int or heads < 1 or d_model % heads:
        raise NmtError(
            f"{path} has {heads!r:.20} heads, but their number must divide the width, {d_model!r:.20}; "
            f"use another model"
        )
    return {"d_model": d_model, "heads": heads, "d_k": d_model // heads, "d_v": d_model // heads}


def check_supported(config: ModelConfig, origin: str, toolkit: str, supported: Collection[str]) -> None:
    """Raises an error unless a toolkit supports an architecture."""
    if config.d_k != config.d_v or config.heads * config.d_k != config.d_model:
        raise NmtError(
            f"{toolkit} needs d_k and d_v to be d_model / heads, but {origin} has d_model {config.d_model}, "
            f"heads {config.heads}, d_k {config.d_k} and d_v {config.d_v}; translate with nmt generate"
        )
    unsupported = [flag_name(name) for name in config.variants() if name not in supported]
    if unsupported:
        raise NmtError(
            f"{toolkit} does not support {' or '.join(unsupported)}, which {origin} uses; translate with nmt generate"
        )


# How the ids of other toolkits become ours, in which 0 to 3 are PAD, UNK, BOS and EOS.

SPECIAL_PIECES = "<pad>", "<unk>", "<s>", "</s>"
# A logit of this size has practically the probability 0. It is finite, because label smoothing sums all logits.
_SILENT = -100.0


@dataclass(frozen=True)
class Ids:
    """The ids of another toolkit."""

    special: tuple[int, int, int, int]
    size: int

    @property
    def order(self) -> list[int]:
        """Their id for each of ours."""
        return [*self.special, *(i for i in range(self.size) if i not in self.special)]

    def output_bias(self, bias_V: Tensor) -> Tensor:
        """Returns the bias of our logits for the bias of theirs."""
        ours_V = bias_V[self.order]
        silent = [i for i, theirs in enumerate(self.special) if theirs in self.special[i + 1 :]]
        ours_V[silent] = _SILENT
        return ours_V

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


def ids_of(special: Sequence[object], size: int, origin: str) -> Ids:
    """Returns the ids of another toolkit."""
    names = ("padding", "the unknown piece", "the beginning of a target", "the end of a sentence")
    for name, value in zip(names, special, strict=True):
        if type(value) is not int or not 0 <= value < size:
            raise NmtError(
                f"{origin}: the id of {name} is {value!r:.40}, but there are {size:,} ids; export the model again"
            )
    return Ids(tuple(special), size)  # type: ignore[arg-type] # they were checked


def rows_of(embedding_VD: Tensor, ids: Ids, columns_D: Tensor) -> Tensor:
    """Returns an embedding in the order of our ids and columns."""
    return embedding_VD[torch.tensor(ids.order)].index_select(1, columns_D)


# The weights of layers in this toolkit, and in MarianMT and fairseq models, which name them alike.


@dataclass(frozen=True)
class Part:
    """A matrix or a LayerNorm, and its bias.

    Attributes:
        ours: its name in nmt, without `.weight`.
        theirs: names of the other toolkit's matrices that are joined in this one.
        shape: the shape of the weight of each of these parts.
        axis: the axis with d_model columns.
        always_biased: whether it has a bias even without --attention-biases.
    """

    ours: str
    theirs: tuple[str, ...]
    shape: tuple[int, ...]
    axis: int
    always_biased: bool = True


def parts(config: ModelConfig) -> Iterator[Part]:
    """Yields all parts of the encoder's and the decoder's layers."""
    for number in range(config.encoder_layers):
        yield from _layer(config, f"encoder.{number}", f"encoder.layers.{number}")
    for number in range(config.decoder_layers):
        ours, theirs = f"decoder.{number}", f"decoder.layers.{number}"
        yield from _layer(config, ours, theirs)
        cross = f"{ours}.cross_attention", f"{theirs}.encoder_attn"
        yield _reading(config, f"{cross[0]}.query", cross[1], "q")
        yield _reading(config, f"{cross[0]}.key_value", cross[1], "kv")
        yield _attention_output(config, *cross)
        yield _norm(config, f"{cross[0]}_residual.norm", f"{cross[1]}_layer_norm")


def _layer(config: ModelConfig, ours: str, theirs: str) -> Iterator[Part]:
    """Yields what encoder and decoder layers have: self-attention and a feed-forward network."""
    attention = f"{ours}.self_attention", f"{theirs}.self_attn"
    yield _reading(config, f"{attention[0]}.query_key_value", attention[1], "qkv")
    yield _attention_output(config, *attention)
    yield _norm(config, f"{attention[0]}_residual.norm", f"{attention[1]}_layer_norm")
    feed_forward = f"{ours}.feed_forward"
    yield Part(f"{feed_forward}.inner", (f"{theirs}.fc1",), (config.d_ff, config.d_model), 1)
    yield Part(f"{feed_forward}.outer", (f"{theirs}.fc2",), (config.d_model, config.d_ff), 0)
    yield _norm(config, f"{feed_forward}_residual.norm", f"{theirs}.final_layer_norm")


def _reading(config: ModelConfig, ours: str, theirs: str, letters: str) -> Part:
    names = tuple(f"{theirs}.{letter}_proj" for letter in letters)
    return Part(ours, names, (config.heads * config.d_k, config.d_model), 1, always_biased=False)


def _attention_output(config: ModelConfig, ours: str, theirs: str) -> Part:
    shape = config.d_model, config.heads * config.d_v
    return Part(f"{ours}.output", (f"{theirs}.out_proj",), shape, 0, always_biased=False)


def _norm(config: ModelConfig, ours: str, theirs: str) -> Part:
    return Part(ours, (theirs,), (config.d_model,), 0)


def our_columns(d_model: int) -> Tensor:
    """Returns, for each column of `d_model` in nmt, the number of the same column in the other toolkit.

    The columns of the sinusoidal position encoding have different orders. In nmt, sines and cosines alternate, as in
    section 3.5 of the paper. In the other toolkit, all sines come before all cosines.
    """
    return torch.arange(d_model).view(2, -1).T.flatten()


def from_theirs(config: ModelConfig, take: Callable[[str, tuple[int, ...]], Tensor]) -> dict[str, Tensor]:
    """Returns the weights of all layers by our names. The attention has biases, whether the config says so or not."""
    columns, weights = our_columns(config.d_model), {}
    for part in parts(config):
        weight = torch.cat([take(f"{name}.weight", part.shape) for name in part.theirs])
        bias = torch.cat([take(f"{name}.bias", part.shape[:1]) for name in part.theirs])
        weights[f"{part.ours}.weight"] = weight.index_select(part.axis, columns)
        weights[f"{part.ours}.bias"] = bias[columns] if part.axis == 0 else bias
    return weights


def without_attention_biases(config: ModelConfig, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Returns the weights without the biases of attention."""
    biases = {f"{part.ours}.bias" for part in parts(config) if not part.always_biased}
    return {name: weight for name, weight in weights.items() if name not in biases}


def to_theirs(config: ModelConfig, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Returns the weights of all layers by their names. Biases that the attention does not have are zero."""
    columns, found = our_columns(config.d_model).argsort(), {}
    for part in parts(config):
        weight = weights[f"{part.ours}.weight"].index_select(part.axis, columns)
        bias = weights.get(f"{part.ours}.bias")
        if bias is None:
            bias = weight.new_zeros(weight.shape[0])
        elif part.axis == 0:
            bias = bias[columns]
        for name, rows, biases in zip(part.theirs, weight.split(part.shape[0]), bias.split(part.shape[0]), strict=True):
            found[f"{name}.weight"], found[f"{name}.bias"] = rows.contiguous(), biases.contiguous()
    return found
