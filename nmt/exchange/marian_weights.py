"""The weights of MarianMT models of Hugging Face, in their names and here."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt.config import ModelConfig
from nmt.errors import NmtError
from nmt.exchange.files import Tensors
from nmt.exchange.layers import from_theirs, our_columns, to_theirs
from nmt.exchange.vocabulary import Ids, rows_of
from nmt.model.positions import sinusoids

_SHARED = "model.shared.weight"
_SIDES = {"source": "model.encoder.embed_tokens.weight", "target": "model.decoder.embed_tokens.weight"}
_SOFTMAX = "lm_head.weight"
_BIAS = "final_logits_bias"
_POSITIONS = "model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"
# Some models are stored in 16 bits.
_POSITIONS_TOLERANCE = 5e-3


def vocabulary_sizes(values: Mapping[str, Any], tensors: Tensors, path: Path, *, shared: bool) -> tuple[int, int]:
    """Returns the numbers of source and target ids, which the embeddings have a row for.

    Args:
        values: the content of config.json, whose path is `path`.

    Raises:
        NmtError: an embedding is missing, or config.json has another number.
    """
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
    """Returns the weights of a MarianMT model by our names, with all biases.

    Args:
        source, target: the ids of the model.
        shared: whether both sides have the same embedding.
        scaled: whether the model multiplies embeddings by √d_model, as ours do.

    Raises:
        NmtError: a tensor is missing, is unknown, or has another shape or meaning than the configuration says.
    """
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
        if expected is None or not _are_close(found, expected):
            raise NmtError(
                f"{tensors.origin} has position encodings ({name}) that are not the sinusoids of MarianMT; "
                f"use a model with static positions"
            )


def _are_close(found: Tensor, expected: Tensor) -> bool:
    return found.shape == expected.shape and bool(((found - expected).abs() < _POSITIONS_TOLERANCE).all())


def _with_scale(weights: dict[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """Returns the weights of the same model with embeddings that are multiplied by √d_model.

    Smaller embeddings make the logits smaller too. So the last norm, which only the logits follow, becomes larger.
    """
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
