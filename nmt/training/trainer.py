"""Training: from a data folder and an architecture to a run folder of checkpoints."""

import math
import time
from collections.abc import Iterator
from contextlib import closing, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nmt import console
from nmt.checkpoint import Checkpoint, load_weights, new_model
from nmt.config import ModelConfig, TrainConfig
from nmt.data.batching import UpdatePlan
from nmt.data.loader import Batch, Update
from nmt.data.store import DataFolder
from nmt.data.verification import Verification
from nmt.errors import DataChanged, Interrupted
from nmt.model.cost import training_flops
from nmt.model.runtime import Runtime, is_out_of_memory
from nmt.options import flag_name
from nmt.training.agreement import end_together
from nmt.training.checks import check_fit
from nmt.training.distributed import World, joined
from nmt.training.finite import SkippedUpdates, first_not_finite
from nmt.training.gradients import Gradients
from nmt.training.interrupts import StopSignals
from nmt.training.loss import TrainingLoss
from nmt.training.metrics import Interval, peak_memory_mib
from nmt.training.optimizer import Optimizer
from nmt.training.records import METRICS, MetricsFile
from nmt.training.run_folder import RunFolder
from nmt.training.state import Counters, provenance, start_record, trains_something_else
from nmt.training.stream import UpdateStream
from nmt.training.summary import show_interval, show_plan
from nmt.training.validation import Validator


def train(data_folder: str, model_config: ModelConfig, config: TrainConfig) -> None:
    """Trains until `config.max_updates`, from the run folder's newest state where it holds one.

    Raises:
        NmtError: the data, the run folder or an option does not fit; says which.
        DataChanged: the data folder changed meanwhile; the state is in the run folder.
        Interrupted: a signal asked to stop; the state is in the run folder.
    """
    with joined(config) as (world, runtime, stop):
        data, folder = DataFolder.open(data_folder), RunFolder(Path(config.save_dir))
        verification = Verification(data) if world.is_main else None
        flags = {flag_name(name): value for name, value in (model_config.to_dict() | config.to_dict()).items()}
        world.require_same({"the data folder": data.fingerprint, "precision": runtime.precision, **flags})
        check_fit(data, model_config, config)
        with folder.locked() if world.is_main else nullcontext():
            Trainer(data, model_config, config, folder, runtime, world, stop).train(verification)


class Trainer:
    """One run: model, optimiser, counters, and the loop over updates."""

    def __init__(
        self,
        data: DataFolder,
        model_config: ModelConfig,
        config: TrainConfig,
        folder: RunFolder,
        runtime: Runtime,
        world: World,
        stop: StopSignals,
    ) -> None:
        self.data, self.model_config, self.config, self.folder = data, model_config, config, folder
        self.runtime, self.world, self.stop = runtime, world, stop
        data.split("valid")  # so that damage shows before training, not at the first validation
        self.device_tokens = config.tokens_at_once(runtime.device.type, model_config.d_model)
        self.metrics = MetricsFile(folder.path / METRICS)
        self.counters = Counters()
        torch.manual_seed(config.seed)
        model = TrainingLoss(new_model(model_config, data.codec), config.label_smoothing)
        self.model = model.to(runtime.device).train()
        self.gradients = Gradients(self.model, data, runtime, world)
        if config.compile:
            self.gradients.compile_layers()
        self.stream = UpdateStream(data.split("train"), config, self.device_tokens, self.gradients.packs, world)
        self.validator = Validator(self.model, data, runtime, config.valid_bleu, self.device_tokens, world, stop)
        self.skipped = SkippedUpdates(config.max_skipped_updates, world, self._what_went_wrong)
        self.optimizer = Optimizer(self.model.parameters(), model_config.d_model, config)

    def train(self, verification: Verification | None) -> None:
        """Resumes what there is, then trains to the end. The main rank gives the data's `verification`."""
        try:
            self.resume()
            self.run(self.prepare(verification))
        except (Interrupted, DataChanged) as ended:
            self._save_state()
            self.world.wait()  # a launcher that sees one rank end would end the one that is writing
            update = self.counters.update
            done = (
                f"after update {update:,}, which is safe in {self.folder.path}" if update else "before the first update"
            )
            if isinstance(ended, DataChanged):
                raise DataChanged(f"training stopped {done}: {ended.found}") from ended
            raise Interrupted(f"stopped {done}; start the same command again to go on") from ended

    def prepare(self, verification: Verification | None) -> UpdatePlan:
        """Returns the plan of this epoch and says what is trained.

        Raises:
            NmtError: a micro-batch does not fit into memory, or the data is damaged.
        """
        plan = self.stream.plan(self.counters.epoch)
        hardware, tokens = self.gradients.hardware, self.device_tokens
        show_plan(self.data, self.model_config, self.config, plan, tokens, self.parameters, hardware, self.world)
        self.gradients.check_memory(plan.epoch.widest, tokens, self.optimizer.missing_bytes)
        damage = self.world.from_main(
            lambda: verification.error(lambda: self.stop.received) if verification else None,
        )
        if damage:
            raise damage
        return plan

    @property
    def parameters(self) -> int:
        """Numbers that are trained."""
        return sum(p.numel() for p in self.model.parameters())

    # Checkpoints

    def resume(self) -> None:
        """Takes over weights, optimiser and counters of the newest state in the run folder, if there is one."""
        found = self.folder.newest_state() if self.world.is_main else None
        path = self.world.from_main(lambda: found[0] if found else None)
        if path is None:
            if self.world.is_main:
                self.metrics.rewind(0)
            return
        checkpoint = found[1] if found else self.folder.load_when_there(path)
        counters = Counters(**checkpoint.training["counters"])
        if trains_something_else(checkpoint, path, self.data, self.model_config, self.config):
            counters.skip_to_next_epoch()
            counters.best = -math.inf
        if checkpoint.provenance["options"]["valid_bleu"] != self.config.valid_bleu:
            counters.best = -math.inf  # which was another measure
        load_weights(self.model.model, checkpoint, path)
        self.optimizer.load_state_dict(checkpoint.training["optimizer"])
        self.counters = counters
        if self.world.is_main:
            self.metrics.rewind(counters.update)
            self.folder.forget_after(counters.update)
        console.info(f"resumed from {path} after update {counters.update:,}")

    def checkpoint(self) -> Checkpoint:
        """Weights, optimiser and counters as they are now."""
        weights = {name: tensor.detach().cpu() for name, tensor in self.model.model.state_dict().items()}
        training = {"optimizer": self.optimizer.state_dict(), "counters": vars(self.counters).copy()}
        return Checkpoint(self.model_config, self.data.codec, weights, self._provenance(), training)

    def _provenance(self) -> dict[str, Any]:
        return provenance(self.data, self.config, self.runtime.precision, self.world.size, self.counters.update)

    def _save(self) -> None:
        """A snapshot and a state."""
        self.counters.snapshot_seconds = self.counters.seconds
        if self.world.is_main:
            path = self.folder.save_snapshot(self.checkpoint(), self.counters.update, self.config.keep_checkpoints)
            console.info(f"saved {path}")
        self._save_state()

    def _save_state(self) -> None:
        if self.world.is_main and self.counters.update:
            self.folder.save_state(self.checkpoint(), self.counters.update)

    # The loop

    def run(self, plan: UpdatePlan) -> None:
        """Updates until `max_updates`, with log lines, validation and snapshots in between; `plan` is this epoch's.

        Raises:
            Interrupted: on all ranks, if any of them was asked to stop.
            DataChanged: on all ranks, if the data of any of them has changed.
        """
        config, counters = self.config, self.counters
        interval = Interval()
        done = counters.update
        if counters.validation_due(config):  # but not done, because the run was stopped meanwhile
            self._validate()
            if done == config.max_updates or counters.snapshot_due(config):
                self._save()
        if done >= config.max_updates:
            console.info(f"nothing to do: {self.folder.path} is at update {done:,}; raise --max-updates to train on")
            return
        if self.world.is_main:
            trained = start_record(self.data, self.model_config, self.parameters, counters, self.runtime.name)
            self.metrics.append("start", trained | self._provenance())
        with (
            console.Progress("train", config.max_updates, "updates", completed=done, lines=False) as progress,
            closing(self.stream.updates(plan, counters)) as updates,
        ):
            for update in updates:
                self.update(update, interval)
                progress.advance(1)
                last = counters.update == config.max_updates
                if last or counters.update % config.log_updates == 0:
                    self._log(interval, progress.seconds_left)
                    interval = Interval()
                if counters.validation_due(config):
                    interval.exclude(self._validate)
                if last or (counters.snapshot_due(config) and not self.skipped.is_going_on()):
                    interval.exclude(self._save)
                if last:
                    break

    def update(self, update: Update, interval: Interval) -> None:
        """One optimiser step on the gradient of the loss's mean over the update's target tokens (paper §5.3, §5.4).

        The counters move on only when it is complete, so that an update that is broken off is done anew.

        Raises:
            Interrupted: on all ranks, if any of them was asked to stop.
            DataChanged: on all ranks, if the training data of any of them has changed.
        """
        counters = self.counters
        started = time.monotonic()
        losses = torch.zeros(2, device=self.runtime.device)
        for number, batch in enumerate(update.batches):
            end_together(self.world, Interrupted() if self.stop.received else None)
            self._seed_dropout(counters.update + 1, number)
            last = number == len(update.batches) - 1
            losses += torch.stack(self.gradients.add(batch, 1 / update.target_tokens, last=last))
        norm, skipped = self.optimizer.step(counters.update + 1)
        counters.update += 1
        counters.update_in_epoch += 1
        counters.flops += training_flops(
            self.model_config, len(self.data.codec.target), update.source_tokens, update.target_tokens
        )
        interval.add(update.batches, losses, norm, skipped)
        self.skipped.note(counters.update, update.batches, skipped)
        counters.seconds += time.monotonic() - started

    def _seed_dropout(self, update: int, micro_batch: int) -> None:
        """So that dropout depends on nothing but where training is, and resuming repeats it."""
        place = (self.config.seed, update, self.world.rank, micro_batch)
        torch.manual_seed(int(np.random.SeedSequence(place).generate_state(1, np.uint64)[0] >> 1))

    def _what_went_wrong(self, update: int, batches: list[Batch]) -> str | None:
        def passes() -> Iterator[list[Tensor]]:
            for number, batch in enumerate(batches):
                self._seed_dropout(update, number)
                yield self.gradients.compute(batch)

        try:
            with torch.compiler.set_stance("force_eager"):  # compiled layers do not show what is within
                return first_not_finite(self.model, passes())
        except RuntimeError as error:
            if is_out_of_memory(error):
                return None
            raise

    # What the user sees

    def _log(self, interval: Interval, seconds_left: float) -> None:
        counters = self.counters
        self.skipped.check()
        record = {
            "update": counters.update,
            "epoch": counters.epoch,
            **interval.record(self.world),
            "lr": self.optimizer.learning_rate(counters.update),
            "peak_memory_mib": peak_memory_mib(self.runtime.device),
            "flops": counters.flops,
            "train_seconds": counters.seconds,
        }
        if self.world.is_main:
            self.metrics.append("train", record)
        show_interval(record, seconds_left)

    def _validate(self) -> None:
        found = self.validator.validate()
        counters = self.counters
        counters.validated = counters.update
        better = found.goodness > counters.best
        bleu = "" if found.bleu is None else f" | BLEU {found.bleu:.2f}"
        best = " | best" if better else ""
        console.info(f"valid at {counters.update:,} | nll {found.nll:.3f} | ppl {found.ppl:.2f}{bleu}{best}")
        if better:
            counters.best = found.goodness
        if self.world.is_main:
            record = {"update": counters.update, "train_seconds": counters.seconds, **asdict(found)}
            self.metrics.append("valid", record)
            if better:
                self.folder.save_best(self.checkpoint())
