"""The training loop: updates, one after the other, with log lines, validations and saved checkpoints."""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from typing import Any

from nmt import console
from nmt.checkpoint import save_checkpoint
from nmt.data.batching import UpdatePlan
from nmt.errors import MemoryRanOutError, NmtError, StoppedError
from nmt.model.device import is_out_of_memory
from nmt.training.checkpoints import provenance_of, snapshot_of, training_state_of
from nmt.training.clock import Clock
from nmt.training.log import TrainingLog
from nmt.training.run_folder import BEST, STATES_KEPT, RunFolder, flag_words, options_of, write_config
from nmt.training.state import Training
from nmt.training.update import Interval, SkippedUpdates, endless_updates, train_update
from nmt.training.validation import validate


class TrainingLoop:
    """Performs a training, and writes checkpoints and metrics to a run folder."""

    def __init__(self, training: Training, folder: RunFolder, clock: Clock | None = None) -> None:
        self.training, self.folder, self.clock = training, folder, clock
        self.skipped = SkippedUpdates(training)
        self.log = TrainingLog(training, folder)

    def run(self, plan: UpdatePlan) -> None:
        """Trains up to --max-updates; `plan` is the plan of its epoch.

        Raises:
            StoppedError: on all ranks, if any of them was asked to stop.
        """
        training = self.training
        if training.is_over and not training.validation_due:
            self.log.show_end("nothing to do: ")
            self._save_average()
            return
        self._write_config()
        self.log.begin(provenance_of(training))
        try:
            if training.validation_due:  # since before training stopped, and so is the save that follows it
                self._validate()
                if training.is_over or training.snapshot_due:
                    self._save()
                elif training.world.is_main:
                    self.save_state()  # so that a process that is killed now does not validate again
            if not training.is_over:
                self._train(plan)
        except Exception as error:
            with suppress(NmtError):  # the error that ended the training matters more than a failure to record it
                self.log.end("stopped" if isinstance(error, StoppedError) else "failed", str(error))
            raise
        self.log.end("finished")
        self.log.show_end()
        self._save_average()
        if training.world.is_main:
            self.log.summary()
            if self.clock and not training.out_of_patience:
                self.clock.warn_if_short(training.counters.update, training.config)

    def _train(self, plan: UpdatePlan) -> None:
        training, counters = self.training, self.training.counters
        if training.config.init_from and not training.validations:
            console.info("validating the model before its first update")
            self._validate()
        if self.clock:
            self.clock.start(training.config)
        interval, total = Interval(), training.config.max_updates
        progress = console.Progress("train", total, "update", lines=False)
        with progress, closing(endless_updates(training, plan)) as stream:
            progress.begin(total, counters.update)
            for update in stream:
                with self._counted():
                    result = train_update(training, update)
                    if result:
                        interval.add(update.batches, result)
                        self.skipped.note(counters.update, update.batches, result[2])
                if not result:  # memory ran out, and the stream repeats the update
                    continue
                progress.advance(1)
                if self.clock and counters.update >= self.clock.next_look:
                    self._follow(self.clock)
                    progress.total = training.config.max_updates
                config = training.config
                if counters.update == config.max_updates or counters.update % config.log_updates == 0:
                    interval = self._log(interval, progress.seconds_left)
                if training.validation_due:
                    interval.exclude(self._validate)
                is_over = training.is_over
                if is_over and interval.updates:  # --patience ends the training between two log lines
                    interval = self._log(interval, 0.0)
                if is_over or (training.snapshot_due and not self.skipped.last_was_skipped()):
                    interval.exclude(self._save)
                if is_over:
                    break

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Counts the time of the block as training time. It must wait for the device, which works after the CPU."""
        began = time.monotonic()
        yield
        self.training.counters.seconds += time.monotonic() - began

    def _log(self, interval: Interval, seconds_left: float) -> Interval:
        with self._counted():
            self.skipped.check()
        self.log.interval(interval, seconds_left)
        return Interval()

    def _follow(self, clock: Clock) -> None:
        """Sets --max-updates to what fits into the time that is left, and perhaps the options that follow from it."""
        training, update = self.training, self.training.counters.update
        options: dict[str, Any] = training.world.broadcast(lambda: clock.options(update, training.config))
        if len(options) > 1:
            changed = {name: value for name, value in options.items() if value != getattr(training.config, name)}
            flags = " ".join(" ".join(flag_words(name, value)) for name, value in changed.items())
            console.info(f"the time suffices for {options['max_updates']:,} updates, so training goes on with {flags}")
        training.config = replace(training.config, **options)
        clock.next_look = update + max(1, (training.config.max_updates - update) // 20)
        self._write_config()

    def _validate(self) -> None:
        training, config, started = self.training, self.training.config, time.monotonic()
        update = training.counters.update
        try:
            validation = validate(training)
        except (RuntimeError, MemoryError, NmtError) as error:  # NmtError: a single sentence was too long to translate
            if not is_out_of_memory(error) and not (error.__cause__ and is_out_of_memory(error.__cause__)):
                raise
            raise MemoryRanOutError(f"memory ran out in the validation at update {update:,}") from error
        training.validations.append(validation.scores)
        kept = [scores.update for scores in training.best_first[: config.keep_best]]
        is_best = kept[0] == update
        self.log.validation(validation, time.monotonic() - started, is_best=is_best)
        if training.world.is_main and update in kept:
            snapshot = snapshot_of(training, whole=True)
            if config.keep_best > 1:
                self.folder.keep_best(snapshot, update, kept)
            if is_best:
                save_checkpoint(snapshot, self.folder.path / BEST)
                self.save_state()  # so that training never resumes before the update of best.safetensors
        if self.clock:
            self.clock.pause("validation", time.monotonic() - started, config)

    def _save(self) -> None:
        counters, config, started = self.training.counters, self.training.config, time.monotonic()
        counters.snapshot_seconds = counters.seconds
        if self.training.world.is_main:
            keep = max(config.keep_checkpoints, config.average_last or 0)
            path = self.folder.save(snapshot_of(self.training), "snapshot", counters.update, keep)
            console.info(f"saved {path}")
            self.save_state()
        if self.clock:
            self.clock.pause("save", time.monotonic() - started, config)

    def save_state(self) -> None:
        """Writes a training state if there was an update, or a validation of --init-from. One rank does it."""
        update = self.training.counters.update
        if update or self.training.validations:
            self.folder.save(training_state_of(self.training), "state", update, STATES_KEPT)

    def _save_average(self) -> None:
        last = self.training.config.average_last
        if last and self.training.world.is_main and (path := self.folder.save_average(last)):
            console.info(f"saved {path}, the average of the last checkpoints")

    def _write_config(self) -> None:
        if self.training.world.is_main:
            options = options_of(str(self.training.data.path), self.training.model_config, self.training.config)
            write_config(self.folder.path, options)
