"""Training: from a data folder and an architecture to a run folder of checkpoints."""

import math
import time
from collections.abc import Generator, Iterator
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
from nmt.data.batching import UpdatePlan, draw_epoch
from nmt.data.loader import Batch, Update, updates
from nmt.data.store import DataFolder
from nmt.errors import Interrupted
from nmt.model.runtime import Runtime, is_out_of_memory
from nmt.options import flag_name
from nmt.training.checks import check_device_tokens, check_fit
from nmt.training.distributed import World, joined
from nmt.training.finite import SkippedUpdates, first_not_finite
from nmt.training.gradients import Gradients
from nmt.training.interrupts import StopSignals
from nmt.training.loss import TrainingLoss
from nmt.training.metrics import Interval, MetricsFile, peak_memory_mib
from nmt.training.run_folder import RunFolder
from nmt.training.schedule import learning_rate
from nmt.training.state import Counters, provenance, trains_something_else
from nmt.training.summary import tell_plan
from nmt.training.validation import Validator

# Bytes of Adam's two moments, for each parameter.
ADAM_BYTES = 8


def train(data_folder: str, model_config: ModelConfig, config: TrainConfig) -> None:
    """Trains until `config.max_updates`, from the run folder's newest state where it holds one.

    Raises:
        NmtError: the data, the run folder or an option does not fit; says which.
        Interrupted: a signal asked to stop; the state is in the run folder.
    """
    with joined(config) as (world, runtime, stop):
        data, folder = DataFolder.open(data_folder), RunFolder(Path(config.save_dir))
        flags = {flag_name(name): value for name, value in (model_config.to_dict() | config.to_dict()).items()}
        world.require_same({"the data folder": data.fingerprint, "precision": runtime.precision, **flags})
        check_fit(data, model_config, config)
        with folder.locked() if world.is_main else nullcontext():
            Trainer(data, model_config, config, folder, runtime, world, stop).train()


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
        self.split = data.split("train")
        self.device_tokens = config.tokens_at_once(runtime.device.type, model_config.d_model)
        self.metrics = MetricsFile(folder.path / "metrics.jsonl")
        self.counters = Counters()
        torch.manual_seed(config.seed)
        model = TrainingLoss(new_model(model_config, data.codec), config.label_smoothing)
        self.model = model.to(runtime.device).train()
        self.gradients = Gradients(self.model, data, runtime, world)
        if config.compile:
            self.gradients.compile_layers()
        self.validator = Validator(self.model, data, runtime, config.valid_bleu, self.device_tokens, world, stop)
        self.skipped = SkippedUpdates(config.max_skipped_updates, world, self._what_went_wrong)
        self.adam_options: dict[str, Any] = {
            "betas": (config.adam_beta1, config.adam_beta2),
            "eps": config.adam_epsilon,
        }
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.0, fused=True, **self.adam_options)

    def train(self) -> None:
        """Resumes what there is, then trains to the end."""
        self.resume()
        plan = self.plan(self.counters.epoch)
        self.tell(plan)
        fresh = not self.optimizer.state
        self.gradients.check_memory(plan.epoch.widest, self.device_tokens, fresh * ADAM_BYTES * self.parameters)
        try:
            self.run(plan)
        except Interrupted as interrupted:
            self._save_state()
            self.world.wait()  # lest a launcher that sees a rank end should end the one that writes
            update = self.counters.update
            done = (
                f"after update {update:,}, which is safe in {self.folder.path}" if update else "before the first update"
            )
            raise Interrupted(f"stopped {done}; start the same command again to go on") from interrupted

    @property
    def parameters(self) -> int:
        """Numbers that are trained."""
        return sum(p.numel() for p in self.model.parameters())

    def tell(self, plan: UpdatePlan) -> None:
        """Says what is trained, on what, and how."""
        model, config, tokens = self.model_config, self.config, self.device_tokens
        tell_plan(self.data, model, config, plan, tokens, self.parameters, self.gradients.hardware, self.world)

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
        # Adam's options are those of now.
        self.optimizer.load_state_dict(
            {**self.optimizer.state_dict(), "state": checkpoint.training["optimizer"]["state"]}
        )
        self.counters = counters
        if self.world.is_main:
            self.metrics.rewind(counters.update)
            self.folder.forget_after(counters.update)
        console.info(f"resumed from {path} after update {counters.update:,}")

    def checkpoint(self) -> Checkpoint:
        """Weights, optimiser and counters as they are now."""
        made = provenance(self.data, self.config, self.runtime.precision, self.world.size, self.counters.update)
        weights = {name: tensor.detach().cpu() for name, tensor in self.model.model.state_dict().items()}
        training = {"optimizer": self.optimizer.state_dict(), "counters": vars(self.counters).copy()}
        return Checkpoint(self.model_config, self.data.codec, weights, made, training)

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
            Interrupted: a signal asked to stop, on all ranks alike.
        """
        config, counters = self.config, self.counters
        interval = Interval()
        done = counters.update
        if self._validation_due:  # but not done, because the run was stopped meanwhile
            self._validate()
            if done == config.max_updates or self._snapshot_due:
                self._save()
        if done >= config.max_updates:
            console.info(f"nothing to do: {self.folder.path} is at update {done:,}; raise --max-updates to train on")
        elif self.world.is_main:
            self.metrics.append("start", self._start_record())
        with console.Progress("train", config.max_updates, "updates", completed=done, lines=False) as progress:
            for update in self.updates(plan):
                self.update(update, interval)
                progress.advance(1)
                last = counters.update == config.max_updates
                if last or counters.update % config.log_updates == 0:
                    self._log(interval, progress.seconds_left)
                    interval = Interval()
                if self._validation_due:
                    interval.exclude(self._validate)
                if last or (self._snapshot_due and not self.skipped.is_going_on()):
                    interval.exclude(self._save)

    def updates(self, plan: UpdatePlan) -> Generator[Update, None, None]:
        """One update after the other, over as many epochs as it takes."""
        rank, ranks = self.world.rank, self.world.size
        while self.counters.update < self.config.max_updates:
            first = self.counters.update_in_epoch
            packs = self.gradients.packs
            with closing(updates(self.split, plan, self.device_tokens, first, rank, ranks, packs=packs)) as prepared:
                for update in prepared:
                    yield update
                    if self.counters.update == self.config.max_updates:
                        return
            self.counters.skip_to_next_epoch()
            plan = self.plan(self.counters.epoch)

    def plan(self, epoch: int) -> UpdatePlan:
        """The epoch's update plan.

        Raises:
            NmtError: a sentence is longer than --device-tokens.
        """
        c = self.config
        lengths = self.split.source.lengths, self.split.target.lengths
        drawn = self.world.from_main(
            lambda: draw_epoch(*lengths, batch_tokens=c.batch_tokens, groups=c.batch_groups, seed=c.seed, epoch=epoch)
        )
        check_device_tokens(self.split, drawn, self.device_tokens)
        return UpdatePlan(*lengths, drawn, c.batch_groups)

    def update(self, update: Update, interval: Interval) -> None:
        """One optimiser step on the gradient of the loss's mean over the update's target tokens (paper §5.3, §5.4).

        The counters move on only when it is complete, so that an update that is broken off is done anew.
        """
        counters = self.counters
        started = time.monotonic()
        losses = torch.zeros(2, device=self.runtime.device)
        for number, batch in enumerate(update.batches):
            if self.world.any(self.stop.received):
                self.optimizer.zero_grad(set_to_none=False)
                raise Interrupted
            self._seed_dropout(counters.update + 1, number)
            last = number == len(update.batches) - 1
            losses += torch.stack(self.gradients.add(batch, 1 / update.target_tokens, last=last))
        for group in self.optimizer.param_groups:
            group["lr"] = self._learning_rate(counters.update + 1)
        norm = self._clip()
        skipped = (~norm.isfinite()).float()
        self.optimizer.found_inf = skipped  # type: ignore[attr-defined] # which has Adam, if it is 1, leave all as it is
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=False)
        counters.update += 1
        counters.update_in_epoch += 1
        counters.flops += self.model_config.training_flops(
            len(self.data.codec.target), update.source_tokens, update.target_tokens
        )
        interval.add(update.batches, losses, norm, skipped)
        self.skipped.note(counters.update, update.batches, skipped)
        counters.seconds += time.monotonic() - started

    def _seed_dropout(self, update: int, micro_batch: int) -> None:
        """So that dropout depends on nothing but where training is, and resuming repeats it."""
        place = (self.config.seed, update, self.world.rank, micro_batch)
        torch.manual_seed(int(np.random.SeedSequence(place).generate_state(1, np.uint64)[0] >> 1))

    def _learning_rate(self, update: int) -> float:
        c = self.config
        return learning_rate(update, self.model_config.d_model, c.warmup_updates, c.lr_scale)

    def _clip(self) -> Tensor:
        """The gradient's norm, before it is clipped to --clip-norm if that is given."""
        parameters = list(self.model.parameters())
        norm = torch.nn.utils.get_total_norm(p.grad for p in parameters if p.grad is not None)
        if self.config.clip_norm is not None:
            torch.nn.utils.clip_grads_with_norm_(parameters, self.config.clip_norm, norm)
        return norm

    def _what_went_wrong(self, update: int, batches: list[Batch]) -> str:
        def passes() -> Iterator[list[Tensor]]:
            for number, batch in enumerate(batches):
                self._seed_dropout(update, number)
                yield self.gradients.of(batch)

        try:
            with torch.compiler.set_stance("force_eager"):  # compiled layers do not show what is within
                return first_not_finite(self.model, passes())
        except RuntimeError as error:
            if is_out_of_memory(error):
                return ""
            raise

    @property
    def _snapshot_due(self) -> bool:
        if self.config.save_updates is not None:
            return self.counters.update % self.config.save_updates == 0
        return self.counters.seconds - self.counters.snapshot_seconds >= 60 * self.config.save_minutes

    @property
    def _validation_due(self) -> bool:
        update = self.counters.update
        return update > self.counters.validated and (
            update % self.config.valid_updates == 0 or update == self.config.max_updates
        )

    # What the user sees

    def _start_record(self) -> dict[str, Any]:
        """What is trained, how, and where: what a report has to say besides figures."""
        text, config = self.data.codec.config, self.config
        return {
            "update": self.counters.update,
            "train_seconds": self.counters.seconds,
            "model": self.model_config.to_dict(),
            "parameters": self.parameters,
            "text": vars(text),
            "vocab_sizes": {"source": len(self.data.codec.source), "target": len(self.data.codec.target)},
            "pairs": len(self.split),
            "device": self.runtime.name,
            **provenance(self.data, config, self.runtime.precision, self.world.size, self.counters.update),
        }

    def _log(self, interval: Interval, seconds_left: float) -> None:
        counters = self.counters
        self.skipped.check()
        record = interval.record(self.world)
        record |= {
            "lr": self._learning_rate(counters.update),
            "peak_memory_mib": peak_memory_mib(self.runtime.device),
            "flops": counters.flops,
            "train_seconds": counters.seconds,
        }
        if self.world.is_main:
            self.metrics.append("train", {"update": counters.update, "epoch": counters.epoch, **record})
        skipped = f" | {record['skipped_updates']} skipped" if record["skipped_updates"] else ""
        console.info(
            f"update {counters.update:,} | epoch {counters.epoch + 1} | loss {record['loss']:.3f} | "
            f"ppl {record['ppl']:.2f} | lr {record['lr']:.2e} | norm {record['gradient_norm']:.2f} | "
            f"{record['target_tokens_per_second']:,.0f} tok/s{skipped} | {console.clock(seconds_left)} left"
        )

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
