"""The training loop: a sequence of updates, log lines, validations and saved checkpoints."""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial

from nmt import console
from nmt.data.batching import UpdatePlan
from nmt.data.loader import Update
from nmt.errors import Interrupted, NmtError
from nmt.training.command import command_line, options_of, write_config
from nmt.training.display import TrainingTable
from nmt.training.ending import show_summary
from nmt.training.finite import SkippedUpdates
from nmt.training.metrics import Interval, peak_memory_mib
from nmt.training.provenance import start_record
from nmt.training.resume import checkpoint_of, snapshot_of
from nmt.training.run_folder import RunFolder
from nmt.training.selection import Scores, best_updates, is_best, stalled_in_words
from nmt.training.setup import Setup
from nmt.training.state import TrainState
from nmt.training.stream import UpdateStream
from nmt.training.tensorboard import EventFiles
from nmt.training.update import explain_skipped, train_update
from nmt.training.validation import Validator


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
            NmtError: training diverged, or the run folder cannot be written.
            Interrupted: on all ranks, if any of them was asked to stop.
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
                self._record_end("stopped" if isinstance(error, Interrupted) else "failed", str(error))
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
