"""Which architectures other toolkits support, and how their tensors, settings, ids and columns become ours."""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt.checkpoint import Computed, contents_of, materialized
from nmt.checkpoint_format import write_tensors
from nmt.config import ModelConfig, flag_name
from nmt.errors import NmtError
from nmt.files import new_folder, replaced_file
from nmt.interop.foreign_files import CONFIG, GENERATION, WEIGHTS
from nmt.text.mapped import SPECIAL_PIECES
from nmt.text.subword import SILENT, without_surrogates

# Model options that both CTranslate2 and MarianMT support, or that have no effect after training.
_COMMON = "activation", "attention_biases", "output_bias", "attention_dropout", "activation_dropout", "guided_alignment"
_OUR_ENGINE = "nmt generate translates with --engine pytorch"


def check_supported(config: ModelConfig, origin: str, toolkit: str, more: Collection[str] = ()) -> None:
    """Raises an error unless a toolkit supports an architecture, with options that are in `_COMMON` or `more`."""
    if config.d_k != config.d_v or config.heads * config.d_k != config.d_model:
        sizes = f"d_model {config.d_model}, heads {config.heads}, d_k {config.d_k} and d_v {config.d_v}"
        raise NmtError(f"{toolkit} needs d_k and d_v to be d_model / heads, but {origin} has {sizes}; {_OUR_ENGINE}")
    unsupported = [flag_name(name) for name in config.variants() if name not in (*_COMMON, *more)]
    if unsupported:
        options = " or ".join(unsupported)
        raise NmtError(f"{toolkit} does not support {options}, which {origin} uses; {_OUR_ENGINE}")


_ROWS = 8192  # of an embedding that are reordered at once


@dataclass(frozen=True)
class ForeignVocabulary:
    """The ids of another toolkit. In nmt, 0 to 3 are PAD, UNK, BOS and EOS.

    Attributes:
        special: its ids of PAD, UNK, BOS and EOS.
        pieces: the piece of each id that has one.
        size: the number of ids.
        dropped: ids that an nmt model does not get.
        means: pieces that it gets in addition, and the ids whose mean is the embedding of each.
    """

    special: tuple[int, ...]
    pieces: Mapping[int, str]
    size: int
    dropped: Collection[int] = ()
    means: Mapping[str, Sequence[int]] = field(default_factory=dict)

    @property
    def order(self) -> list[int]:
        """The other toolkit's id for each of ours."""
        return [*self.special, *(i for i in range(self.size) if i not in self.special and i not in self.dropped)]

    def our_bias(self, bias_V: Tensor) -> Tensor:
        """Returns the bias of our logits for the bias of theirs."""
        ours_V = bias_V[self.order]
        ours_V[[i for i, theirs in enumerate(self.special) if theirs in self.special[i + 1 :]]] = SILENT
        return ours_V

    def our_embedding(self, theirs_VD: Tensor) -> Computed:
        """Returns an embedding in the order of our ids and columns."""
        means = [theirs_VD[list(ids)].float().mean(0).to(theirs_VD.dtype) for ids in self.means.values()]
        return _reordered(theirs_VD, self.order, our_columns(theirs_VD.shape[1]), means)

    def our_pieces(self, origin: str) -> list[str]:
        """Returns the piece of each id of an nmt model; one without a name, or with a name of ours, gets another."""
        rest = (self.pieces.get(i, f"<unused {i}>") for i in self.order[len(SPECIAL_PIECES) :])
        renamed = (f"<{piece}>" if piece in SPECIAL_PIECES else piece for piece in rest)
        vocabulary = [*SPECIAL_PIECES, *renamed, *self.means]
        for piece, count in Counter(vocabulary).items():
            if count > 1 or piece != without_surrogates(piece):
                why = "a name that nmt uses itself" if count > 1 else "which is not valid text"
                raise NmtError(f"{origin} has the piece {piece!r:.40}, {why}; rename it")
        return vocabulary


def their_embedding(ours_VD: Tensor, order: Sequence[int]) -> Computed:
    """Returns the embedding of these ids in the order of the other toolkit's columns."""
    return _reordered(ours_VD, order, our_columns(ours_VD.shape[1]).argsort())


def _reordered(embedding_VD: Tensor, ids: Sequence[int], columns: Tensor, more: Sequence[Tensor] = ()) -> Computed:
    """Returns the rows of ids, and more rows, in the order of columns."""
    parts = [*torch.tensor(ids).split(_ROWS), *([torch.stack(list(more))] if more else [])]

    def change(part: Tensor) -> Tensor:
        rows_VD = part if part.is_floating_point() else embedding_VD.index_select(0, part)
        return rows_VD.index_select(1, columns)

    return Computed(embedding_VD.dtype, (len(ids) + len(more), len(columns)), parts, change)


def our_columns(d_model: int) -> Tensor:
    """Returns, for each column of `d_model` in nmt, the number of the same column in the other toolkit.

    The columns of the sinusoidal position encoding have different orders. In nmt, sines and cosines alternate, as
    in section 3.5 of the paper. In the other toolkit, all sines come before all cosines.
    """
    return torch.arange(d_model).view(2, -1).T.flatten()


class Tensors:
    """The tensors of a model by name. Taking a tensor removes it.

    Args:
        origin: the file with the tensors.
        plan: the settings from which the expected tensors follow, for messages.
        advice: what the user can do if the tensors do not fit.
    """

    def __init__(self, tensors: Mapping[str, Tensor | Computed], origin: Path, plan: str, advice: str) -> None:
        self._tensors, self.origin, self._plan, self._advice = dict(tensors), origin, plan, advice

    def take(self, name: str, shape: tuple[int, ...], default: Tensor | None = None) -> Tensor | Computed:
        """Returns a tensor. If it is missing, returns `default`, or raises an error if that is None."""
        tensor = self._tensors.pop(name, default)
        if tensor is None:
            raise NmtError(f"{self.origin} has no tensor {name}, but {self._plan} says that it has one; {self._advice}")
        if tensor.shape != shape:
            given = f"{self.origin} has the tensor {name} with the shape {tuple(tensor.shape)}"
            raise NmtError(f"{given}, but {self._plan} says that it has {shape}; {self._advice}")
        return tensor

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def take_if_there(self, name: str) -> Tensor | None:
        """Returns a tensor of any shape, or None if there is none."""
        tensor = self._tensors.pop(name, None)
        return None if tensor is None else materialized(tensor)

    def drop_copies(self, names: Iterable[str], target_embedding_VD: Tensor, advice: str) -> None:
        """Removes the tensors with these names, which are copies of the target embedding."""
        for name in names:
            copy = self.take_if_there(name)
            if copy is not None and not torch.equal(copy, target_embedding_VD):
                differs = f"{name} in {self.origin} differs from the target embedding"
                raise NmtError(f"{differs}, but nmt uses one matrix for both; {advice}")

    def check_all_taken(self) -> None:
        """Raises an error if tensors are left, because the model computes more than nmt would."""
        if self._tensors:
            unknown = f"the tensor {min(self._tensors)!r:.80}, which nmt does not know"
            raise NmtError(f"{self.origin} has {unknown}; use a model without changes")


# `source_lang` and `target_lang` as they are given; None for what the files of a model say.
Languages = Mapping[str, str | None]


@dataclass(frozen=True)
class Settings:
    """The settings of a model by name. They are not trusted and may be any data."""

    values: Mapping[str, Any]
    path: Path

    def recorded(self, name: str) -> Any:
        """Returns what nmt recorded when it exported the model; None for other models."""
        record = self.values.get("nmt")  # what a model has in nmt, but not in the other toolkit
        return record.get(name) if isinstance(record, dict) else None

    def required(self, name: str) -> Any:
        """Returns a setting."""
        if name not in self.values:
            raise NmtError(f"{self.path} has no {name}, which a Transformer needs; download it again")
        return self.values[name]

    def both_sides(self, name: str) -> Any:
        """Returns a setting that encoder and decoder have."""
        names = f"encoder_{name}", f"decoder_{name}"
        encoder, decoder = map(self.required, names)
        if encoder != decoder:
            raise self._unsuitable(f"different {' and '.join(names)}, but nmt has one")
        return encoder

    def choice(self, name: str, choices: Iterable[Any], default: Any = None) -> Any:
        """Returns a setting, or `default` if it is missing. Raises an error if it is not one of `choices`."""
        value = self.values.get(name, default)
        if value not in list(choices):
            raise self._unsuitable(f"{name} {value!r:.40}, which nmt does not have")
        return value

    def _unsuitable(self, setting: str) -> NmtError:
        return NmtError(f"{self.path} has {setting}; use another model")

    def model_config(self, d_model: Any, d_ff: Any, **variants: Any) -> ModelConfig:
        """Returns the architecture, with all biases. `d_model` and `d_ff` are settings too, and may be any data."""
        heads = self.both_sides("attention_heads")
        if type(heads) is not int or type(d_model) is not int or heads < 1 or d_model % heads:
            raise self._unsuitable(f"{heads!r:.20} heads, but their number must divide the width, {d_model!r:.20}")
        values = {name: self.required(name) for name in ("encoder_layers", "decoder_layers", "dropout")}
        values |= {name: self.values.get(name, 0.0) for name in ("attention_dropout", "activation_dropout")}
        values |= {"d_model": d_model, "d_ff": d_ff, "heads": heads, "d_k": d_model // heads, "d_v": d_model // heads}
        biases = {"attention_biases": True, "output_bias": True}
        return ModelConfig.from_dict(values | biases | variants, str(self.path))

    def languages(self, given: Languages) -> dict[str, str]:
        """Returns `source_lang` and `target_lang` as given, or where that is None, as in the settings."""
        langs: dict[str, Any] = {name: self.values.get(name) if lang is None else lang for name, lang in given.items()}
        for name, lang in langs.items():
            if not isinstance(lang, str) or not lang:
                side = name.removesuffix("_lang")
                problem = f"{self.path} does not say the {side} language"
                raise NmtError(f"{problem}; give it to nmt import with {flag_name(name)}")
        if len({*langs.values()}) == 1:
            raise NmtError(f"both languages are {lang}; give others with --source-lang and --target-lang")
        return langs


def foreign_vocabulary(
    settings: Settings, path: Path, ids: Mapping[str, Any], size: int, unknown: Any
) -> ForeignVocabulary:
    """Returns the vocabulary for an embedding of `size` pieces; `ids` are those of the pieces in the file `path`."""
    special: dict[str, Any] = {
        "padding": settings.values.get("pad_token_id"),
        "the beginning of a target": settings.values.get("decoder_start_token_id"),
        "the end of a sentence": settings.values.get("eos_token_id"),
    }
    pieces = [(path, f"the piece {piece!r:.40}", i) for piece, i in ids.items()]
    for file, name, i in [*pieces, *((settings.path, name, i) for name, i in special.items())]:
        if type(i) is not int or not 0 <= i < size:
            wrong = f"{file} has the id {i!r:.40} for {name}"
            raise NmtError(f"{wrong}, but the model has {size:,} ids; download both again")
    if unknown not in list(ids):
        raise NmtError(f"{path} has no piece {unknown!r:.40} for unknown text; download it again")
    pad, start, eos = special.values()
    return ForeignVocabulary((pad, ids[unknown], start, eos), {i: piece for piece, i in ids.items()}, size)


# The positions that an exported model is made for. transformers computes the encodings anew when it loads the model.
POSITIONS = 1024
# The architecture, by names that both toolkits have.
_SIZES = "encoder_layers", "decoder_layers", "d_model", "dropout", "attention_dropout", "activation_dropout"


def their_settings(
    config: ModelConfig, architecture: str, special: Mapping[str, int], never: Collection[int], **more: Any
) -> dict[str, bytes]:
    """Returns config.json, with `more` fields, and generation_config.json, where no output has the ids `never`."""
    model = {
        "architectures": [architecture], "is_encoder_decoder": True,
        **{name: getattr(config, name) for name in _SIZES},
        "encoder_ffn_dim": config.d_ff, "decoder_ffn_dim": config.d_ff, "encoder_attention_heads": config.heads,
        "decoder_attention_heads": config.heads, "activation_function": config.activation, "scale_embedding": True,
        "tie_word_embeddings": True, "max_position_embeddings": POSITIONS, **special, **more,
    }  # fmt: skip
    generation = {**special, "bad_words_ids": [[i] for i in never], "num_beams": 4, "max_length": 512}
    return {CONFIG: as_json(model), GENERATION: as_json(generation)}


def as_json(values: Mapping[str, Any]) -> bytes:
    """Returns the content of a JSON file."""
    return f"{json.dumps(values, ensure_ascii=False, indent=1)}\n".encode()


def write_folder(
    output: str, files: Mapping[str, bytes], tensors: Mapping[str, Tensor | Computed], card: Callable[[int], str]
) -> None:
    """Writes a folder for transformers: files, model.safetensors, and the model card for the size of the latter."""
    with new_folder(output, "--output") as folder:
        for name, content in files.items():
            (folder / name).write_bytes(content)
        with replaced_file(folder / WEIGHTS, "free some space") as file:
            write_tensors(file, {"format": "pt"}, contents_of(tensors))
        size = (folder / WEIGHTS).stat().st_size
        (folder / "README.md").write_text(card(size), encoding="utf-8")
