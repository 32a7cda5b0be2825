"""`nmt train --hours`: chooses the options that were not given, from the corpus, the time, and the machine's speed."""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, replace
from functools import cache, partial
from typing import Any, NamedTuple, Self

import torch

from nmt import console
from nmt.checkpoint_file import read_model_config
from nmt.config import TrainConfig
from nmt.data.folder import DataFolder
from nmt.errors import NmtError
from nmt.training.dry_run import seconds_per_update
from nmt.training.loop import Clock, Pace, plan_epoch
from nmt.training.ranks import join_ranks
from nmt.training.resume import check_sizes
from nmt.training.run_folder import architecture, flag_words
from nmt.training.state import Setup, new_state
from nmt.training.train import check_device_tokens, check_fit, fit_memory


class Corpus(NamedTuple):
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
        train, tokens = data.split("train"), []
        for split in (train, data.split("valid")):
            tokens.append(max(split.source.lengths.total, split.target.lengths.total))
        return cls(len(train), *tokens)

    def most_updates(self, batch_tokens: int) -> int:
        """Returns the most updates of this size that help."""
        return int(_MOST_EPOCHS * max(1.0, self.tokens / batch_tokens))

    def validation_seconds(self, update_seconds: float, batch_tokens: int) -> float:
        """Returns an estimate of the time of a validation from that of an update."""
        return _VALIDATION_COST * update_seconds * self.valid_tokens / batch_tokens


class Choice(NamedTuple):
    """The value of an option, and the reason for it in words."""

    value: Any
    reason: str


class _Size(NamedTuple):
    """An architecture, and what it needs at least: pairs of the corpus, and tokens that the training can take."""

    arch: str
    pairs: int
    tokens: float


# From small to large. docs/given_time.md says which numbers were measured.
_SIZES = (
    _Size("transformer_tiny", 0, 0),
    _Size("transformer_base", 200_000, 3e8),
    _Size("transformer_big", 3_000_000, 4e9),
)
# Sizes of updates in tokens. Small corpora need small updates, and no training needs more updates than this.
_LEAST_BATCH, _MOST_BATCH, _UPDATES = 2500, 25_000, 10_000
_LEAST_WARMUP, _MOST_WARMUP = 400, 4000
# For a training that starts with the weights of a checkpoint.
_TUNING_WARMUP, _TUNING_LR_SCALE = 100, 0.3
_AVERAGED, _SNAPSHOTS, _VALIDATIONS = 6, 28, 10
# More epochs of a small corpus do not help.
_MOST_EPOCHS = 500
# Dropout by the largest number of epochs that it suits. Larger corpora take the paper's, whatever the epochs.
_DROPOUTS = ((8, 0.1), (50, 0.2), (_MOST_EPOCHS, 0.3))
_LARGE_CORPUS = 1_000_000  # pairs
# In a shorter training, earlier checkpoints are too bad to be averaged with the last one.
_UPDATES_OF_AN_AVERAGED = 100
# The share of the time that validations may take, and that saves may take. With the first and the last of each, they
# usually stay below a tenth.
_SHARE = 1 / 30
# The time that validation takes for a token, as a share of that of training.
_VALIDATION_COST = 0.4
# A training with fewer updates gives a bad model.
_LEAST_UPDATES = 100


def choose(
    corpus: Corpus, seconds: float, given: Mapping[str, Any], speed: Callable[[str], float]
) -> dict[str, Choice]:
    """Returns the options that are not given, with their reasons.

    Args:
        given: the user's options by the names of their fields, which stay as they are.
        speed: returns the tokens of each side that a training of an architecture takes in a second.
    """
    choices: dict[str, Choice] = {}
    pick = partial(_pick, choices, given)
    pairs = console.counted(corpus.pairs, "pair")
    allowed = console.clock(seconds)
    suited = f"the largest that {pairs} and {allowed} suffice for"
    arch = given.get("arch") or pick("arch", _architecture(corpus, seconds, speed), suited)
    tokens = speed(arch) * seconds
    epochs = min(tokens / corpus.tokens, _MOST_EPOCHS)
    pick("optimizer", "muon", "needs fewer updates than adam")
    size = min(max(tokens / _UPDATES, _LEAST_BATCH), _MOST_BATCH, max(corpus.tokens / 20, 500), corpus.tokens)
    size = pick("batch_tokens", round(size), f"suits {allowed} and {pairs}")
    pick("batch_groups", 4 if size < 10_000 else 8, "keeps the padding small")
    time = f"{allowed} at {speed(arch):,.0f} tokens/s of each side"
    reason = time if epochs < _MOST_EPOCHS else f"{_MOST_EPOCHS} epochs; more do not help"
    per_epoch = max(1.0, corpus.tokens / size)
    updates = pick("max_updates", max(1, int(epochs * per_epoch)), reason)
    if corpus.pairs < _LARGE_CORPUS and arch in {size.arch for size in _SIZES}:
        epochs = updates / per_epoch
        dropout = next((dropout for most, dropout in _DROPOUTS if epochs <= most), _DROPOUTS[-1][1])
        pick("dropout", dropout, f"suits {epochs:,.1f} epochs of {pairs}")
    if "init_from" in given and given.get("lr_schedule", "paper") == "paper":
        pick("lr_scale", _TUNING_LR_SCALE, "keeps what that model has learned")
    pick("valid_metric", ("nll",), "takes less time than translating")
    pace = Pace(size / speed(arch), corpus.validation_seconds(size / speed(arch), size), 0.0)
    return choices | schedule(updates, pace, given)


def _pick(choices: dict[str, Choice], given: Mapping[str, Any], name: str, value: Any, reason: str) -> Any:
    """Chooses the value of an option if it is not given; returns the option's value."""
    if name not in given:
        choices[name] = Choice(value, reason)
    return given.get(name, value)


def schedule(updates: int, pace: Pace, given: Mapping[str, Any]) -> dict[str, Choice]:
    """Returns the warm-up, and when to save, validate and log, unless they are given. All values are numbers."""
    choices: dict[str, Choice] = {}
    pick = partial(_pick, choices, given)
    if "init_from" in given:
        pick("warmup_updates", min(_TUNING_WARMUP, updates), "is short, because training begins with a trained model")
    else:
        warmup = min(max(updates // 6, _LEAST_WARMUP), _MOST_WARMUP, updates)
        limits = f"from {_LEAST_WARMUP} to {_MOST_WARMUP:,}, and never more than all of them"
        pick("warmup_updates", warmup, f"a sixth of the updates, but {limits}")

    def interval(count: int, seconds: float) -> int:
        """Returns the updates between `count` events of so many seconds, or more so that they keep to their share."""
        return max(1, updates // count, math.ceil(seconds / (_SHARE * pace.update)))

    snapshots = _SNAPSHOTS
    if "save_minutes" not in given:
        every = interval(_SNAPSHOTS, pace.save)
        snapshots = max(1, updates // every)
        every = pick("save_updates", every, f"makes about {console.counted(snapshots, 'checkpoint')}")
        snapshots = updates // every
    last = max(1, min(_AVERAGED, _AVERAGED * snapshots // _SNAPSHOTS, updates // _UPDATES_OF_AN_AVERAGED))
    last = pick("average_last", last, "averages the last checkpoints")
    pick("keep_checkpoints", last, "keeps what is averaged")
    every = interval(_VALIDATIONS, pace.validation)
    pick("valid_updates", every, f"validates about {console.counted(max(1, updates // every), 'time')}")
    every = max(1, min(100, updates // 20))
    pick("log_updates", every, f"prints about {console.counted(updates // every, 'line')}")
    return choices


def clock_of(ends_at: float, data: DataFolder, config: TrainConfig, given: Collection[str]) -> Clock:
    """Returns the clock of a training that should end at a monotonic time; `given` names the user's options."""
    corpus, options = Corpus.of(data), {name: getattr(config, name) for name in given}
    per_epoch = max(1.0, corpus.tokens / config.batch_tokens)

    def revised(updates: int, pace: Pace) -> dict[str, int]:
        validation = pace.validation or corpus.validation_seconds(pace.update, config.batch_tokens)
        measured = pace._replace(validation=validation)
        return {name: choice.value for name, choice in schedule(updates, measured, options).items()}

    def warn_if_short(updates: int) -> None:
        is_smallest = "init_from" in given or config.arch == _SIZES[0].arch
        advice = "give more time" if is_smallest else "give more time or a smaller --arch"
        if updates < _LEAST_UPDATES:
            count = console.counted(updates, "update")
            console.warn(f"the time suffices for only {count}; for a good model, {advice}, or a smaller --batch-tokens")
        elif updates < per_epoch:
            epochs = f"{updates / per_epoch:.2g} epochs"
            console.warn(f"the time suffices for only {epochs}, so the model does not see the whole corpus; {advice}")

    return Clock(ends_at, corpus.most_updates(config.batch_tokens), revised, warn_if_short)


def _architecture(corpus: Corpus, seconds: float, speed: Callable[[str], float]) -> str:
    """Returns the largest architecture that corpus and time suffice for."""
    best = _SIZES[0].arch
    for arch, pairs, tokens in _SIZES[1:]:
        # A larger architecture is slower, so the speed of the smaller one can rule it out without another measurement.
        if corpus.pairs < pairs or speed(best) * seconds < tokens:
            break
        try:
            if speed(arch) * seconds < tokens:
                break
        except NmtError as error:
            console.info(f"{arch} cannot be trained: {error}")
            break
        best = arch
    return best


# The longest measurement of an architecture, in seconds and as a share of the time. There are three of them at most.
_MEASURED_SECONDS, _MEASURED_SHARE = 6.0, 1 / 30


def with_choices(
    data_folder: str, config: TrainConfig, overrides: dict[str, Any], given: set[str], seconds: float
) -> tuple[TrainConfig, dict[str, Any]]:
    """Returns the options, with choices for those that are not given. Measures the machine, and logs each choice.

    Args:
        overrides: the options of the model that are given.
        given: the names of the other options that are given.
    """
    with join_ranks(config, "stopping; nothing is saved") as (world, runtime, stop):
        data = DataFolder.open(data_folder)
        data.verify(lambda: stop.received)
        on_gpu = runtime.device.type == "cuda"

        @cache
        def speed(arch: str) -> float:
            console.info(f"measuring the speed of {arch} …")
            batch_tokens = _MOST_BATCH if on_gpu else _LEAST_BATCH
            usual: dict[str, Any] = {"arch": arch, "optimizer": "muon", "batch_tokens": batch_tokens}
            measured = {name: value for name, value in usual.items() if name not in known}
            trained = replace(config, valid_metric=("nll",), **measured)
            setup = Setup(data, architecture(trained, overrides), trained, runtime, world, stop)
            check_fit(data, setup.model_config, trained)
            check_device_tokens(train, setup.device_tokens)
            state = new_state(setup)
            plan = plan_epoch(setup, state)
            fit_memory(setup, state, plan)
            limit = min(_MEASURED_SECONDS, seconds * _MEASURED_SHARE)
            processes = config.gpus if on_gpu else 1  # those on a CPU share its cores
            return processes * max(plan.totals) / len(plan) / seconds_per_update(setup, state, plan, limit)

        train, corpus = data.split("train"), Corpus.of(data)
        known = overrides | {name: getattr(config, name) for name in given}
        if config.init_from:
            check_sizes(config.init_from, read_model_config(config.init_from), architecture(config, overrides))
            known["arch"] = config.init_from
        choices = choose(corpus, seconds, known, speed)
    if on_gpu:  # so that the training finds the memory free
        torch.cuda.empty_cache()
    stop.check()
    _show(choices, on_gpu=on_gpu)
    values = {name: choice.value for name, choice in choices.items()}
    of_training = {f.name: values.pop(f.name) for f in fields(TrainConfig) if f.name in values}
    return replace(config, **of_training), overrides | values


def _show(choices: Mapping[str, Choice], *, on_gpu: bool) -> None:
    """Logs each choice with its reason."""
    for name, choice in choices.items():
        console.info(f"{' '.join(flag_words(name, choice.value)):<25}  {choice.reason}")
    if on_gpu:
        console.info("these choices come from measurements on CPUs")
