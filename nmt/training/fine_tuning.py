"""Fine-tuning: a training begins with the weights of a checkpoint (--init-from)."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from torch import Tensor

from nmt import console
from nmt.checkpoint import Checkpoint, joint_codec, load_checkpoint, load_weights
from nmt.checkpoint_format import without_prefix
from nmt.config import ModelConfig, flag_name
from nmt.errors import NmtError
from nmt.model.architectures import layers_taken
from nmt.model.transformer import Transformer
from nmt.text.codec import SubwordModel, TextCodec
from nmt.text.languages import listed_codes

_T = TypeVar("_T")
# The lists of layers by the option that says how many there are. A model may begin with some layers of a checkpoint.
_STACKS = {"encoder_layers": "encoder", "decoder_layers": "decoder"}


def start_from(path: str, model: Transformer, codec: TextCodec) -> None:
    """Gives a new model the weights of a checkpoint, which may have more layers than the model."""
    checkpoint = checkpoint_to_start_from(path, model.config, codec)
    weights = kept_layers(path, checkpoint.model_config, model.config, checkpoint.weights)
    if joint_codec(checkpoint.codec, codec) is None:
        weights |= _embeddings(path, checkpoint, model, codec)
        if model.source_embedding is None:
            weights.pop("source_embedding.weight", None)
    load_weights(model, replace(checkpoint, weights=weights), path)
    console.info(f"starting with the weights of {path}")


def checkpoint_to_start_from(path: str, config: ModelConfig, codec: TextCodec) -> Checkpoint:
    """Returns a checkpoint with whose weights a model can begin; warns if the languages differ."""
    checkpoint = load_checkpoint(path)
    check_sizes(path, checkpoint.model_config, config)
    then, now = checkpoint.codec.config, codec.config
    if (then.source_lang, then.target_lang) != (now.source_lang, now.target_lang):
        model_languages, data_languages = (text.in_words.replace(" -> ", " to ") for text in (then, now))
        console.warn(f"{path} translates {model_languages}, but the data is {data_languages}")
    elif new := set(now.languages) - set(then.languages):
        console.warn(f"{path} does not have {listed_codes(new)}, so the tokens of these languages start at random")
    return checkpoint


def check_sizes(path: str, checkpoint_config: ModelConfig, config: ModelConfig) -> None:
    """Raises NmtError if a model cannot begin with the weights of the checkpoint at `path`."""
    changed = config.incompatible_options(checkpoint_config.to_dict())
    differences = [(flag_name(name), then, now) for name, then, now in changed if name not in _STACKS or now > then]
    if differences:
        shown = "; ".join(f"{flag} is {now} instead of {then}" for flag, then, now in differences)
        in_file = ", ".join(flag.removeprefix("--") for flag in ("--arch", *(flag for flag, _, _ in differences)))
        raise NmtError(
            f"the weights of --init-from {path} do not fit: {shown}; leave out --arch and these options (in a file of "
            f"--config: {in_file})"
        )


def kept_layers(
    path: str, checkpoint_config: ModelConfig, config: ModelConfig, weights: Mapping[str, _T]
) -> dict[str, _T]:
    """Returns the weights of as many layers as a model has, at even distances and up to the last layer."""
    weights = dict(weights)
    for option, stack in _STACKS.items():
        had, has = getattr(checkpoint_config, option), getattr(config, option)
        if had == has:
            continue
        kept = layers_taken(had, has)
        console.info(f"of the {had} {stack} layers of {Path(path).name}, these are taken: {', '.join(map(str, kept))}")
        if option == "decoder_layers" and checkpoint_config.guided_alignment and not config.guided_alignment:
            console.warn("the layer that has learnt alignments is not among them; the last one aligns words instead")
        layers = {
            f"{stack}.{new}.{name}": weight
            for new, old in enumerate(kept)
            for name, weight in without_prefix(weights, f"{stack}.{old - 1}.").items()
        }
        weights = {name: weight for name, weight in weights.items() if not name.startswith(f"{stack}.")} | layers
    return weights


def _embeddings(path: str, checkpoint: Checkpoint, model: Transformer, codec: TextCodec) -> dict[str, Tensor]:
    """Returns the weights that have a row for each piece, with the checkpoint's rows for the pieces that it has."""
    weights, old = checkpoint.weights, checkpoint.codec
    target_VD = weights["target_embedding.weight"]
    target = _by_piece(old.target, target_VD)
    source = _by_piece(old.source, weights.get("source_embedding.weight", target_VD))
    tables = {"target_embedding.weight": (codec.target, target)}
    if model.source_embedding is None:
        tables["target_embedding.weight"] = (codec.target, source | target)
    else:
        tables["source_embedding.weight"] = (codec.source, source)
    if model.config.output_bias:
        tables["output_bias"] = (codec.target, _by_piece(old.target, weights["output_bias"]))
    rows = {name: model.state_dict()[name].cpu().clone() for name in tables}
    for name, (subword, known) in tables.items():
        pieces = subword.vocabulary
        new = [piece for piece in pieces if piece not in known]  # their rows stay random
        for i, piece in enumerate(pieces):
            if piece in known:
                rows[name][i] = known[piece]
        if name != "output_bias":
            console.info(
                f"{len(pieces) - len(new):,} of {len(pieces):,} pieces have embeddings in {Path(path).name}"
                + (f"; {len(new):,} start at random: {console.listed(new)}" if new else "")
            )
    return rows


def _by_piece(subword: SubwordModel, weight: Tensor) -> dict[str, Tensor]:
    return dict(zip(subword.vocabulary, weight, strict=True))
