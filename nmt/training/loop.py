"""The training loop: a stream of updates, log lines, validations and saved checkpoints."""

import math
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

from nmt import console
from nmt.checkpoint import save_checkpoint
from nmt.data.batching import UpdatePlan, draw_epoch
from nmt.data.loader import MicroBatch, Update, updates
from nmt.errors import NmtError, StoppedError
from nmt.model.architectures import training_flops
from nmt.model.out_of_memory import is_out_of_memory
from nmt.training.gradients import SkippedUpdates
from nmt.training.log import EventFiles, Interval, TrainingTable, show_summary, start_record
from nmt.training.optimizer import learning_rate
from nmt.training.records import ranked, stalled_in_words
from nmt.training.resume import checkpoint_of, snapshot_of
from nmt.training.run_folder import BEST, STATES_KEPT, RunFolder, flag_words, options_of, write_config
from nmt.training.state import Setup, TrainState
from nmt.training.validation import validate


def plan_epoch(setup: Setup, state: TrainState) -> UpdatePlan:
    """Returns the update plan of the epoch that the state is in."""
    c, epoch = setup.config, state.counters.epoch
    split = setup.data.split("train").in_epoch(c.seed, epoch)
    lengths = split.source.lengths, split.target.lengths
    drawn = setup.world.broadcast(
        lambda: draw_epoch(*lengths, batch_tokens=c.batch_tokens, groups=c.batch_groups, seed=c.seed, epoch=epoch)
    )
    return UpdatePlan(*lengths, drawn, c.batch_groups)


def endless_updates(setup: Setup, state: TrainState, plan: UpdatePlan) -> Generator[Update, None, None]:
    """Yields this rank's part of every update, starting at the position of the state's counters, without end.

    If memory runs out in an update, the same update comes again in smaller micro-batches.

    Args:
        plan: the plan of the epoch that the state is in.
    """
    counters, world, packs = state.counters, setup.world, state.gradients.packs
    while True:
        split = setup.data.split("train").in_epoch(setup.config.seed, counters.epoch)
        if setup.model_config.guided_alignment is None:
            split = replace(split, alignments=None)  # to prepare alignments takes time
        tokens = state.device_tokens(setup)
        rest = updates(split, plan, tokens, counters.update_in_epoch, world.rank, world.size, packs=packs)
        with closing(rest) as prepared:
            for update in prepared:
                yield update
                if state.device_tokens(setup) < tokens:
                    break
            else:
                counters.skip_to_next_epoch()
                plan = plan_epoch(setup, state)


class MemoryRanOutError(NmtError):
    """Memory ran out where this process cannot repeat the work with fewer device tokens."""


class UpdateResult(NamedTuple):
    """What an update found out; all tensors stay on the device.

    Attributes:
        losses: loss and negative log-likelihood, each summed over this rank's target tokens; [2].
        norm: the gradient's norm before clipping.
        skipped: 1 if the update was skipped, because the norm is not finite; otherwise 0.
    """

    losses: Tensor
    norm: Tensor
    skipped: Tensor


def train_update(
    setup: Setup, state: TrainState, update: Update, advance: Callable[[int], None] = lambda _: None
) -> UpdateResult | None:
    """Takes one optimiser step on the mean loss of the update's target tokens.

    The counters change only when the update is complete, so an interrupted update is repeated.

    Returns:
        The result; None if memory ran out. The update must then be repeated with the lower number of device tokens
        that the counters now have.

    Raises:
        StoppedError: on all ranks, if any of them was asked to stop.
    """
    counters = state.counters
    losses = torch.zeros(2, device=setup.runtime.device)
    for number, batch in enumerate(update.batches):
        setup.world.end_together(setup.stop.received)
        _seed_dropout(setup, counters.update + 1, number)
        try:
            added = state.gradients.add(batch, 1 / update.target_tokens, last=number == len(update.batches) - 1)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            added = None
        if added is None:  # outside of the handler, because the error keeps tensors alive
            if not state.gradients.give_up_graphs():
                _lower_device_tokens(setup, state, batch)
                return None
            _discard_gradients(setup, state)
            console.warn(f"memory ran out in update {counters.update + 1:,}; training continues without CUDA graphs")
            return train_update(setup, state, update, advance)
        losses += torch.stack(added)
        advance(1)
    norm, skipped = state.optimizer.step(learning_rate(counters.update + 1, setup.model_config.d_model, setup.config))
    if state.average:
        state.average.add(counters.update + 1)
    counters.update += 1
    counters.update_in_epoch += 1
    vocabulary, tokens = len(setup.data.codec.target), (update.source_tokens, update.target_tokens)
    counters.flops += training_flops(setup.model_config, vocabulary, *tokens) + state.optimizer.flops
    return UpdateResult(losses, norm, skipped)


def _lower_device_tokens(setup: Setup, state: TrainState, batch: MicroBatch) -> None:
    """Discards the gradients, and halves the device tokens of a training with one rank."""
    lower, update = state.device_tokens(setup) // 2, state.counters.update + 1
    if sum(map(len, batch.sentences)) == 1:
        raise NmtError(
            "memory ran out on a single sentence pair; train a smaller model, drop long pairs "
            "(nmt preprocess --max-length), or use a device with more memory"
        )
    if setup.world.size > 1:
        raise MemoryRanOutError(f"rank {setup.world.rank} ran out of memory in update {update:,}")
    _discard_gradients(setup, state)
    state.counters.device_tokens = lower
    console.warn(f"memory ran out in update {update:,}; training continues with --device-tokens {lower}")


def _discard_gradients(setup: Setup, state: TrainState) -> None:
    state.loss.zero_grad(set_to_none=False)
    if setup.runtime.device.type == "cuda":
        torch.cuda.empty_cache()


def explain_skipped(setup: Setup, state: TrainState, update: int, batches: list[MicroBatch]) -> str | None:
    """Describes the first parameter, activation or gradient that is not finite in an update of this rank's batches.

    Returns None if all are finite, or if memory runs out.
    """
    found = [f"parameter {name}" for name, weight in state.loss.named_parameters() if not weight.isfinite().all()]
    modules = {module: name for name, module in state.loss.named_modules()}
    trained = [name for name, weight in state.loss.named_parameters() if weight.requires_grad]

    def check(module: nn.Module, _: Any, output: Any) -> None:
        outputs = output if isinstance(output, tuple) else (output,)
        # A loss of the user may call modules that are not part of the model.
        if module in modules and not all(x.isfinite().all() for x in outputs if isinstance(x, Tensor)):
            found.append(f"the output of {modules[module] or 'the loss'}")

    try:
        # Compiled layers hide their activations.
        with torch.compiler.set_stance("force_eager"), register_module_forward_hook(check):
            for number, batch in enumerate(batches):
                _seed_dropout(setup, update, number)
                gradients = zip(trained, state.gradients.compute(batch), strict=True)
                found += [f"the gradient of {name}" for name, gradient in gradients if not gradient.isfinite().all()]
                if found:
                    break
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return None  # the message about the divergence matters more
    return found[0] if found else None


def _seed_dropout(setup: Setup, update: int, micro_batch: int) -> None:
    """Makes dropout depend only on seed, update, rank and micro-batch, so that resuming repeats it."""
    place = (setup.config.seed, update, setup.world.rank, micro_batch)
    torch.manual_seed(int(np.random.SeedSequence(place).generate_state(1, np.uint64)[0] >> 1))


class Pace(NamedTuple):
    """The seconds that an update, a validation and a save take; 0 if there was none."""

    update: float
    validation: float
    save: float


class Clock(NamedTuple):
    """How a training follows the time.

    Attributes:
        ends_at: the monotonic time at which training should end.
        most_updates: the largest number of updates.
        schedule: returns the options that follow from a number of updates and the pace.
        warn_if_short: warns if a number of updates is too small.
    """

    ends_at: float
    most_updates: int
    schedule: Callable[[int, Pace], dict[str, int]]
    warn_if_short: Callable[[int], None]


# A plan changes only by at least this factor, because every change shifts what is due every N updates.
_FAR = 1.25


class TrainingLoop:
    """Trains a state, and writes checkpoints and metrics to a run folder."""

    def __init__(self, setup: Setup, state: TrainState, folder: RunFolder, clock: Clock | None = None) -> None:
        self.setup, self.state, self.folder, self.clock = setup, state, folder, clock
        self.validation_seconds = self.save_seconds = 0.0  # of the shortest one
        self.paused_seconds = 0.0  # of all validations and saves
        explain = partial(explain_skipped, setup, state)
        self.skipped = SkippedUpdates(setup.config.max_skipped_updates, setup.world, explain)
        self.table = TrainingTable()
        self.events: EventFiles | None = None

    def run(self, plan: UpdatePlan) -> None:
        """Trains up to --max-updates; `plan` is the plan of the state's epoch.

        Raises:
            StoppedError: on all ranks, if any of them was asked to stop.
        """
        if self.is_over() and not self.state.validation_due(self.setup.config):
            self._show_end("nothing to do: ")
            self._save_average()
            return
        with self._recorded():
            self._catch_up()
            if not self.is_over():
                self._train(plan)
        self._show_end()
        self._save_average()
        if self.setup.world.is_main:
            show_summary(self.setup, self.state, self.folder)
            if self.clock and not self.state.out_of_patience(self.setup.config):
                self.clock.warn_if_short(self.state.counters.update)

    def _train(self, plan: UpdatePlan) -> None:
        config, counters = self.setup.config, self.state.counters
        began_at, next_look = time.monotonic(), max(1, config.max_updates // 50)
        if config.init_from and not self.state.validations:
            self._validate()
        interval = Interval()
        with (
            console.Progress("train", config.max_updates, "update", completed=counters.update, lines=False) as progress,
            closing(endless_updates(self.setup, self.state, plan)) as stream,
        ):
            for update in stream:
                with self._counted():
                    result = train_update(self.setup, self.state, update)
                    if result:
                        interval.add(update.batches, *result)
                        self.skipped.note(counters.update, update.batches, result.skipped)
                if result is None:
                    continue
                progress.advance(1)
                if self.clock and counters.update >= next_look:
                    self._fit_to(self.clock, time.monotonic() - began_at)
                    config = self.setup.config
                    next_look = counters.update + max(1, (config.max_updates - counters.update) // 20)
                    progress.resize(config.max_updates)
                last = counters.update == config.max_updates
                if last or counters.update % config.log_updates == 0:
                    self._log(interval, progress.seconds_left)
                    interval = Interval()
                if self.state.validation_due(config):
                    interval.exclude(self._validate)
                    next_look = 0  # the plan depends on how long this took
                    if self.is_over() and not last:
                        last = True
                        if counters.update % config.log_updates:
                            self._log(interval, 0.0)
                if last or (counters.snapshot_due(config) and not self.skipped.last_was_skipped()):
                    interval.exclude(self._save)
                    if config.save_updates is not None:  # otherwise, the ranks save at different updates
                        next_look = 0
                if last:
                    break

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Counts the time of the block as training time. It must wait for the device, which works after the CPU."""
        began = time.monotonic()
        yield
        self.state.counters.seconds += time.monotonic() - began

    def _fit_to(self, clock: Clock, elapsed: float) -> None:
        """Sets --max-updates to what fits into the time that is left, and perhaps the options that follow from it.

        Args:
            elapsed: the seconds since the first update began, or the validation before it.
        """
        update, config = self.state.counters.update, self.setup.config

        def fitting_options() -> dict[str, int]:
            pace = Pace((elapsed - self.paused_seconds) / update, self.validation_seconds, self.save_seconds)
            pauses = pace.validation / config.valid_updates + pace.save / (config.save_updates or math.inf)
            left = clock.ends_at - time.monotonic() - pace.validation - pace.save
            updates = max(update, min(update + int(left / (pace.update + pauses)), clock.most_updates))
            revised = clock.schedule(updates, pace)
            if update > config.warmup_updates // 10:  # later, the learning rate would jump
                revised.pop("warmup_updates", None)
            factors = [value / getattr(config, name) for name, value in revised.items()]
            is_far = any(max(factor, 1 / factor) > _FAR for factor in factors)
            return {"max_updates": updates} | (revised if is_far else {})

        options: dict[str, Any] = self.setup.world.broadcast(fitting_options)
        if len(options) > 1:
            flags = " ".join(" ".join(flag_words(name, value)) for name, value in options.items())
            console.info(f"the plan follows the speed: {flags}")
        self.setup = replace(self.setup, config=replace(config, **options))
        self._write_config()

    def is_over(self) -> bool:
        """Returns whether training has reached --max-updates or the end of --patience."""
        config = self.setup.config
        return self.state.counters.update >= config.max_updates or self.state.out_of_patience(config)

    def _show_end(self, prefix: str = "") -> None:
        config, update = self.setup.config, self.state.counters.update
        if self.state.out_of_patience(config):
            best = ranked(self.state.validations, config.valid_metric[0])[0].update
            reason = stalled_in_words(config.valid_metric, config.patience or 0)
            console.info(
                f"{prefix}{self.folder.path} stopped at update {update:,}, because {reason}; "
                f"best.safetensors is of update {best:,}"
            )
        elif prefix:
            console.info(f"{prefix}{self.folder.path} is at update {update:,}; raise --max-updates to train more")

    def _catch_up(self) -> None:
        """Performs a validation, and the save that follows it, that were due when training stopped."""
        config, counters = self.setup.config, self.state.counters
        if self.state.validation_due(config):
            self._validate()
            if self.is_over() or counters.snapshot_due(config):
                self._save()
            elif self.setup.world.is_main:
                self.save_state()  # so that a process that is killed now does not validate again

    @contextmanager
    def _recorded(self) -> Iterator[None]:
        """Records the start of the training, and how the block ends: finished, stopped or failed."""
        self._write_config()
        if self.setup.world.is_main:
            self._record("start", start_record(self.setup, self.state))
            if self.setup.config.tensorboard:
                self.events = EventFiles(self.folder.path, self.state.counters.update)
        try:
            yield
        except Exception as error:
            with suppress(NmtError):  # the error that ended the training matters more than a failure to record it
                outcome = "stopped" if isinstance(error, StoppedError) else "failed"
                self._record("end", {"outcome": outcome, "message": str(error)})
            raise
        self._record("end", {"outcome": "finished", "message": "", "max_updates": self.setup.config.max_updates})

    def _write_config(self) -> None:
        if self.setup.world.is_main:
            options = options_of(str(self.setup.data.path), self.setup.model_config, self.setup.config)
            write_config(self.folder.path, options)

    def _record(self, kind: str, values: dict[str, Any]) -> None:
        """Adds a record to metrics.jsonl and, with --tensorboard, to the event files, on the main rank only."""
        if self.setup.world.is_main:
            record = {"update": self.state.counters.update, **values}
            self.folder.metrics.append(kind, record)
            if self.events:
                self.events.add(kind, record)

    def _log(self, interval: Interval, seconds_left: float) -> None:
        counters = self.state.counters
        with self._counted():
            self.skipped.check()
        record = {
            "epoch": counters.epoch,
            **interval.record(self.setup.world),
            "lr": learning_rate(counters.update, self.setup.model_config.d_model, self.setup.config),
            "peak_memory_mib": self.setup.runtime.peak_memory_mib,
            "flops": counters.flops,
            "train_seconds": counters.seconds,
            "max_updates": self.setup.config.max_updates,  # which the clock may change
        }
        self._record("train", record)
        self.table.interval(counters.update, record, seconds_left)

    def _validate(self) -> None:
        counters, config = self.state.counters, self.setup.config
        started = time.monotonic()
        try:
            found = validate(self.setup, self.state)
        except (RuntimeError, MemoryError, NmtError) as error:  # NmtError: a single sentence was too long to translate
            if not is_out_of_memory(error) and not (error.__cause__ and is_out_of_memory(error.__cause__)):
                raise
            raise MemoryRanOutError(f"memory ran out in the validation at update {counters.update:,}") from error
        self.state.validations.append(found.scores)
        best_first = [scores.update for scores in ranked(self.state.validations, config.valid_metric[0])]
        is_best, kept = best_first[0] == counters.update, best_first[: config.keep_best]
        self.table.validation(found, is_best, time.monotonic() - started)
        self._record("valid", found.record() | {"train_seconds": counters.seconds})
        if self.setup.world.is_main and counters.update in kept:
            snapshot = snapshot_of(self.setup, self.state)
            if config.keep_best > 1:
                self.folder.keep_best(snapshot, counters.update, kept)
            if is_best:
                save_checkpoint(snapshot, self.folder.path / BEST)
                self.save_state()  # so that training never resumes before the update of best.safetensors
        self.validation_seconds = self._paused(started, self.validation_seconds)

    def _save(self) -> None:
        """Writes a checkpoint and a training state."""
        counters, started = self.state.counters, time.monotonic()
        counters.snapshot_seconds = counters.seconds
        if self.setup.world.is_main:
            config = self.setup.config
            keep = max(config.keep_checkpoints, config.average_last or 0)
            path = self.folder.save(snapshot_of(self.setup, self.state), "snapshot", counters.update, keep)
            console.info(f"saved {path}")
            self.save_state()
        self.save_seconds = self._paused(started, self.save_seconds)

    def _paused(self, started: float, shortest: float) -> float:
        """Counts a pause of training that ends now; returns its seconds, or those of the shortest one before it."""
        seconds = time.monotonic() - started
        self.paused_seconds += seconds
        return min(seconds, shortest or seconds)

    def _save_average(self) -> None:
        last = self.setup.config.average_last
        if last and self.setup.world.is_main and not self.folder.has_average(last):
            console.info(f"saved {self.folder.save_average(last)}, the average of the last checkpoints")

    def save_state(self) -> None:
        """Writes a training state if there was an update, or a validation of --init-from. One rank does it."""
        if self.state.counters.update or self.state.validations:
            self.folder.save(checkpoint_of(self.setup, self.state), "state", self.state.counters.update, STATES_KEPT)
