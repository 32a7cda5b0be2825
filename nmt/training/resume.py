"""Where the state of a training comes from and goes to: its own training states, checkpoints, and --init-from."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from nmt import console
from nmt.checkpoint import Checkpoint, load_checkpoint, load_weights
from nmt.checkpoint_file import without_prefix
from nmt.config import ModelConfig
from nmt.config.options import flag_name
from nmt.data.batching import PLAN_VERSION
from nmt.errors import NmtError
from nmt.model.transformer import Transformer
from nmt.text.codec import SubwordModel, TextCodec
from nmt.training.log import provenance_of
from nmt.training.records import Scores
from nmt.training.run_folder import RunFolder
from nmt.training.state import Counters, Setup, TrainState

# Options that decide which sentences an update holds, and which weights it changes and how. If one of them changes, the
# position in the epoch is void.
_PLANNED_BY = ("batch_tokens", "batch_groups", "seed", "freeze", "optimizer")
# Options that are about the command itself, and --arch, whose sizes are compared one by one.
_OF_THE_COMMAND = ("save_dir", "resume_changed", "arch", "tensorboard")


def check_changes(checkpoint: Checkpoint, path: Path, setup: Setup) -> bool:
    """Returns whether data and options would train something else than the checkpoint; logs all changed options."""
    config = setup.config
    options = [o for o in config.changed_from(checkpoint.provenance["options"]) if o[0] not in _OF_THE_COMMAND]
    planning = [option for option in options if option[0] in _PLANNED_BY]
    changes = [*_changes(checkpoint, setup), *(_change(*option) for option in planning)]
    refusal = f"{path} cannot be resumed: {'; '.join(changes)}; choose another --save-dir"
    if checkpoint.codec.to_dict() != setup.data.codec.to_dict():
        raise NmtError(f"{refusal}, because the vocabulary differs")
    if setup.model_config.other_weights(checkpoint.model_config.to_dict()):
        raise NmtError(f"{refusal}, because the weights of one model do not fit the other")
    if any(name in ("freeze", "optimizer") for name, _, _ in planning):
        raise NmtError(f"{refusal}, because the state of the optimiser does not fit")
    if changes and not config.resume_changed:
        raise NmtError(f"{refusal}, or give --resume-changed to resume anyway")
    for option in options:
        if option not in planning:
            console.info(f"changed option: {_change(*option)}")
    for change in changes:
        console.warn(f"resuming although {change}")
    return bool(changes)


def _changes(checkpoint: Checkpoint, setup: Setup) -> list[str]:
    """Describes what differs from the checkpoint in model, data and version."""
    changes = [_change(*option) for option in setup.model_config.changed_from(checkpoint.model_config.to_dict())]
    if checkpoint.provenance["data"] != setup.data.meta.fingerprint:
        changes.append("it was trained on another data folder")
    if checkpoint.provenance.get("plan") != PLAN_VERSION:
        changes.append("another version of nmt planned its updates")
    return changes


def _change(name: str, then: Any, now: Any) -> str:
    return f"{flag_name(name)} was {_shown(then)} and is now {_shown(now)}"


def _shown(value: Any) -> str:
    return (" ".join(map(str, value)) or "empty") if isinstance(value, tuple) else str(value)


# Beginnings of names of tensors.
_OPTIMIZER, _AVERAGE = "optimizer.", "average."


def checkpoint_of(setup: Setup, state: TrainState) -> Checkpoint:
    """Returns a training state: weights, and all that is needed to resume."""
    training: dict[str, Any] = {
        "counters": asdict(state.counters),
        "validations": [asdict(scores) for scores in state.validations],
    }
    if scale := state.optimizer.loss_scale:
        training["loss_scale"] = scale.state_dict()
    tensors = {_OPTIMIZER + name: tensor for name, tensor in state.optimizer.state_dict().items()}
    if state.average:
        tensors |= {_AVERAGE + name: tensor for name, tensor in state.average.averages.items()}
    return replace(_checkpoint(setup, state), training=training, training_tensors=tensors)


def snapshot_of(setup: Setup, state: TrainState) -> Checkpoint:
    """Returns a checkpoint for use: without what only training needs, and with averaged weights if there are any."""
    with state.averaged():
        return _checkpoint(setup, state)


def _checkpoint(setup: Setup, state: TrainState) -> Checkpoint:
    weights = {name: tensor.detach().cpu() for name, tensor in state.loss.model.state_dict().items()}
    return Checkpoint(setup.model_config, setup.data.codec, weights, provenance_of(setup, state))


def resume(setup: Setup, state: TrainState, folder: RunFolder) -> bool:
    """Loads the newest training state of the run folder on all ranks; returns False if there is none.

    Checkpoints and log records of later updates are removed, because these updates are about to be repeated.
    """
    found = folder.newest_state() if setup.world.is_main else None
    path = setup.world.broadcast(lambda: found[0] if found else None)
    if path is not None:
        changed = _load(setup, state, path, found[1] if found else _state_of_main_rank(path))
        console.info(f"resumed from {path} after update {state.counters.update:,}")
    if setup.world.is_main:
        if path is None:
            folder.set_checkpoints_aside(setup.config.init_from)
        else:
            folder.remove_checkpoints_after(state.counters.update)
            if changed:
                folder.set_best_aside()
        folder.metrics.rewind(None if path is None else state.counters.update)
    return path is not None


def _state_of_main_rank(path: Path) -> Checkpoint:
    if not path.exists():
        raise NmtError(
            f"rank 0 resumes from {path}, but this machine has no such file; give a --save-dir that all machines share"
        )
    return load_checkpoint(path, verify=True)


def _load(setup: Setup, state: TrainState, path: Path, checkpoint: Checkpoint) -> bool:
    """Gives the state what the checkpoint holds. Returns whether it trains something else from here on."""
    try:
        counters = Counters(**checkpoint.training["counters"])
        validations = [Scores(**scores) for scores in checkpoint.training["validations"]]
        if setup.config.device_tokens != checkpoint.provenance["options"]["device_tokens"]:
            counters.device_tokens = None
        changed = check_changes(checkpoint, path, setup)
        load_weights(state.loss.model, checkpoint, path)
        _load_tensors(state, checkpoint)
    except (LookupError, TypeError, ValueError) as error:
        raise NmtError(
            f"{path} is not a training state that this version of nmt can resume ({error!r:.100}); move it elsewhere "
            f"to resume from the state before it"
        ) from error
    if changed:
        counters.skip_to_next_epoch()
        validations = []
    state.counters, state.validations = counters, validations
    return changed


def _load_tensors(state: TrainState, checkpoint: Checkpoint) -> None:
    tensors = checkpoint.training_tensors
    state.optimizer.load_state_dict(without_prefix(tensors, _OPTIMIZER))
    if (scale := state.optimizer.loss_scale) and "loss_scale" in checkpoint.training:
        scale.load_state_dict(checkpoint.training["loss_scale"])
    if state.average:
        state.average.load(without_prefix(tensors, _AVERAGE))


# Fine-tuning: a training begins with the weights of a checkpoint

# The lists of layers by the option that says how many there are. A model may begin with some layers of a checkpoint.
_STACKS = {"encoder_layers": "encoder", "decoder_layers": "decoder"}


def start_from(path: str, model: Transformer, codec: TextCodec) -> None:
    """Gives a new model the weights of a checkpoint, which may have more layers than the model."""
    checkpoint = load_checkpoint(path)
    check_sizes(path, checkpoint.model_config, model.config)
    then, now = ((c.config.source_lang, c.config.target_lang) for c in (checkpoint.codec, codec))
    if then != now:
        console.warn(f"{path} translates {then[0]} to {then[1]}, but the data is {now[0]} to {now[1]}")
    checkpoint = replace(checkpoint, weights=_of_kept_layers(path, checkpoint, model.config))
    if checkpoint.codec.to_dict() != codec.to_dict():
        checkpoint = replace(checkpoint, weights=checkpoint.weights | _embeddings(path, checkpoint, model, codec))
        if model.source_embedding is None:
            checkpoint.weights.pop("source_embedding.weight", None)
    load_weights(model, checkpoint, path)
    console.info(f"starting with the weights of {path}")


def check_sizes(path: str, of_checkpoint: ModelConfig, config: ModelConfig) -> None:
    """Raises NmtError if a model cannot begin with the weights of the checkpoint at `path`."""
    differences = {
        flag_name(name): f"is {now} instead of {then}"
        for name, then, now in config.other_weights(of_checkpoint.to_dict())
        if name not in _STACKS or now > then
    }
    if differences:
        found = "; ".join(f"{flag} {difference}" for flag, difference in differences.items())
        in_file = ", ".join(flag.removeprefix("--") for flag in ("--arch", *differences))
        raise NmtError(
            f"the weights of --init-from {path} do not fit: {found}; leave out --arch and these options (in a file of "
            f"--config: {in_file})"
        )


def _of_kept_layers(path: str, checkpoint: Checkpoint, config: ModelConfig) -> dict[str, Tensor]:
    """Returns the weights of as many layers as the model has, at even distances and up to the last layer."""
    weights = checkpoint.weights
    for option, stack in _STACKS.items():
        had, has = getattr(checkpoint.model_config, option), getattr(config, option)
        if had == has:
            continue
        kept = [-(-had * number // has) for number in range(1, has + 1)]  # counted from 1
        console.info(f"of the {had} {stack} layers of {Path(path).name}, these are taken: {', '.join(map(str, kept))}")
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
    return dict(zip(subword.vocabulary, weight, strict=True))


def _rows(subword: SubwordModel, fresh: Tensor, known: Mapping[str, Tensor]) -> tuple[Tensor, list[str]]:
    """Returns the known row of each piece, or else its fresh row, and the pieces with fresh rows."""
    found, pieces = fresh.detach().cpu().clone(), subword.vocabulary
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
