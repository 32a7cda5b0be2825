"""The architecture, weights and text of MarianMT models of Hugging Face, as they are there and here."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt.config import ModelConfig
from nmt.errors import NmtError
from nmt.interop.common import (
    SPECIAL_PIECES,
    Ids,
    Settings,
    Tensors,
    check_supported,
    from_theirs,
    head_widths,
    ids_of,
    our_columns,
    read_bytes,
    read_json,
    rows_of,
    to_theirs,
)
from nmt.model.positions import sinusoids
from nmt.text.codec import SubwordModel, TextCodec, TextConfig
from nmt.text.mapped import Mapped, language_code
from nmt.text.subword import BOS, EOS, PAD, UNK, Subword

# The positions that an exported model is made for. transformers computes the encodings anew when it loads the model.
POSITIONS = 1024
# Our name of each activation. swish and silu are the same function.
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "swish", "silu": "swish"}
_SHARING = "share_encoder_decoder_embeddings"
_SIZES = ("encoder_layers", "decoder_layers", "d_model", "dropout", "attention_dropout", "activation_dropout")
# Settings that nmt does not have, and the values that change nothing.
_WITHOUT_EFFECT = {
    "normalize_before": False,
    "static_position_embeddings": True,
    "tie_word_embeddings": True,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
}
# Options of the model that MarianMT can express, or that do not matter after training.
_EXPRESSED = (
    "activation",
    "attention_biases",
    "output_bias",
    "attention_dropout",
    "activation_dropout",
    "guided_alignment",
)


def our_config(settings: Settings) -> ModelConfig:
    """Returns the architecture in a config.json, with all biases."""
    values, path = settings.values, settings.path
    if values.get("model_type") != "marian":
        raise NmtError(
            f"{path} is for a model of type {values.get('model_type')!r:.40}, but nmt imports only marian; "
            f"choose a MarianMT model such as those of Opus-MT"
        )
    for name, ignored in _WITHOUT_EFFECT.items():
        if values.get(name, ignored) != ignored:
            raise settings.unknown(name)
    widths = head_widths(settings.required("d_model"), settings.of_both_sides("attention_heads"), path)
    activation = _ACTIVATIONS[settings.choice("activation_function", _ACTIVATIONS)]
    sizes = {name: values.get(name, 0.0) for name in ("attention_dropout", "activation_dropout")}
    sizes |= {name: settings.required(name) for name in ("encoder_layers", "decoder_layers", "dropout")}
    sizes["d_ff"] = settings.of_both_sides("ffn_dim")
    options = {"activation": activation, "attention_biases": True, "output_bias": True}
    return ModelConfig.from_dict({**sizes, **widths, **options}, str(path))


def is_shared(settings: Settings) -> bool:
    """Returns whether both sides have the same embedding."""
    found = settings.values.get(_SHARING, True)
    if not isinstance(found, bool):
        raise settings.unknown(_SHARING)
    return found


def check_expressible(config: ModelConfig, origin: str) -> None:
    """Raises an error if transformers has no MarianMT model of this architecture."""
    check_supported(config, origin, "MarianMT", _EXPRESSED)


def their_config(config: ModelConfig, source_size: int, target_size: int, *, shared: bool) -> dict[str, Any]:
    """Returns the config.json of a MarianMT model."""
    sides = {f"{side}_ffn_dim": config.d_ff for side in ("encoder", "decoder")}
    sides |= {f"{side}_attention_heads": config.heads for side in ("encoder", "decoder")}
    return {
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        "is_encoder_decoder": True,
        **{name: getattr(config, name) for name in _SIZES},
        **sides,
        "activation_function": config.activation,
        "scale_embedding": True,
        _SHARING: shared,
        "tie_word_embeddings": True,
        "vocab_size": source_size,
        "decoder_vocab_size": target_size,
        "max_position_embeddings": POSITIONS,
        **special_ids(),
        "forced_eos_token_id": EOS,
        "dtype": "float32",
    }


def special_ids() -> dict[str, int]:
    """Returns the special ids of an exported model, as config.json and generation_config.json name them."""
    return {"pad_token_id": PAD, "bos_token_id": BOS, "decoder_start_token_id": BOS, "eos_token_id": EOS}


_SHARED = "model.shared.weight"
_SIDES = {"source": "model.encoder.embed_tokens.weight", "target": "model.decoder.embed_tokens.weight"}
_SOFTMAX = "lm_head.weight"
_BIAS = "final_logits_bias"
_POSITIONS = "model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"
# Some models are stored in 16 bits.
_POSITIONS_TOLERANCE = 5e-3


def vocabulary_sizes(values: Mapping[str, Any], tensors: Tensors, path: Path, *, shared: bool) -> tuple[int, int]:
    """Returns the numbers of source and target ids, which the embeddings have a row for."""
    source, target = (_SHARED, _SHARED) if shared else (_SIDES["source"], _SIDES["target"])
    claimed = values.get("vocab_size")
    sizes = (source, claimed), (target, claimed if shared else values.get("decoder_vocab_size", claimed))
    for name, size in sizes:
        if tensors.rows(name) != size:
            raise NmtError(
                f"{path} has the vocabulary size {size!r:.40}, but {name} in {tensors.origin.name} has "
                f"{tensors.rows(name):,} rows; download both again"
            )
    return tensors.rows(source), tensors.rows(target)


def our_weights(
    config: ModelConfig, tensors: Tensors, source: Ids, target: Ids, *, shared: bool, scaled: bool
) -> dict[str, Tensor]:
    """Returns the weights of a MarianMT model by our names, with all biases."""
    weights = from_theirs(config, lambda name, shape: tensors.take(f"model.{name}", shape))
    columns_D = our_columns(config.d_model)
    embedding_VD = tensors.take(_SHARED if shared else _SIDES["target"], (target.size, config.d_model))
    weights["target_embedding.weight"] = rows_of(embedding_VD, target, columns_D)
    if not shared:
        source_VD = tensors.take(_SIDES["source"], (source.size, config.d_model))
        weights["source_embedding.weight"] = rows_of(source_VD, source, columns_D)
    bias_1V = torch.zeros(1, target.size)
    if (found := tensors.take_if_there(_BIAS)) is not None:
        if found.shape != bias_1V.shape:
            raise NmtError(f"{tensors.origin} has {_BIAS} for {found.numel():,} pieces instead of {target.size:,}")
        bias_1V = found
    weights["output_bias"] = target.output_bias(bias_1V[0])
    copies = _SOFTMAX, *(_SIDES.values() if shared else ())
    tensors.drop_copies(copies, embedding_VD, "use a model with tied embeddings")
    _check_positions(tensors, config)
    tensors.check_all_taken()
    return weights if scaled else _with_scale(weights, config)


def _check_positions(tensors: Tensors, config: ModelConfig) -> None:
    """Raises NmtError unless the positions in the file, if there are any, are sinusoids."""
    for name in _POSITIONS:
        found = tensors.take_if_there(name)
        if found is None:
            continue
        expected = sinusoids(len(found), config)[:, our_columns(config.d_model).argsort()] if found.dim() == 2 else None
        if (
            expected is None
            or found.shape != expected.shape
            or not torch.allclose(found, expected, rtol=0, atol=_POSITIONS_TOLERANCE)
        ):
            raise NmtError(
                f"{tensors.origin} has position encodings ({name}) that are not the sinusoids of MarianMT; "
                f"use a model with static positions"
            )


def _with_scale(weights: dict[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """Returns the weights of the same model with embeddings that are multiplied by √d_model."""
    scale = math.sqrt(config.d_model)
    last = f"decoder.{config.decoder_layers - 1}.feed_forward_residual.norm"
    factors = {"target_embedding.weight": 1 / scale, "source_embedding.weight": 1 / scale}
    factors |= {f"{last}.weight": scale, f"{last}.bias": scale}
    return {name: weight * factors[name] if name in factors else weight for name, weight in weights.items()}


def their_weights(config: ModelConfig, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns the weights of a checkpoint by the names of MarianMT."""
    columns_D = our_columns(config.d_model).argsort()
    found = {f"model.{name}": tensor for name, tensor in to_theirs(config, dict(weights)).items()}
    target_VD = weights["target_embedding.weight"]
    if "source_embedding.weight" in weights:
        found[_SIDES["source"]] = weights["source_embedding.weight"][:, columns_D].contiguous()
    found[_SIDES["target"] if "source_embedding.weight" in weights else _SHARED] = target_VD[:, columns_D].contiguous()
    found[_BIAS] = weights.get("output_bias", torch.zeros(len(target_VD)))[None]
    return found


TOKENIZER_CONFIG = "tokenizer_config.json"
VOCABULARY, TARGET_VOCABULARY = "vocab.json", "target_vocab.json"
MODELS = "source.spm", "target.spm"
# The key of config.json with what MarianMT does not have: the TextConfig and the ModelConfig of a checkpoint.
RECORD = "nmt"


@dataclass(frozen=True)
class MarianText:
    """The text processing of a folder."""

    codec: TextCodec
    source_ids: Ids
    target_ids: Ids


def read_text(
    folder: Path, config: Mapping[str, Any], sizes: tuple[int, int], langs: Mapping[str, str | None], *, shared: bool
) -> MarianText:
    """Returns the text processing of a MarianMT folder."""
    options = read_json(folder / TOKENIZER_CONFIG) if (folder / TOKENIZER_CONFIG).exists() else {}
    separate = options.get("separate_vocabs", False)
    if shared and separate:
        raise NmtError(f"{folder} has one embedding for two vocabularies; download it again")
    unknown = options.get("unk_token", SPECIAL_PIECES[UNK])
    unknown = unknown.get("content") if isinstance(unknown, dict) else unknown
    files = folder / VOCABULARY, folder / (TARGET_VOCABULARY if separate else VOCABULARY)
    pieces = [_vocabulary(file, size) for file, size in zip(files, sizes, strict=True)]
    ids = [_ids(config, *side, unknown) for side in zip(pieces, sizes, files, strict=True)]
    text = _recorded(config, langs, folder)
    if text is None:
        text = _text_config(Settings(options, folder).languages(langs), pieces[0], folder, shared=shared)
    models = [
        _subword(folder / name, text.subword, of_side, names, file)
        for name, of_side, names, file in zip(MODELS, ids, pieces, files, strict=True)
    ]
    source, target = (models[0], models[0]) if text.one_model else models
    return MarianText(TextCodec.checked(text, source, target, str(folder)), *ids)


def _vocabulary(path: Path, size: int) -> dict[int, str]:
    """Returns the piece of each id of a vocabulary."""
    ids = read_json(path)
    for piece, i in ids.items():
        if type(i) is not int or not 0 <= i < size:
            raise NmtError(
                f"{path} has the id {i!r:.40} for the piece {piece!r:.40}, but the model has {size:,} ids; "
                f"download both again"
            )
    if len(set(ids.values())) != len(ids):
        raise NmtError(f"{path} gives the same id to two pieces; download it again")
    return {i: piece for piece, i in ids.items()}


def _ids(config: Mapping[str, Any], pieces: Mapping[int, str], size: int, path: Path, unknown: Any) -> Ids:
    found = [i for i, piece in pieces.items() if piece == unknown]
    if not found:
        raise NmtError(f"{path} has no piece {unknown!r:.40} for unknown text; download it again")
    pad, start, eos = (config.get(f"{name}_token_id") for name in ("pad", "decoder_start", "eos"))
    return ids_of((pad, found[0], start, eos), size, str(path.parent / "config.json"))


def _recorded(config: Mapping[str, Any], langs: Mapping[str, str | None], folder: Path) -> TextConfig | None:
    """Returns the text processing that nmt recorded when it exported the folder; None for other models."""
    record = config.get(RECORD)
    if not isinstance(record, dict) or "text" not in record:
        return None
    text = TextConfig.from_dict(record["text"], str(folder / "config.json"))
    for name, given in langs.items():
        if given not in (None, recorded := getattr(text, name)):
            flag = f"--{name.replace('_', '-')}"
            raise NmtError(f"{flag} is {given}, but nmt exported {folder} with {recorded}; leave out {flag}")
    return text


def _text_config(langs: Mapping[str, str], pieces: Mapping[int, str], folder: Path, *, shared: bool) -> TextConfig:
    """Returns the text processing of a model that nmt did not export."""
    codes = [piece for _, piece in sorted(pieces.items()) if piece.split() == [piece] == [language_code(piece)]]
    values = {"source_tokenizer": "none", "target_tokenizer": "none", "normalize_punctuation": "none"}
    rest = {"lowercase": False, "subword": "marian", "joint_vocab": shared, "tags": codes}
    return TextConfig.from_dict({**langs, **values, **rest}, str(folder))


def _subword(path: Path, kind: str, ids: Ids, pieces: Mapping[int, str], vocabulary_path: Path) -> SubwordModel:
    model = read_bytes(path)
    if kind == "marian":
        vocabulary = ids.vocabulary(pieces, str(vocabulary_path))
        try:
            return Mapped(vocabulary, model, kind)
        except (ValueError, RuntimeError) as error:
            raise NmtError(f"{path} is not a sentencepiece model, or is damaged; download it again") from error
    subword = Subword.from_bytes(model, kind, str(path))
    if subword.pieces(list(range(len(subword)))) != [pieces.get(i) for i in ids.order]:
        raise NmtError(f"{path} and {vocabulary_path} have different pieces; export the model again")
    return subword


def write_text(codec: TextCodec, folder: Path) -> None:
    """Writes the files with which transformers' MarianTokenizer gives the same ids as the codec."""
    joint = codec.config.joint_vocab
    for subword, name in zip((codec.source, codec.target), MODELS, strict=True):
        (folder / name).write_bytes(subword.model)
    vocabularies = {VOCABULARY: codec.source} | ({} if joint else {TARGET_VOCABULARY: codec.target})
    for name, subword in vocabularies.items():
        pieces = subword.pieces(list(range(len(subword))))
        _write_json(folder / name, {piece: i for i, piece in enumerate(pieces)})
    unk, eos, pad = codec.source.pieces([UNK, EOS, PAD])
    options = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": codec.config.source_lang,
        "target_lang": codec.config.target_lang,
        "unk_token": unk,
        "eos_token": eos,
        "pad_token": pad,
        "separate_vocabs": not joint,
        "model_max_length": POSITIONS,
    }
    _write_json(folder / TOKENIZER_CONFIG, options)


def _write_json(path: Path, values: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(values, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
