"""The training loop: a stream of updates, log lines, validations and saved checkpoints."""

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from nmt import console
from nmt.data.batching import UpdatePlan, draw_epoch
from nmt.data.loader import MicroBatch, Update, updates
from nmt.errors import NmtError, StoppedError
from nmt.model.architectures import training_flops
from nmt.model.device import is_out_of_memory
from nmt.training.gradients import SkippedUpdates, first_not_finite
from nmt.training.log import EventFiles, TrainingTable, show_summary, start_record
from nmt.training.metrics import Interval, peak_memory_mib
from nmt.training.records import Scores, best_updates, is_best, stalled_in_words
from nmt.training.resume import checkpoint_of, snapshot_of
from nmt.training.run_folder import RunFolder, command_line, options_of, write_config
from nmt.training.state import Setup, TrainState
from nmt.training.validation import Validator


@dataclass(frozen=True)
class UpdateStream:
    """Plans epochs and yields this rank's part of their updates, from the position of the state's counters."""

    setup: Setup
    state: TrainState

    def plan(self) -> UpdatePlan:
        """Returns the update plan of the epoch that the state is in."""
        c, epoch = self.setup.config, self.state.counters.epoch
        split = self.setup.data.split("train").in_epoch(c.seed, epoch)
        lengths = split.source.lengths, split.target.lengths
        drawn = self.setup.world.broadcast(
            lambda: draw_epoch(*lengths, batch_tokens=c.batch_tokens, groups=c.batch_groups, seed=c.seed, epoch=epoch)
        )
        return UpdatePlan(*lengths, drawn, c.batch_groups)

    def updates(self, plan: UpdatePlan) -> Generator[Update, None, None]:
        """Yields this rank's part of every update, without end.

        If memory runs out in an update, it follows once more, in smaller micro-batches.
        """
        counters, world, packs = self.state.counters, self.setup.world, self.state.gradients.packs
        train = self.setup.data.split("train")
        while True:
            split, tokens = train.in_epoch(self.setup.config.seed, counters.epoch), self.state.device_tokens(self.setup)
            rest = updates(split, plan, tokens, counters.update_in_epoch, world.rank, world.size, packs=packs)
            with closing(rest) as prepared:
                for update in prepared:
                    yield update
                    if self.state.device_tokens(self.setup) < tokens:
                        break
                else:
                    counters.skip_to_next_epoch()
                    plan = self.plan()


class OutOfMemoryError(NmtError):
    """Memory ran out on one of several ranks."""


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
        OutOfMemoryError: memory ran out on one of several ranks.
    """
    counters, started = state.counters, time.monotonic()
    losses = torch.zeros(2, device=setup.runtime.device)
    for number, batch in enumerate(update.batches):
        setup.world.end_together(setup.stop.received)
        _seed_dropout(setup, counters.update + 1, number)
        last = number == len(update.batches) - 1
        added = _add(state, batch, 1 / update.target_tokens, last)
        if added is None:
            _lower_device_tokens(setup, state, batch)
            return None
        losses += torch.stack(added)
        advance(1)
    norm, skipped = state.optimizer.step(counters.update + 1)
    vocabulary = len(setup.data.codec.target)
    if state.average:
        state.average.add(counters.update + 1)
    counters.update += 1
    counters.update_in_epoch += 1
    counters.flops += training_flops(setup.model_config, vocabulary, update.source_tokens, update.target_tokens)
    counters.seconds += time.monotonic() - started
    return UpdateResult(losses, norm, skipped)


def _add(state: TrainState, batch: MicroBatch, weight: float, last: bool) -> tuple[Tensor, Tensor] | None:
    """Adds the gradient of a batch; returns None if memory runs out."""
    try:
        return state.gradients.add(batch, weight, last=last)
    except (RuntimeError, MemoryError) as error:
        if is_out_of_memory(error):
            return None
        raise


def _lower_device_tokens(setup: Setup, state: TrainState, batch: MicroBatch) -> None:
    """Discards the gradients, and halves the device tokens of a training with one rank."""
    lower, update = state.device_tokens(setup) // 2, state.counters.update + 1
    if sum(map(len, batch.sentences)) == 1:
        raise NmtError(
            "memory ran out on a single sentence pair; train a smaller model, drop long pairs "
            "(nmt preprocess --max-length), or use a device with more memory"
        )
    if setup.world.size > 1:
        raise OutOfMemoryError(f"rank {setup.world.rank} ran out of memory in update {update:,}")
    state.loss.zero_grad(set_to_none=False)
    if setup.runtime.device.type == "cuda":
        torch.cuda.empty_cache()
    state.counters.device_tokens = lower
    console.warn(f"memory ran out in update {update:,}; training goes on with --device-tokens {lower}")


def explain_skipped(setup: Setup, state: TrainState, update: int, batches: list[MicroBatch]) -> str | None:
    """Returns what was not finite in an update of this rank's batches, in words; None if that cannot be found."""

    def gradients() -> Iterator[list[Tensor]]:
        for number, batch in enumerate(batches):
            _seed_dropout(setup, update, number)
            yield state.gradients.compute(batch)

    try:
        with torch.compiler.set_stance("force_eager"):  # compiled layers hide their activations
            return first_not_finite(state.loss, gradients())
    except RuntimeError as error:
        if is_out_of_memory(error):
            return None
        raise


def _seed_dropout(setup: Setup, update: int, micro_batch: int) -> None:
    """Makes dropout depend only on seed, update, rank and micro-batch, so that resuming repeats it."""
    place = (setup.config.seed, update, setup.world.rank, micro_batch)
    torch.manual_seed(int(np.random.SeedSequence(place).generate_state(1, np.uint64)[0] >> 1))


@dataclass(frozen=True)
class TrainingLoop:
    """Trains a state, and writes checkpoints and metrics to a run folder."""

    setup: Setup
    state: TrainState
    folder: RunFolder
    skipped: SkippedUpdates
    events: EventFiles
    table: TrainingTable = field(default_factory=TrainingTable)

    @classmethod
    def of(cls, setup: Setup, state: TrainState, folder: RunFolder) -> "TrainingLoop":
        """Returns a loop that ends with an error when training diverges."""
        explain = partial(explain_skipped, setup, state)
        skipped = SkippedUpdates(setup.config.max_skipped_updates, setup.world, explain)
        return cls(setup, state, folder, skipped, EventFiles(folder.path if setup.config.tensorboard else None))

    def run(self, stream: UpdateStream, plan: UpdatePlan) -> None:
        """Trains up to --max-updates; `plan` is the plan of the state's epoch.

        Raises:
            StoppedError: on all ranks, if any of them was asked to stop.
        """
        if self.is_over() and not self.state.validation_due(self.setup.config):
            self._show_end("nothing to do: ")
            return
        with self._recorded():
            self._catch_up()
            if not self.is_over():
                self._train(stream, plan)
        self._show_end()
        if self.setup.world.is_main:
            show_summary(self.setup, self.state, self.folder)

    def _train(self, stream: UpdateStream, plan: UpdatePlan) -> None:
        config, counters = self.setup.config, self.state.counters
        if config.init_from and not self.state.validations:
            self._validate()
        interval = Interval()
        with (
            console.Progress("train", config.max_updates, "update", completed=counters.update, lines=False) as progress,
            closing(stream.updates(plan)) as updates,
        ):
            for update in updates:
                if not self._update(update, interval):
                    continue
                progress.advance(1)
                last = counters.update == config.max_updates
                if last or counters.update % config.log_updates == 0:
                    self._log(interval, progress.seconds_left)
                    interval = Interval()
                if self.state.validation_due(config):
                    interval.exclude(self._validate)
                    if self.is_over() and not last:
                        last = True
                        if counters.update % config.log_updates:
                            self._log(interval, 0.0)
                if last or (counters.snapshot_due(config) and not self.skipped.last_was_skipped()):
                    interval.exclude(self._save)
                if last:
                    break

    def is_over(self) -> bool:
        """Returns whether training has reached --max-updates or the end of --patience."""
        config = self.setup.config
        return self.state.counters.update >= config.max_updates or self.state.out_of_patience(config)

    def _show_end(self, prefix: str = "") -> None:
        config, update = self.setup.config, self.state.counters.update
        if self.state.out_of_patience(config):
            (best,) = best_updates(self.state.validations, config.valid_metric[0], 1)
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

    def _update(self, update: Update, interval: Interval) -> bool:
        """Returns whether the update was made; otherwise memory ran out."""
        result = train_update(self.setup, self.state, update)
        if result:
            interval.add(update.batches, *result)
            self.skipped.note(self.state.counters.update, update.batches, result.skipped)
        return result is not None

    @contextmanager
    def _recorded(self) -> Iterator[None]:
        """Records the start of the training, and how the block ends: finished, stopped or failed."""
        if self.setup.world.is_main:
            self._record_start()
            self.events.open(self.state.counters.update)
        try:
            yield
        except Exception as error:
            with suppress(NmtError):  # the error that ended the training matters more than a failure to record it
                self._record_end("stopped" if isinstance(error, StoppedError) else "failed", str(error))
            raise
        else:
            self._record_end("finished", "")
        finally:
            self.events.close()

    def _record_start(self) -> None:
        command = str(self.setup.data.path), self.setup.model_config, self.setup.config
        write_config(self.folder.path, options_of(*command))
        record = start_record(self.setup, self.state) | {"command": command_line(*command)}
        self.folder.metrics.append("start", record)

    def _record_end(self, outcome: str, message: str) -> None:
        if self.setup.world.is_main:
            record = {"update": self.state.counters.update, "outcome": outcome, "message": message}
            self.folder.metrics.append("end", record)

    def _log(self, interval: Interval, seconds_left: float) -> None:
        counters = self.state.counters
        self.skipped.check()
        record = {
            "update": counters.update,
            "epoch": counters.epoch,
            **interval.record(self.setup.world),
            "lr": self.state.optimizer.learning_rate(counters.update),
            "peak_memory_mib": peak_memory_mib(self.setup.runtime.device),
            "flops": counters.flops,
            "train_seconds": counters.seconds,
        }
        if self.setup.world.is_main:
            self.folder.metrics.append("train", record)
            self.events.add("train", record)
        self.table.interval(record, seconds_left)

    def _validate(self) -> None:
        counters, config = self.state.counters, self.setup.config
        started = time.monotonic()
        with self.state.averaged():
            found = Validator(self.setup, self.state.loss).validate()
        validations = self.state.validations
        validations.append(Scores(counters.update, found.nll, found.bleu, found.chrf))
        best = is_best(validations, config.valid_metric[0])
        self.table.validation(counters.update, found, best, time.monotonic() - started)
        if self.setup.world.is_main:
            record = {"update": counters.update, "train_seconds": counters.seconds, **asdict(found)}
            self.folder.metrics.append("valid", record)
            self.events.add("valid", record)
            if best:
                self.folder.save_best(snapshot_of(self.setup, self.state))
            kept = best_updates(validations, config.valid_metric[0], config.keep_best)
            if config.keep_best > 1 and counters.update in kept:
                self.folder.keep_best(snapshot_of(self.setup, self.state), counters.update, kept)

    def _save(self) -> None:
        """Writes a checkpoint and a training state."""
        counters = self.state.counters
        counters.snapshot_seconds = counters.seconds
        if self.setup.world.is_main:
            keep = self.setup.config.keep_checkpoints
            path = self.folder.save_snapshot(snapshot_of(self.setup, self.state), counters.update, keep)
            console.info(f"saved {path}")
            self.save_state()

    def save_state(self) -> None:
        """Writes a training state if at least one update was made. One rank does it."""
        if self.state.counters.update:
            self.folder.save_state(checkpoint_of(self.setup, self.state), self.state.counters.update)
