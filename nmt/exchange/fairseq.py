"""Imports checkpoints of fairseq's `transformer`, as its public source describes them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt import __version__
from nmt.checkpoint import Checkpoint, build_model
from nmt.config import ModelConfig
from nmt.errors import NmtError
from nmt.exchange.fairseq_text import codec_of, ids_of_dictionary, read_dictionary
from nmt.exchange.files import Tensors
from nmt.exchange.layers import from_theirs, our_columns
from nmt.exchange.torch_files import read_torch_file
from nmt.exchange.torch_pickle import Inert
from nmt.exchange.vocabulary import Ids, rows_of
from nmt.text.codec import TextConfig

_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "swish"}
# Options that change what the model computes, and that nmt does not have.
_UNKNOWN = ("no_scale_embedding", "no_token_positional_embeddings", "adaptive_softmax_cutoff", "no_cross_attention")
# Names of the target embedding where the softmax has it.
_SOFTMAX = "decoder.output_projection.weight", "decoder.embed_out"
_BUFFERS = "version", "embed_positions._float_tensor"
_OLD_NORMS = {
    "encoder": ("self_attn_layer_norm", "final_layer_norm"),
    "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
}


def import_fairseq(
    file: str,
    dictionaries: Sequence[str],
    codes: str,
    *,
    tokenizer: str,
    lowercase: bool,
    source_lang: str | None = None,
    target_lang: str | None = None,
) -> Checkpoint:
    """Returns the model in a checkpoint file of fairseq.

    Args:
        dictionaries: the files of the dictionaries of source and target; one file if they are the same.
        codes: the file of the BPE codes.
        tokenizer: `moses` or `none`.
        source_lang, target_lang: the languages; None if the file says which.

    Raises:
        NmtError: a file is missing or damaged, or the model is not one that nmt can compute.
    """
    path = Path(file)
    content, tensors = read_torch_file(path, "model")
    options = _options(content, path)
    config = _config(options, path)
    pieces = [read_dictionary(Path(name)) for name in dictionaries]
    source, target = pieces[0], pieces[-1]
    ids = ids_of_dictionary(source), ids_of_dictionary(target)
    weights = _weights(config, Tensors(_modern(tensors, config), path), *ids)
    joint = source == target and torch.equal(weights["source_embedding.weight"], weights["target_embedding.weight"])
    if joint:
        del weights["source_embedding.weight"]
    langs = {"source_lang": source_lang, "target_lang": target_lang}
    text = _text_config(options, langs, path, tokenizer=tokenizer, lowercase=lowercase, joint=joint)
    provenance = {"nmt": __version__, "imported": {"format": "fairseq", "file": file}}
    checkpoint = Checkpoint(
        config, codec_of(text, (source, target), Path(codes), (dictionaries[0], dictionaries[-1])), weights, provenance
    )
    build_model(checkpoint, file)  # checks that the weights fit
    return checkpoint


def _options(content: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Returns the options of the model: `args` of old checkpoints, or `cfg` of newer ones."""
    found = content.get("args")
    if found is None and isinstance(content.get("cfg"), dict):
        found = content["cfg"].get("model")
    if isinstance(found, Inert):
        found = found.state
    if not isinstance(found, dict):
        raise NmtError(
            f"{path} does not have the options of a fairseq model (args, or cfg with model); use another file"
        )
    return found


def _config(options: Mapping[str, Any], path: Path) -> ModelConfig:
    """Returns the architecture.

    Raises:
        NmtError: an option is missing, or is one that nmt does not have.
    """
    for name in _UNKNOWN:
        if options.get(name):
            raise NmtError(f"{path} has the option {name}, which nmt does not have; use another model")
    d_model, d_ff = (_same_on_both_sides(options, name, path) for name in ("embed_dim", "ffn_embed_dim"))
    heads = _same_on_both_sides(options, "attention_heads", path)
    before = _same_on_both_sides(options, "normalize_before", path)
    if type(heads) is not int or type(d_model) is not int or heads < 1 or d_model % heads:
        raise NmtError(f"{path} has a width of {d_model!r:.20} for {heads!r:.20} heads, which does not divide it")
    activation = options.get("activation_fn", "relu")
    if not isinstance(activation, str) or activation not in _ACTIVATIONS:
        raise NmtError(f"{path} has the activation {activation!r:.40}, which nmt does not have; use another model")
    values = {name: _required(options, name, path) for name in ("encoder_layers", "decoder_layers", "dropout")}
    values |= {"d_model": d_model, "d_ff": d_ff, "heads": heads, "d_k": d_model // heads, "d_v": d_model // heads}
    values |= {"activation": activation, "norm": "pre" if before else "post", "sinusoids": "fairseq"}
    values |= {
        "attention_dropout": options.get("attention_dropout", 0.0),
        "attention_biases": True,
        "output_bias": True,
    }
    values["activation_dropout"] = options.get("activation_dropout") or options.get("relu_dropout") or 0.0
    return ModelConfig.from_dict(values, str(path))


def _required(options: Mapping[str, Any], name: str, path: Path) -> Any:
    if name not in options:
        raise NmtError(f"{path} does not have the option {name} of fairseq's transformer; use another model")
    return options[name]


def _same_on_both_sides(options: Mapping[str, Any], name: str, path: Path) -> Any:
    encoder, decoder = (_required(options, f"{side}_{name}", path) for side in ("encoder", "decoder"))
    if encoder != decoder:
        raise NmtError(f"{path} has different encoder_{name} and decoder_{name}, but nmt has one; use another model")
    return encoder


def _modern(tensors: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """Returns the tensors with their present names. Old checkpoints number the norms and join some matrices."""
    found = {}
    for name, tensor in tensors.items():
        stack, *rest = name.split(".")
        if stack in _OLD_NORMS and len(rest) == 5 and rest[2] == "layer_norms" and rest[3] in ("0", "1", "2"):
            new = _OLD_NORMS[stack][int(rest[3]) % len(_OLD_NORMS[stack])]
            found[".".join((stack, *rest[:2], new, rest[4]))] = tensor
        elif rest and rest[-1] in ("in_proj_weight", "in_proj_bias") and tensor.shape[:1] == (3 * config.d_model,):
            prefix = ".".join((stack, *rest[:-1]))
            for letter, part in zip("qkv", tensor.split(config.d_model), strict=True):
                found[f"{prefix}.{letter}_proj.{rest[-1].removeprefix('in_proj_')}"] = part
        else:
            found[name] = tensor
    return found


def _weights(config: ModelConfig, tensors: Tensors, source: Ids, target: Ids) -> dict[str, Tensor]:
    """Returns the weights by our names, with separate embeddings."""
    columns_D = our_columns(config.d_model)
    weights = from_theirs(config, tensors.take)
    embedding_VD = tensors.take("decoder.embed_tokens.weight", (target.size, config.d_model))
    source_VD = tensors.take("encoder.embed_tokens.weight", (source.size, config.d_model))
    weights["target_embedding.weight"] = rows_of(embedding_VD, target, columns_D)
    weights["source_embedding.weight"] = rows_of(source_VD, source, columns_D)
    weights["output_bias"] = target.output_bias(torch.zeros(target.size))
    for name in _SOFTMAX:
        copy = tensors.take_if_there(name)
        if copy is not None and not torch.equal(copy, embedding_VD):
            raise NmtError(
                f"{tensors.origin} has another {name} than the target embedding, but here both are one matrix; "
                f"use a model with --share-decoder-input-output-embed"
            )
    for stack in ("encoder", "decoder"):
        for buffer in _BUFFERS:
            tensors.take_if_there(f"{stack}.{buffer}")
        if config.norm == "pre":
            for part in ("weight", "bias"):
                weights[f"{stack}_norm.{part}"] = tensors.take(f"{stack}.layer_norm.{part}", (config.d_model,))[
                    columns_D
                ]
    tensors.check_all_taken()
    return weights


def _text_config(
    options: Mapping[str, Any],
    langs: Mapping[str, str | None],
    path: Path,
    *,
    tokenizer: str,
    lowercase: bool,
    joint: bool,
) -> TextConfig:
    """Returns the text processing; the files of a model do not say how its text was tokenised."""
    values: dict[str, Any] = {name: lang or options.get(name) for name, lang in langs.items()}
    for name, lang in values.items():
        if not isinstance(lang, str):
            raise NmtError(f"{path} does not say its languages; give them with --{name.replace('_', '-')}")
    for side in ("source", "target"):
        values[f"{side}_tokenizer"] = f"escaping-moses-{values[f'{side}_lang']}" if tokenizer == "moses" else "none"
    values |= {"normalize_punctuation": "both", "lowercase": lowercase, "subword": "subword-nmt", "joint_vocab": joint}
    return TextConfig.from_dict(values, str(path))
