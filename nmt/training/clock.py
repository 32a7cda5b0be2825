"""The clock of `nmt train --hours`: how many updates fit into the time, and the options that suit their number."""

import math
import time
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any, NamedTuple, Self

from nmt import console
from nmt.config import TrainConfig
from nmt.data.folder import DataFolder

SMALLEST = "transformer_mini"  # of the architectures that --hours chooses from
# More epochs of a small corpus do not help.
MOST_EPOCHS = 500
_LEAST_WARMUP, _MOST_WARMUP = 400, 4000
_AVERAGED, _SNAPSHOTS, _VALIDATIONS = 6, 28, 10
# A plan changes only by at least this factor, because every change shifts what is due every N updates.
_FAR = 1.25


class CorpusSize(NamedTuple):
    """The size of a training corpus.

    Attributes:
        pairs: the number of sentence pairs.
        tokens: the number of pieces of the language that has more of them.
        valid_tokens: the same in the validation set.
    """

    pairs: int
    tokens: int
    valid_tokens: int = 0

    @classmethod
    def of(cls, data: DataFolder) -> Self:
        """Returns the size of the text in a data folder."""
        splits = data.split("train"), data.split("valid")
        return cls(len(splits[0]), *(max(split.source.lengths.total, split.target.lengths.total) for split in splits))

    def updates_per_epoch(self, batch_tokens: int) -> float:
        """Returns how many updates of this size an epoch has, at least 1."""
        return max(1.0, self.tokens / batch_tokens)

    def validation_seconds(self, update_seconds: float, batch_tokens: int) -> float:
        """Returns an estimate of the time of a validation. A token takes 0.4 of the time that it takes in training."""
        return 0.4 * update_seconds * self.valid_tokens / batch_tokens


class Choice(NamedTuple):
    """The value of an option, and the reason for it in words."""

    value: Any
    reason: str


def pick(choices: dict[str, Choice], given: Mapping[str, Any], name: str, value: Any, reason: str) -> Any:
    """Chooses the value of an option if it is not given; returns the option's value."""
    if name not in given:
        choices[name] = Choice(value, reason)
    return given.get(name, value)


def choose_by_updates(
    updates: int, given: Mapping[str, Any], update_seconds: float, validation_seconds: float, save_seconds: float = 0.0
) -> dict[str, Choice]:
    """Returns the warm-up, and when to save, validate and log, unless they are given. All values are numbers.

    Args:
        update_seconds, validation_seconds, save_seconds: how long each takes; 0 if there was none.
    """
    choices: dict[str, Choice] = {}
    choose = partial(pick, choices, given)
    if "init_from" in given:
        choose("warmup_updates", min(100, updates), "short, because the model is trained already")
    else:
        few = updates < 3 * _LEAST_WARMUP  # docs/given_time.md has measurements
        warmup = max(1, updates // 3) if few else min(max(updates // 6, _LEAST_WARMUP), _MOST_WARMUP)
        reason = "a third of so few updates" if few else f"a sixth, but from {_LEAST_WARMUP} to {_MOST_WARMUP:,}"
        choose("warmup_updates", warmup, reason)

    def interval(count: int, seconds: float) -> int:
        """Returns the updates between `count` events of so many seconds, or more so that they take 1/30 of the time.

        With the first and the last of each, validations and saves together usually stay below a tenth.
        """
        return max(1, updates // count, math.ceil(seconds / (1 / 30 * update_seconds)))

    snapshots = _SNAPSHOTS
    if "save_minutes" not in given:
        every = interval(_SNAPSHOTS, save_seconds)
        snapshots = max(1, updates // every)
        every = choose("save_updates", every, f"makes about {console.counted(snapshots, 'checkpoint')}")
        snapshots = updates // every
    # In a short training, earlier checkpoints are too bad to be averaged with the last one.
    last = max(1, min(_AVERAGED, _AVERAGED * snapshots // _SNAPSHOTS, updates // 100))
    last = choose("average_last", last, "averages the last checkpoints")
    choose("keep_checkpoints", last, "keeps what is averaged")
    every = interval(_VALIDATIONS, validation_seconds)
    choose("valid_updates", every, f"validates about {console.counted(max(1, updates // every), 'time')}")
    every = max(1, min(100, updates // 20))
    choose("log_updates", every, f"prints about {console.counted(updates // every, 'line')}")
    return choices


class Clock:
    """Follows the time of a training that should end at a monotonic time.

    Attributes:
        next_look: the update after which the plan is compared with the time. All ranks have the same.
        writes: the seconds in which the last file of each kind was written, while training went on.
    """

    def __init__(self, ends_at: float, corpus: CorpusSize, config: TrainConfig, given: Collection[str]) -> None:
        """`given` names the options that the user has given, which stay as they are."""
        self.ends_at, self._corpus = ends_at, corpus
        self._given = {name: getattr(config, name) for name in given}
        self._began_at = self._paused = 0.0
        self._pauses: dict[str, float] = {}  # the seconds of the shortest one of each kind
        self.writes: dict[str, float] = {}
        self.next_look = 0

    def start(self, config: TrainConfig) -> None:
        """Begins to measure the time of updates."""
        self._began_at, self._paused, self.next_look = time.monotonic(), 0.0, max(1, config.max_updates // 50)

    def pause(self, kind: str, seconds: float, config: TrainConfig) -> None:
        """Counts a pause for a `validation`, or to save a `snapshot`, a `state` or the `best`; the plan follows it."""
        self._paused += seconds
        self._pauses[kind] = min(seconds, self._pauses.get(kind, seconds))
        # Ranks that save by the clock do so at different updates.
        if kind == "validation" or (kind == "snapshot" and config.save_updates is not None):
            self.next_look = 0

    def options(self, update: int, config: TrainConfig) -> dict[str, Any]:
        """Returns the --max-updates that fits into the time that is left, and perhaps the options that follow from it.

        `update` is the number of updates so far.
        """
        validation, save, state = (self._pauses.get(kind, 0.0) for kind in ("validation", "snapshot", "state"))
        seconds = (time.monotonic() - self._began_at - self._paused) / update
        pauses = validation / config.valid_updates + save / (config.save_updates or math.inf)
        pauses += seconds * (state + (0.0 if config.save_updates else save)) / (60 * config.save_minutes)
        left = self.ends_at - time.monotonic() - validation - save - state - sum(self.writes.values())
        most = int(MOST_EPOCHS * self._corpus.updates_per_epoch(config.batch_tokens))
        updates = max(update, min(update + int(left / (seconds + pauses)), most))
        validation = validation or self._corpus.validation_seconds(seconds, config.batch_tokens)
        choices = choose_by_updates(updates, self._given, seconds, validation, save)
        options = {name: choice.value for name, choice in choices.items()}
        if update > config.warmup_updates // 10:  # later, the learning rate would jump
            options.pop("warmup_updates", None)
        factors = [value / getattr(config, name) for name, value in options.items()]
        is_far = any(max(factor, 1 / factor) > _FAR for factor in factors)
        return {"max_updates": updates} | (options if is_far else {})

    def warn_if_short(self, updates: int, config: TrainConfig) -> None:
        """Warns if so many updates are too few for a good model."""
        per_epoch = self._corpus.updates_per_epoch(config.batch_tokens)
        is_smallest = "init_from" in self._given or config.arch == SMALLEST
        advice = "give more time" if is_smallest else "give more time or a smaller --arch"
        if updates < 100:
            count = console.counted(updates, "update")
            console.warn(f"only {count} fit into the time; for a good model, {advice}, or a smaller --batch-tokens")
        elif updates < per_epoch:
            epochs = f"{updates / per_epoch:.2g} epochs"
            console.warn(f"only {epochs} fit into the time, so the model does not see the whole corpus; {advice}")
