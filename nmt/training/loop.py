"""The training loop: updates, one after the other, with log lines, validations and saved checkpoints."""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from typing import Any

from nmt import console
from nmt.checkpoint import save_checkpoint
from nmt.data.batching import UpdatePlan
from nmt.errors import NmtError, StoppedError
from nmt.model.out_of_memory import is_out_of_memory
from nmt.training.checkpoints import provenance_of, snapshot_of, training_state_of
from nmt.training.clock import Clock
from nmt.training.log import Interval, TrainingLog
from nmt.training.records import ranked
from nmt.training.run_folder import BEST, STATES_KEPT, RunFolder, flag_words, options_of, write_config
from nmt.training.skipped import SkippedUpdates
from nmt.training.state import Setup, TrainState
from nmt.training.update import MemoryRanOutError, endless_updates, train_update
from nmt.training.validation import validate


class TrainingLoop:
    """Trains a state, and writes checkpoints and metrics to a run folder."""

    def __init__(self, setup: Setup, state: TrainState, folder: RunFolder, clock: Clock | None = None) -> None:
        self.setup, self.state, self.folder, self.clock = setup, state, folder, clock
        self.skipped = SkippedUpdates(setup, state)
        self.log = TrainingLog(setup, state, folder)

    def run(self, plan: UpdatePlan) -> None:
        """Trains up to --max-updates; `plan` is the plan of the state's epoch.

        Raises:
            StoppedError: on all ranks, if any of them was asked to stop.
        """
        setup, state = self.setup, self.state
        if state.is_over(setup.config) and not state.validation_due(setup.config):
            self.log.show_end("nothing to do: ")
            self._save_average()
            return
        self._write_config()
        self.log.begin(provenance_of(setup, state))
        try:
            self._catch_up()
            if not state.is_over(setup.config):
                self._train(plan)
        except Exception as error:
            with suppress(NmtError):  # the error that ended the training matters more than a failure to record it
                self.log.end("stopped" if isinstance(error, StoppedError) else "failed", str(error))
            raise
        self.log.end("finished")
        self.log.show_end()
        self._save_average()
        if setup.world.is_main:
            self.log.summary()
            if self.clock and not state.out_of_patience(setup.config):
                self.clock.warn_if_short(state.counters.update, setup.config)

    def _train(self, plan: UpdatePlan) -> None:
        setup, state, counters = self.setup, self.state, self.state.counters
        if setup.config.init_from and not state.validations:
            self._validate()
        if self.clock:
            self.clock.start(setup.config)
        interval, total = Interval(), setup.config.max_updates
        with (
            console.Progress("train", total, "update", lines=False) as progress,
            closing(endless_updates(setup, state, plan)) as stream,
        ):
            progress.begin(total, counters.update)
            for update in stream:
                with self._counted():
                    result = train_update(setup, state, update)
                    if result:
                        interval.add(update.batches, result)
                        self.skipped.note(counters.update, update.batches, result.skipped)
                if not result:  # memory ran out, and the stream repeats the update
                    continue
                progress.advance(1)
                if self.clock and counters.update >= self.clock.next_look:
                    self._follow(self.clock)
                    progress.resize(setup.config.max_updates)
                config = setup.config
                if counters.update == config.max_updates or counters.update % config.log_updates == 0:
                    interval = self._log(interval, progress.seconds_left)
                if state.validation_due(config):
                    interval.exclude(self._validate)
                is_over = state.is_over(config)
                if is_over and interval.updates:  # --patience ends the training between two log lines
                    interval = self._log(interval, 0.0)
                if is_over or (counters.snapshot_due(config) and not self.skipped.last_was_skipped()):
                    interval.exclude(self._save)
                if is_over:
                    break

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Counts the time of the block as training time. It must wait for the device, which works after the CPU."""
        began = time.monotonic()
        yield
        self.state.counters.seconds += time.monotonic() - began

    def _log(self, interval: Interval, seconds_left: float) -> Interval:
        """Logs an interval; returns the next one."""
        with self._counted():
            self.skipped.check()
        self.log.interval(interval, seconds_left)
        return Interval()

    def _follow(self, clock: Clock) -> None:
        """Sets --max-updates to what fits into the time that is left, and perhaps the options that follow from it."""
        setup, update = self.setup, self.state.counters.update
        options: dict[str, Any] = setup.world.broadcast(lambda: clock.options(update, setup.config))
        if len(options) > 1:
            flags = " ".join(" ".join(flag_words(name, value)) for name, value in options.items())
            console.info(f"the plan follows the speed: {flags}")
        setup.config = replace(setup.config, **options)
        clock.next_look = update + max(1, (setup.config.max_updates - update) // 20)
        self._write_config()

    def _catch_up(self) -> None:
        """Performs a validation, and the save that follows it, that were due when training stopped."""
        config, state = self.setup.config, self.state
        if state.validation_due(config):
            self._validate()
            if state.is_over(config) or state.counters.snapshot_due(config):
                self._save()
            elif self.setup.world.is_main:
                self.save_state()  # so that a process that is killed now does not validate again

    def _validate(self) -> None:
        counters, config = self.state.counters, self.setup.config
        started = time.monotonic()
        try:
            validation = validate(self.setup, self.state)
        except (RuntimeError, MemoryError, NmtError) as error:  # NmtError: a single sentence was too long to translate
            if not is_out_of_memory(error) and not (error.__cause__ and is_out_of_memory(error.__cause__)):
                raise
            raise MemoryRanOutError(f"memory ran out in the validation at update {counters.update:,}") from error
        self.state.validations.append(validation.scores)
        best_first = [scores.update for scores in ranked(self.state.validations, config.valid_metric[0])]
        is_best, kept = best_first[0] == counters.update, best_first[: config.keep_best]
        self.log.validation(validation, time.monotonic() - started, is_best=is_best)
        if self.setup.world.is_main and counters.update in kept:
            snapshot = snapshot_of(self.setup, self.state)
            if config.keep_best > 1:
                self.folder.keep_best(snapshot, counters.update, kept)
            if is_best:
                save_checkpoint(snapshot, self.folder.path / BEST)
                self.save_state()  # so that training never resumes before the update of best.safetensors
        if self.clock:
            self.clock.pause("validation", time.monotonic() - started, config)

    def _save(self) -> None:
        """Writes a checkpoint and a training state."""
        counters, config, started = self.state.counters, self.setup.config, time.monotonic()
        counters.snapshot_seconds = counters.seconds
        if self.setup.world.is_main:
            keep = max(config.keep_checkpoints, config.average_last or 0)
            path = self.folder.save(snapshot_of(self.setup, self.state), "snapshot", counters.update, keep)
            console.info(f"saved {path}")
            self.save_state()
        if self.clock:
            self.clock.pause("save", time.monotonic() - started, config)

    def save_state(self) -> None:
        """Writes a training state if there was an update, or a validation of --init-from. One rank does it."""
        update = self.state.counters.update
        if update or self.state.validations:
            self.folder.save(training_state_of(self.setup, self.state), "state", update, STATES_KEPT)

    def _save_average(self) -> None:
        last = self.setup.config.average_last
        if last and self.setup.world.is_main and (path := self.folder.save_average(last)):
            console.info(f"saved {path}, the average of the last checkpoints")

    def _write_config(self) -> None:
        if self.setup.world.is_main:
            options = options_of(str(self.setup.data.path), self.setup.model_config, self.setup.config)
            write_config(self.folder.path, options)
