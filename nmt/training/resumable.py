"""The checks before a training resumes from a training state: is it whole, and does it belong to this training?"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import fields
from itertools import chain
from pathlib import Path
from reprlib import repr as shortened
from types import NoneType
from typing import Any

from torch import Tensor

from nmt import console
from nmt.checkpoint import Checkpoint
from nmt.config import ModelConfig, TrainConfig
from nmt.data.batching import PLAN_VERSION
from nmt.data.store import DataFolder
from nmt.errors import NmtError
from nmt.options import check_type, flag_name
from nmt.training.freezing import is_frozen
from nmt.training.loss_scale import loss_scale_problem
from nmt.training.selection import Scores
from nmt.training.state import Counters

# Options that decide which sentences an update holds and which weights it changes. If one of them changes, the position
# in the epoch is void.
_PLANNED_BY = ("batch_tokens", "batch_groups", "seed", "freeze")
# Options that are about the command itself, and --arch, whose sizes are compared one by one.
_OF_THE_COMMAND = ("save_dir", "resume_changed", "arch", "tensorboard")

_MOST_UPDATES = 2**31
# Counters of training states of nmt 0.2.0, which had no list of validations.
_FORMER_COUNTERS = {"best", "validated"}


def check_resumable(checkpoint: Checkpoint, origin: Path) -> None:
    """Checks that a checkpoint holds everything that training needs to resume, with the right types and shapes.

    Raises:
        NmtError: something is missing or malformed; the message says what.
    """
    training = checkpoint.training
    problems = chain(
        _counter_problems(training.get("counters")),
        _validation_problems(training.get("validations", [])),
        _provenance_problems(checkpoint.provenance),
        _average_problems(training.get("average", {}), checkpoint.weights),
        _optimizer_problems(training.get("optimizer"), checkpoint),
    )
    if problem := next(problems, None) or ("loss_scale" in training and loss_scale_problem(training["loss_scale"])):
        raise NmtError(
            f"{origin} is not a training state that this version of nmt can resume: {problem}; move it elsewhere to "
            f"resume from the state before it"
        )


def _counter_problems(counters: Any) -> Iterator[str]:
    declared = {field.name: field.type for field in fields(Counters)}
    former = counters.keys() & _FORMER_COUNTERS if isinstance(counters, dict) else set()
    if not isinstance(counters, dict) or counters.keys() - former != declared.keys():
        yield f"its counters are not {', '.join(declared)}"
        return
    for name, kind in declared.items():
        types, limit = ((int,), _MOST_UPDATES) if kind is int else ((float, int), math.inf)
        if type(counters[name]) not in types or not 0 <= counters[name] < limit:
            yield f"its counter {name} has the invalid value {shortened(counters[name])}"
    for name in former:
        if type(counters[name]) not in (float, int):
            yield f"its counter {name} has the invalid value {shortened(counters[name])}"


def _validation_problems(validations: Any) -> Iterator[str]:
    wanted = [field.name for field in fields(Scores)]
    if not isinstance(validations, list):
        yield "its validations are no list"
        return
    for scores in validations:
        if not isinstance(scores, dict) or scores.keys() != set(wanted):
            yield f"a validation does not consist of {', '.join(wanted)}"
        elif type(scores["update"]) is not int or not 0 <= scores["update"] < _MOST_UPDATES:
            yield f"a validation has the invalid update {shortened(scores['update'])}"
        elif type(scores["nll"]) is not float or not {type(scores["bleu"]), type(scores["chrf"])} <= {float, NoneType}:
            yield f"the validation of update {scores['update']} has a score that is no number"


def _average_problems(averages: Any, weights: Mapping[str, Tensor]) -> Iterator[str]:
    if not isinstance(averages, dict) or (averages and averages.keys() != weights.keys()):
        yield "its average does not have the names of the weights"
        return
    for name, average in averages.items():
        if not _has_shape(average, weights[name].shape):
            yield f"its average of {name!r:.80} is not a tensor of shape {tuple(weights[name].shape)}"


def _trained(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """Returns the weights that training changes."""
    options = checkpoint.provenance.get("options")
    groups = options.get("freeze", ()) if isinstance(options, dict) else ()
    return {name: weight for name, weight in checkpoint.weights.items() if not is_frozen(name, groups)}


def _optimizer_problems(optimizer: Any, checkpoint: Checkpoint) -> Iterator[str]:
    """Yields what is wrong with Adam's state, whose entries have the numbers of the trained weights."""
    weights = _trained(checkpoint)
    state = optimizer.get("state") if isinstance(optimizer, dict) else None
    if not isinstance(state, dict) or state.keys() != set(range(len(weights))):
        yield f"its optimiser does not have one state for each of the {len(weights)} weights"
        return
    for number, (name, weight) in enumerate(weights.items()):
        shapes = {"step": (), "exp_avg": weight.shape, "exp_avg_sq": weight.shape}
        moments = state[number]
        if not isinstance(moments, dict) or moments.keys() != shapes.keys():
            yield f"its optimiser's state for {name!r:.80} does not consist of {', '.join(shapes)}"
        elif wrong := [part for part, shape in shapes.items() if not _has_shape(moments[part], shape)]:
            yield f"its optimiser's {wrong[0]} for {name!r:.80} is not a tensor of shape {tuple(shapes[wrong[0]])}"
        elif not 0 <= moments["step"].item() < math.inf:
            yield f"its optimiser's step for {name!r:.80} has the invalid value {moments['step'].item()}"


def _has_shape(value: Any, shape: tuple[int, ...]) -> bool:
    return isinstance(value, Tensor) and value.shape == shape


def _provenance_problems(provenance: Mapping[str, Any]) -> Iterator[str]:
    options = provenance.get("options")
    if not isinstance(options, dict):
        yield "it lacks the options that it was trained with"
        return
    for field in fields(TrainConfig):
        if field.name in options:
            try:
                check_type(field, options[field.name])
            except NmtError as error:
                yield str(error)
    if not isinstance(provenance.get("data"), str) or not isinstance(provenance.get("plan", 0), int):
        yield "it lacks a valid data fingerprint or plan version"


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
    if checkpoint.provenance["data"] != data.fingerprint:
        changes.append("it was trained on another data folder")
    if checkpoint.provenance.get("plan") != PLAN_VERSION:
        changes.append("another version of nmt planned its updates")
    return changes


def _change(name: str, then: Any, now: Any) -> str:
    return f"{flag_name(name)} was {_shown(then)} and is now {_shown(now)}"


def _shown(value: Any) -> str:
    return (" ".join(map(str, value)) or "empty") if isinstance(value, tuple) else str(value)
