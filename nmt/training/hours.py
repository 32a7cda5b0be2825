"""`nmt train --hours`: chooses the options that were not given, from the corpus, the time, and the machine's speed."""

import os
import shlex
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import fields, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from nmt import console
from nmt.checkpoint_format import read_model_config
from nmt.config import TrainConfig
from nmt.data.folder import DataFolder
from nmt.errors import NmtError
from nmt.training.clock import MOST_EPOCHS, SMALLEST, Choice, Clock, CorpusSize, choose_by_updates, pick
from nmt.training.fine_tuning import check_sizes
from nmt.training.learning_rate import ENDLESS
from nmt.training.options import architecture, command_line, flag_words, options_of_run
from nmt.training.ranks import is_launched, is_rank, join_ranks, launch
from nmt.training.run_folder import RunFolder, numbered
from nmt.training.train import check_save_dir, dry_run, prepare, seconds_per_update, train, train_in_folder
from nmt.training.update import fit_memory, plan_epoch

# The tokens of each side that a training of an architecture takes in a second.
Speed = Callable[[str], float]
# The environment variable with which the ranks of a training learn which options are the user's. They get all options.
_GIVEN = "NMT_GIVEN"


def train_in_time(
    data_folder: str, config: TrainConfig, overrides: dict[str, Any], given: set[str], seconds: float, *, estimate: bool
) -> None:
    """Trains for about `seconds`, with choices for the options that are not given.

    A run folder that has a training state is resumed with its own options, whatever the time. The run folder is
    locked before anything is measured, so that a second training does not even measure.

    Args:
        overrides: the options of the model that are given.
        given: the names of the other options that are given.
        estimate: whether to show only the plan and what it needs (--dry-run).
    """
    ends_at = time.monotonic() + seconds
    if is_rank() and not is_launched():
        raise NmtError("--hours and --minutes do not work with torchrun; give --gpus, or all options without them")
    data, folder, clock = DataFolder.open(data_folder), RunFolder(Path(config.save_dir)), None
    if is_rank():  # it gets all options
        if estimate:
            dry_run(data_folder, architecture(config, overrides), config)
        else:
            clock = Clock(ends_at, CorpusSize.of(data), config, os.environ[_GIVEN].split())
            train(data_folder, architecture(config, overrides), config, clock)
        return
    check_save_dir(data, config)
    with nullcontext() if estimate else folder.locked():
        if numbered(folder.path, "state"):
            config, overrides = options_of_run(config, overrides, given)
        else:
            config, overrides = with_choices(data, config, overrides, given, seconds)
            is_given = "max_updates" in given
            if is_given or config.lr_schedule not in ENDLESS:
                reason = "--max-updates is given" if is_given else f"--lr-schedule {config.lr_schedule} needs it"
                console.info(f"training ends at update {config.max_updates:,} and not by the clock, because {reason}")
            else:
                clock = Clock(ends_at, CorpusSize.of(data), config, given)
                clock.warn_if_short(config.max_updates, config)
        model = architecture(config, overrides)
        if config.gpus == 1 and not estimate:
            with join_ranks(config, saves=True) as rank:
                train_in_folder(prepare(data, model, config, rank), folder, clock)
            return
    if config.gpus > 1:  # the ranks lock the folder themselves
        os.environ[_GIVEN] = " ".join(given)
        arguments = shlex.split(command_line(data_folder, model, config))[1:]
        arguments += ["--max-updates", str(config.max_updates)]
        arguments += ["--dry-run"] * estimate + ["--resume-changed"] * config.resume_changed
        if clock:
            arguments += ["--minutes", f"{max(0.1, (clock.ends_at - time.monotonic()) / 60):.3f}"]
        launch(arguments, config.gpus, config.device)
    else:
        dry_run(data_folder, model, config)


def with_choices(
    data: DataFolder, config: TrainConfig, overrides: dict[str, Any], given: set[str], seconds: float
) -> tuple[TrainConfig, dict[str, Any]]:
    """Returns the options of `train_in_time`, with choices for the others. Measures the machine; logs each choice."""
    with join_ranks(config, saves=False) as rank:
        data.verify(lambda: rank.stop.received)
        on_gpu = rank.runtime.device.type == "cuda"
        known = overrides | {name: getattr(config, name) for name in given}
        if config.init_from:
            check_sizes(config.init_from, read_model_config(config.init_from), architecture(config, overrides))
            known["arch"] = config.init_from

        @cache
        def speed(arch: str) -> float:
            console.info(f"measuring the speed of {arch} …")
            batch_tokens = _MOST_BATCH if on_gpu else _LEAST_BATCH
            usual: dict[str, Any] = {"arch": arch, "optimizer": "muon", "batch_tokens": batch_tokens}
            measured = {name: value for name, value in usual.items() if name not in known}
            trained = replace(config, valid_metric=("nll",), **measured)
            training = prepare(data, architecture(trained, overrides), trained, rank)
            plan = plan_epoch(training)
            fit_memory(training, plan)
            limit = min(6.0, seconds * (1 / 40))  # there are four measurements at most
            processes = config.gpus if on_gpu else 1  # those on a CPU share its cores
            return processes * max(plan.totals) / len(plan) / seconds_per_update(training, plan, limit)

        choices = choose(CorpusSize.of(data), seconds, known, speed)
    if on_gpu:  # so that the training finds the memory free
        torch.cuda.empty_cache()
    rank.stop.check()
    for name, choice in choices.items():
        console.info(f"{' '.join(flag_words(name, choice.value)):<25}  {choice.reason}")
    if on_gpu:
        console.info("the rules for these choices come from trainings on CPUs and are not tested on GPUs")
    values = {name: choice.value for name, choice in choices.items()}
    training_options = {f.name: values.pop(f.name) for f in fields(TrainConfig) if f.name in values}
    return replace(config, **training_options), overrides | values


# Architectures from small to large, and what each needs at least: pairs of the corpus, and tokens that the
# training can take. docs/given_time.md says which numbers were measured.
_ARCHITECTURES = {
    SMALLEST: (0, 0.0),
    "transformer_tiny": (0, 5e6),
    "transformer_base": (200_000, 3e8),
    "transformer_big": (3_000_000, 4e9),
}
# Sizes of updates in tokens. Small corpora need small updates, and no training needs more updates than this.
_LEAST_BATCH, _MOST_BATCH, _UPDATES = 2500, 25_000, 10_000
# Dropout by the largest number of epochs that it suits. Larger models have at least 0.1, and with larger corpora the
# paper's, whatever the epochs.
_DROPOUTS = ((8, 0.0), (16, 0.1), (50, 0.2), (MOST_EPOCHS, 0.3))


def choose(corpus: CorpusSize, seconds: float, given: dict[str, Any], speed: Speed) -> dict[str, Choice]:
    """Returns the options that are not given, with their reasons.

    Args:
        given: the user's options by the names of their fields, which stay as they are.
    """
    choices: dict[str, Choice] = {}
    choice = partial(pick, choices, given)
    pairs = console.counted(corpus.pairs, "pair")
    allowed = console.clock(seconds)
    suited = f"the largest for {pairs} and {allowed}"
    arch = given.get("arch") or choice("arch", _architecture(corpus, seconds, speed), suited)
    tokens = speed(arch) * seconds
    epochs = min(tokens / corpus.tokens, MOST_EPOCHS)
    choice("optimizer", "muon", "needs fewer updates than adam")
    suitable = min(max(tokens / _UPDATES, _LEAST_BATCH), _MOST_BATCH, max(corpus.tokens / 20, 500), corpus.tokens)
    batch_tokens = choice("batch_tokens", round(suitable), f"suits {allowed} and {pairs}")
    choice("batch_groups", 4 if batch_tokens < 10_000 else 8, "keeps the padding small")
    by_clock = f"about {allowed} at {speed(arch):,.0f} tokens/s; the clock decides"
    reason = by_clock if epochs < MOST_EPOCHS else f"{MOST_EPOCHS} epochs; more do not help"
    per_epoch = corpus.updates_per_epoch(batch_tokens)
    updates = choice("max_updates", max(1, int(epochs * per_epoch)), reason)
    is_small = arch in (SMALLEST, "transformer_tiny")
    if is_small or (corpus.pairs < 1_000_000 and arch in _ARCHITECTURES):
        epochs = updates / per_epoch
        dropout = next((dropout for most, dropout in _DROPOUTS if epochs <= most), _DROPOUTS[-1][1])
        dropout = dropout if is_small else max(dropout, 0.1)
        choice("dropout", dropout, f"suits {epochs:,.1f} epochs of {pairs}")
    if "init_from" in given and given.get("lr_schedule", "paper") == "paper":
        choice("lr_scale", 0.3, "keeps what that model has learnt")
    choice("valid_metric", ("nll",), "takes less time than translating")
    update_seconds = batch_tokens / speed(arch)
    validation_seconds = corpus.validation_seconds(update_seconds, batch_tokens)
    return choices | choose_by_updates(updates, given, update_seconds, validation_seconds)


def _architecture(corpus: CorpusSize, seconds: float, speed: Speed) -> str:
    """Returns the largest architecture that corpus and time suffice for."""
    best = SMALLEST
    for arch, (pairs, tokens) in list(_ARCHITECTURES.items())[1:]:
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
