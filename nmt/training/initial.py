"""Fine-tuning: a training begins with the weights of a checkpoint."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from nmt import console
from nmt.checkpoint import Checkpoint, load_checkpoint, load_weights
from nmt.config import ModelConfig
from nmt.config.options import flag_name
from nmt.errors import NmtError
from nmt.model.transformer import Transformer
from nmt.text.codec import SubwordModel, TextCodec


def start_from(path: str, model: Transformer, codec: TextCodec) -> None:
    """Gives a new model the weights of a checkpoint."""
    checkpoint = load_checkpoint(path)
    _check(path, checkpoint, model.config, codec)
    if checkpoint.codec.to_dict() != codec.to_dict():
        checkpoint = replace(checkpoint, weights=checkpoint.weights | _embeddings(path, checkpoint, model, codec))
        if model.source_embedding is None:
            checkpoint.weights.pop("source_embedding.weight", None)
    load_weights(model, checkpoint, path)
    console.info(f"starting with the weights of {path}")


def _check(path: str, checkpoint: Checkpoint, config: ModelConfig, codec: TextCodec) -> None:
    differences = {
        flag_name(name): f"is {now} instead of {then}"
        for name, then, now in config.other_weights(checkpoint.model_config.to_dict())
    }
    if differences:
        found = "; ".join(f"{flag} {difference}" for flag, difference in differences.items())
        in_file = ", ".join(flag.removeprefix("--") for flag in ("--arch", *differences))
        raise NmtError(
            f"the weights of --init-from {path} do not fit: {found}; leave out --arch and these options (in a file of "
            f"--config: {in_file})"
        )
    then, now = ((c.config.source_lang, c.config.target_lang) for c in (checkpoint.codec, codec))
    if then != now:
        console.warn(f"{path} translates {then[0]} to {then[1]}, but the data is {now[0]} to {now[1]}")


def _embeddings(path: str, checkpoint: Checkpoint, model: Transformer, codec: TextCodec) -> dict[str, Tensor]:
    """Returns the weights that have a row for each piece, with the checkpoint's rows for the pieces that it has."""
    weights, old = checkpoint.weights, checkpoint.codec
    target = _by_piece(old.target, weights["target_embedding.weight"])
    source = _by_piece(old.source, weights.get("source_embedding.weight", weights["target_embedding.weight"]))
    rows: dict[str, Tensor] = {}
    if model.output_bias is not None:
        rows["output_bias"], _ = _rows(codec.target, model.output_bias, _by_piece(old.target, weights["output_bias"]))
    tables = {"target_embedding.weight": (codec.target, model.target_embedding, target)}
    if model.source_embedding is None:
        tables["target_embedding.weight"] = (codec.target, model.target_embedding, source | target)
    else:
        tables["source_embedding.weight"] = (codec.source, model.source_embedding, source)
    for name, (subword, embedding, known) in tables.items():
        rows[name], new = _rows(subword, embedding.weight, known)
        _show_new(path, len(subword), new)
    return rows


def _by_piece(subword: SubwordModel, weight: Tensor) -> dict[str, Tensor]:
    return dict(zip(_pieces(subword), weight, strict=True))


def _pieces(subword: SubwordModel) -> list[str]:
    return subword.pieces(list(range(len(subword))))


def _rows(subword: SubwordModel, fresh: Tensor, known: Mapping[str, Tensor]) -> tuple[Tensor, list[str]]:
    """Returns the known row of each piece, or else its fresh row, and the pieces with fresh rows."""
    found, pieces = fresh.detach().cpu().clone(), _pieces(subword)
    for i, piece in enumerate(pieces):
        if piece in known:
            found[i] = known[piece]
    return found, [piece for piece in pieces if piece not in known]


def _show_new(path: str, pieces: int, new: list[str]) -> None:
    """Logs how many of the pieces have embeddings in the checkpoint, and names some of the others."""
    console.info(
        f"{pieces - len(new):,} of {pieces:,} pieces have embeddings in {Path(path).name}"
        + (f"; {len(new):,} start at random: {console.listed(new)}" if new else "")
    )
