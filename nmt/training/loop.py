"""The training loop: updates, one after the other, with log lines, validations and saved checkpoints."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from nmt import console
from nmt.checkpoint import Checkpoint, save_checkpoint
from nmt.checkpoint_format import CALIBRATIONS, read_provenance
from nmt.data.batching import UpdatePlan
from nmt.errors import MemoryRanOutError, NmtError, StoppedError
from nmt.files import remove_partial_files
from nmt.model.device import is_out_of_memory
from nmt.training.averaging import average_checkpoints
from nmt.training.clock import Clock
from nmt.training.log import TrainingLog
from nmt.training.options import architecture, options_of, write_config
from nmt.training.run_folder import AVERAGE, BEST, STATES_KEPT, RunFolder, numbered
from nmt.training.snapshots import has_room_for_copies, provenance_of, snapshot_of, training_state_of
from nmt.training.state import Training
from nmt.training.update import Interval, SkippedUpdates, endless_updates, train_update
from nmt.training.validation import calibrate_checkpoint, validate


class TrainingLoop:
    """Performs a training, and writes checkpoints and metrics to a run folder.

    A thread writes the checkpoints from copies, one after the other, while training goes on. A training state is
    thus on disk only after all files of its update and of earlier ones.
    """

    def __init__(self, training: Training, folder: RunFolder, clock: Clock | None = None) -> None:
        self.training, self.folder, self.clock = training, folder, clock
        self.skipped = SkippedUpdates(training)
        self.log = TrainingLog(training, folder)
        self._writer = ThreadPoolExecutor(1, "nmt-writer")
        self._writes = deque[Future[None]]()  # of files that are being written
        self._copied_update = -1  # whose weights were copied last
        # A training state is due from these `seconds` of the counters on, and after a new best.safetensors, so
        # that training hardly ever resumes before the update of that file.
        self._state_due, self._best_is_new = 0.0, False
        self._architecture = architecture(training.config)  # the file of --init-from may be gone later

    def run(self, plan: UpdatePlan) -> None:
        """Trains up to --max-updates; `plan` is the plan of its epoch.

        Raises:
            StoppedError: on all ranks, if any of them was asked to stop.
        """
        training = self.training
        if training.is_over and not training.validation_due:
            self.log.show_end("nothing to do: ")
            self._finish(is_repeated=True)
            return
        self._write_config()
        self.log.begin(provenance_of(training))
        self._state_due = training.counters.seconds + 60 * training.config.save_minutes
        try:
            with self._writer:
                if training.validation_due:  # since before training stopped, and so is the save that follows it
                    self._validate()
                    # The state is saved so that a process that is killed now does not validate again.
                    self._save(snapshot=training.is_over or training.snapshot_due, state=True)
                if not training.is_over:
                    self._train(plan)
                self._await_writes()
        except Exception as error:
            with suppress(NmtError):  # the error that ended the training matters more than a failure to record it
                self.log.end("stopped" if isinstance(error, StoppedError) else "failed", str(error))
            raise
        self.log.end("finished")
        self.log.show_end()
        self._finish()
        self.log.summary()
        if self.clock and not training.out_of_patience:
            self.clock.warn_if_short(training.counters.update, training.config)

    def _train(self, plan: UpdatePlan) -> None:
        training, counters = self.training, self.training.counters
        if training.config.init_from and not training.validations and not counters.update:
            console.info("validating the model before it learns")
            self._validate()
            self._save(snapshot=False, state=True)
            self._await_writes()
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
                        self.skipped.note(counters.update, update.batches, result.skipped)
                if not result:  # memory ran out, and the stream repeats the update
                    continue
                progress.advance(1)
                self._await_writes(only_done=True)
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
                snapshot = is_over or (training.snapshot_due and not self.skipped.last_was_skipped())
                is_time = counters.seconds >= self._state_due
                state = is_over or self._best_is_new or (is_time and not self.skipped.last_was_skipped())
                if snapshot or state:
                    interval.exclude(partial(self._save, snapshot=snapshot, state=state))
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
            then, now = (float(f"{n:.2g}") for n in (training.config.max_updates, options["max_updates"]))
            if now != then:
                console.info(f"about {now:,.0f} updates fit into the time")
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
            in_search = "start the same command again with --valid-metric nll" if isinstance(error, NmtError) else ""
            raise MemoryRanOutError(f"memory ran out in the validation at update {update:,}", in_search) from error
        training.validations.append(validation.scores)
        kept = [scores.update for scores in training.best_first[: config.keep_best]]
        is_best = kept[0] == update
        self.log.validation(validation, time.monotonic() - started, is_best=is_best)
        if self.clock:
            self.clock.pause("validation", time.monotonic() - started, config)

        def write(snapshot: Checkpoint) -> None:
            if config.keep_best > 1:
                self.folder.keep_best(snapshot, update, kept)
            if is_best:
                save_checkpoint(snapshot, self.folder.path / BEST)

        if update in kept:
            self._write("best", partial(snapshot_of, training, whole=True), write)
        self._best_is_new |= is_best

    def _save(self, *, snapshot: bool, state: bool) -> None:
        """Saves a snapshot, or a training state, or both. The first snapshot always comes with a state."""
        training, folder, config = self.training, self.folder, self.training.config
        counters, update = training.counters, training.counters.update

        def write(checkpoint: Checkpoint) -> None:
            keep = max(config.keep_checkpoints, config.average_last or 0)
            folder.save(checkpoint, "snapshot", update, keep)
            console.info_once(f"checkpoints are saved in {folder.path}")

        if snapshot:
            counters.snapshot_seconds = counters.seconds
            self._write("snapshot", partial(snapshot_of, training), write)
        if state or not numbered(folder.path, "state"):
            self._state_due, self._best_is_new = counters.seconds + 60 * config.save_minutes, False
            save = partial(folder.save, kind="state", update=update, keep=STATES_KEPT)
            self._write("state", partial(training_state_of, training), save)

    def _write(self, kind: str, copy: Callable[..., Checkpoint], write: Callable[[Checkpoint], object]) -> None:
        """Has the thread write the main rank's copy of a checkpoint. Waits for it if memory has no room for a copy."""
        started, update = time.monotonic(), self.training.counters.update
        if self.training.world.is_main:
            if update != self._copied_update:
                self._await_writes()  # so that memory holds copies of one update only
                self._copied_update = update
            copied = has_room_for_copies(self.training)
            checkpoint, unfinished = copy(copied=copied), [*self._writes][-1:]

            def timed() -> None:
                for earlier in unfinished:
                    earlier.result()  # a state is not written if a file before it could not be written
                began = time.monotonic()
                write(checkpoint)
                if self.clock and copied:
                    self.clock.writes[kind] = time.monotonic() - began

            self._writes.append(self._writer.submit(timed))
            if not copied:
                self._await_writes()
        if self.clock:
            self.clock.pause(kind, time.monotonic() - started, self.training.config)

    def _await_writes(self, *, only_done: bool = False) -> None:
        """Waits until all files are on disk, or looks only after those that are. Raises the error of a failed one."""
        while self._writes and (self._writes[0].done() or not only_done):
            self._writes.popleft().result()

    def save_state(self) -> None:
        """Writes a training state at once if there was an update or a validation of --init-from. One rank does it."""
        self._await_writes()
        update = self.training.counters.update
        if update or self.training.validations:
            self.folder.save(training_state_of(self.training), "state", update, STATES_KEPT)

    def _finish(self, *, is_repeated: bool = False) -> None:
        """Writes the average of the newest checkpoints if it is wanted, and calibrates it or else the best one.

        If the training was finished before (`is_repeated`), only what is missing is made: checkpoints may have been
        removed since.
        """
        if not self.training.world.is_main:
            return
        last, folder = self.training.config.average_last, self.folder.path
        path = folder / (AVERAGE if last else BEST)
        snapshots = numbered(folder, "snapshot")[-last:] if last else []
        is_made = is_repeated and path.exists()
        if is_made and snapshots:
            averaged = {Path(averaged).name for averaged in read_provenance(path).get("averaged", ())}
            are_fewer = len(snapshots) < min(last or 0, len(averaged))
            is_made = {each.name for each in snapshots} <= averaged and (are_fewer or len(averaged) == len(snapshots))
        remove_partial_files(folder, (AVERAGE,))
        if snapshots and not is_made:
            save_checkpoint(average_checkpoints(snapshots), path)
            averaged_count = console.counted(len(snapshots), "checkpoint")
            console.info(f"saved {path}, the average of the last {averaged_count}")
            if last and len(snapshots) < last:
                console.warn(f"--average-last is {last}, but there are only {averaged_count}; lower --save-updates")
        if path.exists() and not (is_made and CALIBRATIONS in read_provenance(path)):
            calibrate_checkpoint(self.training, path, is_timed=self.clock is not None)

    def _write_config(self) -> None:
        if self.training.world.is_main:
            training, data_path = self.training, str(self.training.data.path)
            write_config(
                self.folder.path, options_of(data_path, training.model_config, training.config, self._architecture)
            )
