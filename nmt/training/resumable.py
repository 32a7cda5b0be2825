"""The checks before a training resumes from a training state: does it belong to this training?"""

from pathlib import Path
from typing import Any

from nmt import console
from nmt.checkpoint import Checkpoint
from nmt.config import ModelConfig, TrainConfig
from nmt.config.options import flag_name
from nmt.data.batching import PLAN_VERSION
from nmt.data.folder import DataFolder
from nmt.errors import NmtError

# Options that decide which sentences an update holds and which weights it changes. If one of them changes, the position
# in the epoch is void.
_PLANNED_BY = ("batch_tokens", "batch_groups", "seed", "freeze")
# Options that are about the command itself, and --arch, whose sizes are compared one by one.
_OF_THE_COMMAND = ("save_dir", "resume_changed", "arch", "tensorboard")


def check_changes(
    checkpoint: Checkpoint, path: Path, data: DataFolder, model_config: ModelConfig, config: TrainConfig
) -> bool:
    """Returns whether data and options would train something else than the checkpoint; logs all changed options.

    Raises:
        NmtError: they would, and --resume-changed is not given; or the vocabulary differs.
    """
    options = [o for o in config.changed_from(checkpoint.provenance["options"]) if o[0] not in _OF_THE_COMMAND]
    planning = [option for option in options if option[0] in _PLANNED_BY]
    changes = [*_changes(checkpoint, data, model_config), *(_change(*option) for option in planning)]
    refusal = f"{path} cannot be resumed: {'; '.join(changes)}; choose another --save-dir"
    if checkpoint.codec.to_dict() != data.codec.to_dict():
        raise NmtError(f"{refusal}, because the vocabulary differs")
    if model_config.other_weights(checkpoint.model_config.to_dict()):
        raise NmtError(f"{refusal}, because the weights of one model do not fit the other")
    if any(name == "freeze" for name, _, _ in planning):
        raise NmtError(f"{refusal}, because the optimiser has a state for the trained weights only")
    if changes and not config.resume_changed:
        raise NmtError(f"{refusal}, or give --resume-changed to resume anyway")
    _log_changes([_change(*option) for option in options if option not in planning], changes)
    return bool(changes)


def _log_changes(harmless: list[str], changes: list[str]) -> None:
    for change in harmless:
        console.info(f"changed option: {change}")
    for change in changes:
        console.warn(f"resuming although {change}")


def _changes(checkpoint: Checkpoint, data: DataFolder, model_config: ModelConfig) -> list[str]:
    """Describes what differs from the checkpoint in model, data and version."""
    changes = [_change(*option) for option in model_config.changed_from(checkpoint.model_config.to_dict())]
    if checkpoint.provenance["data"] != data.meta.fingerprint:
        changes.append("it was trained on another data folder")
    if checkpoint.provenance.get("plan") != PLAN_VERSION:
        changes.append("another version of nmt planned its updates")
    return changes


def _change(name: str, then: Any, now: Any) -> str:
    return f"{flag_name(name)} was {_shown(then)} and is now {_shown(now)}"


def _shown(value: Any) -> str:
    return (" ".join(map(str, value)) or "empty") if isinstance(value, tuple) else str(value)
