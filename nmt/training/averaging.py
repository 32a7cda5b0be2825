"""Averages of weights: of checkpoints (paper §6.1), and over the updates of a training."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from nmt import console
from nmt.checkpoint import Checkpoint, differences_of, joint_codec, load_checkpoint
from nmt.checkpoint_format import SUFFIX, read_provenance
from nmt.errors import NmtError
from nmt.training.lora import FrozenBase
from nmt.training.records import Scores
from nmt.training.run_folder import BEST, numbered

# The largest number of differences between two checkpoints that a message lists.
_NAMED_DIFFERENCES = 3
# What snapshots with only the weights that have learned must have in common. The file itself may have moved.
_BASE = {"lora": "--lora", "sha256": "the SHA-256 of the checkpoint that it has learnt from"}


def average_checkpoints(paths: Sequence[Path]) -> Checkpoint:
    """Returns a whole model with the mean of checkpoints' weights (paper §6.1), which may be snapshots of --lora.

    Raises:
        NmtError: the checkpoints are not of one model, or what they were trained from has changed.
    """
    checkpoints = [load_checkpoint(path, verify=True, whole=False) for path in paths]
    first, codec = checkpoints[0], checkpoints[0].codec
    bases = [checkpoint.provenance.get("learned_from", {}) for checkpoint in checkpoints]
    for path, checkpoint, base in zip(paths, checkpoints, bases, strict=True):
        changed = checkpoint.model_config.incompatible_options(first.model_config.to_dict())
        differences = [f"{name} is {value} instead of {first_value}" for name, first_value, value in changed]
        for field, what in _BASE.items():
            if base.get(field) != bases[0].get(field):
                differences.append(f"{what} is {base.get(field)!s:.12} instead of {bases[0].get(field)!s:.12}")
        if (joint := joint_codec(codec, checkpoint.codec)) is None:
            differences.append("the vocabulary or text processing differs")
        differences += differences_of(first.weights, checkpoint.weights)
        if differences:
            raise NmtError(
                f"{path} cannot be averaged with {paths[0]}: {'; '.join(differences[:_NAMED_DIFFERENCES])}; "
                f"average checkpoints of one run"
            )
        codec = joint or codec
    last, reference = checkpoints[-1], bases[-1]
    provenance = {"averaged": [str(path) for path in paths], "last": last.provenance}
    if reference:
        frozen = FrozenBase(reference["path"], last.model_config, codec, reference["lora"])
        frozen.check(reference["sha256"], paths[-1])
        computed = frozen.whole_weights([checkpoint.weights for checkpoint in checkpoints])
        return Checkpoint(last.model_config, codec, {}, provenance | frozen.added_pieces, computed=computed)
    means = {}
    for name, weight in first.weights.items():
        total = weight.double()
        for checkpoint in checkpoints[1:]:
            total += checkpoint.weights[name].double()
        means[name] = (total / len(paths)).to(weight.dtype)
    return Checkpoint(last.model_config, codec, means, provenance)


def chosen_checkpoints(paths: Iterable[str], last: int, best: int | None = None) -> list[Path]:
    """Returns checkpoints: each given file, and of each given run folder the `last` newest, or the `best` if given.

    Raises:
        NmtError: a folder does not have so many.
    """
    checkpoints: list[Path] = []
    for path in map(Path, paths):
        if not path.is_dir():
            checkpoints.append(path)
        elif best is None:
            snapshots = numbered(path, "snapshot")
            if not snapshots:
                raise NmtError(f"{path} holds no checkpoints; give the --save-dir of a training that has written some")
            if len(snapshots) < last:
                raise NmtError(
                    f"{path} holds {console.counted(len(snapshots), 'checkpoint')}, but --last is {last}; give a "
                    f"smaller --last, or let nmt train write checkpoints more often (--save-updates, --save-minutes)"
                )
            checkpoints += snapshots[-last:]
        elif best == 1 and (path / BEST).exists():
            checkpoints.append(path / BEST)
        else:
            kept = numbered(path, "best")
            if len(kept) < best:
                raise NmtError(
                    f"{path} holds {len(kept)} checkpoints best-NUMBER{SUFFIX}, but --best is {best}; give a smaller "
                    f"--best (1 takes {BEST}), or let nmt train keep more with --keep-best"
                )
            checkpoints += sorted(sorted(kept, key=_quality, reverse=True)[:best])
    return checkpoints


def _quality(path: Path) -> tuple[float, float]:
    provenance = read_provenance(path)
    try:
        return Scores(**provenance["validation"]).quality(provenance["options"]["valid_metric"][0])
    except (LookupError, TypeError, AttributeError) as error:
        raise NmtError(f"{path} does not say how its validation ended; move it out of the folder") from error


class MovingAverage:
    """The average a ← β a + (1 − β) w of a model's weights w over the updates.

    After update n, β is `decay` or (1 + n) / (10 + n), whichever is smaller. Otherwise the average would contain
    the initial weights for a long time. If `decay` is None, there is no average. Frozen weights have none.
    """

    def __init__(self, model: nn.Module, decay: float | None) -> None:
        self._weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        self.decay = decay
        self.averages: dict[str, Tensor] = {}  # by the name of the weight; empty before the first update

    def add(self, update: int) -> None:
        """Adds the weights after an update, counted from 1."""
        if self.decay is None:
            return
        weights = [weight.detach() for weight in self._weights.values()]
        if not self.averages:
            self.averages = dict(zip(self._weights, (weight.clone() for weight in weights), strict=True))
        torch._foreach_lerp_(list(self.averages.values()), weights, 1 - min(self.decay, (1 + update) / (10 + update)))

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Gives the model the average, if there is one, in place of its weights until the block ends."""
        weights = {name: self._weights[name].data for name in self.averages}
        try:
            for name, average in self.averages.items():
                self._weights[name].data = average
            yield
        finally:
            for name, weight in weights.items():
                self._weights[name].data = weight

    def load(self, averages: Mapping[str, Tensor]) -> None:
        """Continues from these averages. If there are none, the next update begins a new average."""
        weights = self._weights if averages and self.decay is not None else {}
        self.averages = {name: averages[name].to(weight.device, copy=True) for name, weight in weights.items()}
