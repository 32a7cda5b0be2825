"""Training: from a data folder and an architecture to a run folder of checkpoints."""

import math
import platform
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import nmt
from nmt import console
from nmt.checkpoint import (
    Checkpoint,
    load_checkpoint,
    load_weights,
    new_model,
    numbered,
    numbered_path,
    save_checkpoint,
    save_progress,
)
from nmt.config import ModelConfig, TrainConfig, flag_name
from nmt.data.batching import UpdatePlan, make_plan
from nmt.data.loader import Batch, updates
from nmt.data.store import DataFolder
from nmt.errors import NmtError
from nmt.model.runtime import Runtime, resolve
from nmt.training.loss import TrainingLoss
from nmt.training.metrics import Interval, MetricsFile, peak_memory_mib
from nmt.training.schedule import learning_rate
from nmt.training.validation import validate

# Options that decide which sentences an update holds: with others, a place in the epoch means nothing.
_PLANNED_BY = ("batch_tokens", "batch_groups", "seed")
# Updates whose padding the summary at the start is computed from.
_SAMPLED_UPDATES = 100


@dataclass
class Counters:
    """Where training is: what, with weights and optimiser, a resumed run needs to know."""

    update: int = 0
    epoch: int = 0
    update_in_epoch: int = 0
    best: float = -math.inf
    seconds: float = 0.0
    flops: float = 0.0


def train(data_folder: str, model_config: ModelConfig, config: TrainConfig) -> None:
    """Trains until `config.max_updates`, from the run folder's newest state where it holds one.

    Raises:
        NmtError: the data, the run folder or an option does not fit; says which.
    """
    data = DataFolder.open(data_folder)
    run = _run_folder(config.save_dir)
    trainer = Trainer(data, model_config, config, run)
    trainer.resume()
    plan = trainer.plan(trainer.counters.epoch)
    trainer.summarise(plan)
    trainer.run(plan)


def _run_folder(path: str) -> Path:
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NmtError(f"--save-dir {path} cannot be made ({error.strerror}); choose another folder") from error
    return folder


class Trainer:
    """One run: model, optimiser, counters, and the loop over updates."""

    def __init__(self, data: DataFolder, model_config: ModelConfig, config: TrainConfig, folder: Path) -> None:
        self.data, self.model_config, self.config, self.folder = data, model_config, config, folder
        self.split = data.split("train")
        self.runtime: Runtime = resolve(config)
        self.metrics = MetricsFile(folder / "metrics.jsonl")
        self.counters = Counters()
        torch.manual_seed(config.seed)
        model = TrainingLoss(new_model(model_config, data.codec), config.label_smoothing)
        self.model = model.to(self.runtime.device).train()
        self.adam_options: dict[str, Any] = {
            "betas": (config.adam_beta1, config.adam_beta2),
            "eps": config.adam_epsilon,
        }
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.0, fused=True, **self.adam_options)

    # Checkpoints

    def resume(self) -> None:
        """Takes over weights, optimiser and counters of the newest state in the run folder, if there is one."""
        states = numbered(self.folder, "state")
        if not states:
            self.metrics.rewind(0)
            return
        checkpoint = load_checkpoint(states[-1])
        self._check_resumable(checkpoint, states[-1])
        self._list_changed_options(checkpoint)
        load_weights(self.model.model, checkpoint, states[-1])
        self.optimizer.load_state_dict(checkpoint.training["optimizer"])
        for group in self.optimizer.param_groups:  # which came with the options of then
            group.update(self.adam_options)
        self.counters = Counters(**checkpoint.training["counters"])
        self.metrics.rewind(self.counters.update)
        console.info(f"resumed from {states[-1]} after update {self.counters.update:,}")

    def _check_resumable(self, checkpoint: Checkpoint, path: Path) -> None:
        found, wanted = checkpoint.model_config.to_dict(), self.model_config.to_dict()
        changed = [
            f"{name} is {found[name]} there, {wanted[name]} here" for name in wanted if found[name] != wanted[name]
        ]
        if checkpoint.provenance["data"] != self.data.fingerprint:
            changed.append("it was trained on another data folder")
        then, now = checkpoint.provenance["options"], self.config.to_dict()
        changed += [f"{flag_name(o)} was {then[o]} there, is {now[o]} here" for o in _PLANNED_BY if then[o] != now[o]]
        if changed:
            raise NmtError(f"{path} cannot be resumed: {'; '.join(changed)}; choose another --save-dir")

    def _list_changed_options(self, checkpoint: Checkpoint) -> None:
        then, now = checkpoint.provenance["options"], self.config.to_dict()
        for name in now:
            if now[name] != then.get(name):
                console.info(f"changed since: {flag_name(name)} was {then.get(name)}, is {now[name]}")

    def checkpoint(self) -> Checkpoint:
        """Weights, optimiser and counters as they are now."""
        provenance = {
            "nmt": nmt.__version__,
            "torch": str(torch.__version__),
            "python": platform.python_version(),
            "data": self.data.fingerprint,
            "options": self.config.to_dict(),
            "precision": self.runtime.precision,
            "update": self.counters.update,
            "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        weights = {name: tensor.detach().cpu() for name, tensor in self.model.model.state_dict().items()}
        training = {"optimizer": self.optimizer.state_dict(), "counters": vars(self.counters).copy()}
        return Checkpoint(self.model_config, self.data.codec, weights, provenance, training)

    # The loop

    def run(self, plan: UpdatePlan) -> None:
        """Updates until `max_updates`, with log lines, validation and snapshots in between; `plan` is this epoch's."""
        config, counters = self.config, self.counters
        interval, saved_at = Interval(), time.monotonic()
        done = counters.update
        if done >= config.max_updates:
            console.info(f"nothing to do: {self.folder} is at update {done:,}; raise --max-updates to train on")
        with console.Progress("train", config.max_updates, "updates", completed=done, lines=False) as progress:
            for batches in self._updates(plan):
                self._update(batches, interval)
                progress.advance(1)
                last = counters.update == config.max_updates
                if last or counters.update % config.log_updates == 0:
                    self._log(interval, progress.seconds_left)
                    interval = Interval()
                if last or counters.update % config.valid_updates == 0:
                    interval.exclude(self._validate)
                if last or self._snapshot_due(time.monotonic() - saved_at):
                    interval.exclude(self._save)
                    saved_at = time.monotonic()

    def _updates(self, plan: UpdatePlan) -> Iterator[list[Batch]]:
        """The micro-batches of one update after the other, over as many epochs as it takes, counted as they go by."""
        while self.counters.update < self.config.max_updates:
            with closing(
                updates(self.split, plan, self.config.device_tokens, self.counters.update_in_epoch)
            ) as prepared:
                for batches in prepared:
                    self.counters.update += 1
                    self.counters.update_in_epoch += 1
                    yield batches
                    if self.counters.update == self.config.max_updates:
                        return
            self.counters.epoch += 1
            self.counters.update_in_epoch = 0
            plan = self.plan(self.counters.epoch)

    def plan(self, epoch: int) -> UpdatePlan:
        """The epoch's update plan.

        Raises:
            NmtError: a sentence is longer than --device-tokens.
        """
        c = self.config
        source, target = self.split.source.lengths + 1, self.split.target.lengths + 1  # EOS, or BOS
        plan = make_plan(source, target, batch_tokens=c.batch_tokens, groups=c.batch_groups, seed=c.seed, epoch=epoch)
        if plan.longest > c.device_tokens:
            too_long = int((np.maximum(source, target) > c.device_tokens).sum())
            raise NmtError(
                f"--device-tokens {c.device_tokens} is too small for {too_long:,} training pairs; "
                f"the longest needs {plan.longest}"
            )
        return plan

    def _update(self, batches: list[Batch], interval: Interval) -> None:
        """One optimiser step on the gradient of the loss's mean over the update's target tokens (paper §5.3, §5.4)."""
        config, counters = self.config, self.counters
        started = time.monotonic()
        tokens = sum(batch.target_tokens for batch in batches)
        self._check_ids(batches)
        for number, batch in enumerate(batches):
            torch.manual_seed(_dropout_seed(config.seed, counters.update, number))
            with self.runtime.autocast():
                loss, nll = self.model(batch.to(self.runtime.device))
            (loss / tokens).backward()
            interval.add_batch(batch, loss, nll)
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate
        interval.add_update(self._clip())
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=False)
        counters.flops += self._flops(batches)
        counters.seconds += time.monotonic() - started

    def _check_ids(self, batches: list[Batch]) -> None:
        """Here, because on a GPU an id beyond the vocabulary ends in a device-side assertion."""
        sides = (("source", self.data.codec.source), ("target", self.data.codec.target))
        for (name, subword), batch in product(sides, batches):
            largest = int(getattr(batch, name).tokens_N.max())
            if largest >= len(subword):
                raise NmtError(
                    f"{self.data.path} is damaged: its {name} text holds piece {largest:,}, its vocabulary "
                    f"{len(subword):,} pieces; run nmt preprocess again"
                )

    @property
    def learning_rate(self) -> float:
        c = self.config
        return learning_rate(self.counters.update, self.model_config.d_model, c.warmup_updates, c.lr_scale)

    def _clip(self) -> Tensor:
        """The gradient's norm, before it is clipped to --clip-norm if that is given."""
        parameters = list(self.model.parameters())
        norm = torch.nn.utils.get_total_norm(p.grad for p in parameters if p.grad is not None)
        if self.config.clip_norm is not None:
            torch.nn.utils.clip_grads_with_norm_(parameters, self.config.clip_norm, norm)
        return norm

    def _flops(self, batches: list[Batch]) -> float:
        source, target = (sum(n) for n in zip(*((b.source_tokens, b.target_tokens) for b in batches), strict=True))
        return self.model_config.training_flops(len(self.data.codec.target), source, target)

    def _snapshot_due(self, seconds: float) -> bool:
        if self.config.save_updates is not None:
            return self.counters.update % self.config.save_updates == 0
        return seconds >= 60 * self.config.save_minutes

    # What the user sees

    def summarise(self, plan: UpdatePlan) -> None:
        """What is about to be trained, on what, and how."""
        c, m, text = self.config, self.model_config, self.data.codec.config
        sizes = f"{len(self.data.codec.source):,}" + (
            "" if text.joint_vocab else f" and {len(self.data.codec.target):,}"
        )
        lines = {
            "model": f"N {m.encoder_layers}+{m.decoder_layers}, d_model {m.d_model}, d_ff {m.d_ff}, h {m.heads}, "
            f"d_k {m.d_k}, d_v {m.d_v}, P_drop {m.dropout:g}, "
            f"{sum(p.numel() for p in self.model.parameters()):,} parameters",
            "vocabulary": f"{sizes} {text.subword} pieces, {'joint' if text.joint_vocab else 'separate'}",
            "data": f"{text.source_lang} -> {text.target_lang}, {len(self.split):,} pairs, "
            f"{plan.target_lengths.sum():,} target tokens",
            "batches": f"{c.batch_tokens:,} tokens an update in {c.batch_groups} groups, "
            f"{len(plan):,} updates an epoch, {plan.padding_share(c.device_tokens, _SAMPLED_UPDATES):.1%} padding",
            "device": f"{self.runtime.name}, {self.runtime.precision}",
            "run": f"{self.folder}, up to update {c.max_updates:,}",
        }
        for name, value in lines.items():
            console.info(f"{name:>10}  {value}")

    def _log(self, interval: Interval, seconds_left: float) -> None:
        counters = self.counters
        record = interval.record()
        if not math.isfinite(record["nll"]):
            raise NmtError(
                f"training diverged before update {counters.update:,}: the loss is {record['nll']}; start anew with a "
                f"lower --lr-scale or a higher --warmup-updates"
            )
        record |= {
            "lr": self.learning_rate,
            "peak_memory_mib": peak_memory_mib(self.runtime.device),
            "flops": counters.flops,
            "train_seconds": counters.seconds,
        }
        self.metrics.append("train", {"update": counters.update, "epoch": counters.epoch, **record})
        console.info(
            f"update {counters.update:,} | epoch {counters.epoch + 1} | loss {record['loss']:.3f} | "
            f"ppl {record['ppl']:.2f} | lr {record['lr']:.2e} | norm {record['gradient_norm']:.2f} | "
            f"{record['target_tokens_per_second']:,.0f} tok/s | {console.clock(seconds_left)} left"
        )

    def _validate(self) -> None:
        found = validate(self.model, self.data, self.runtime, self.config)
        better = found.goodness > self.counters.best
        bleu = "" if found.bleu is None else f" | BLEU {found.bleu:.2f}"
        self.metrics.append("valid", {"update": self.counters.update, **vars(found)})
        best = " | best" if better else ""
        console.info(f"valid at {self.counters.update:,} | nll {found.nll:.3f} | ppl {found.ppl:.2f}{bleu}{best}")
        if better:
            self.counters.best = found.goodness
            save_checkpoint(self.checkpoint().snapshot(), self.folder / "best.pt")

    def _save(self) -> None:
        save_progress(self.checkpoint(), self.folder, self.counters.update, self.config.keep_checkpoints)
        console.info(f"saved {numbered_path(self.folder, 'snapshot', self.counters.update)}")


def _dropout_seed(seed: int, update: int, micro_batch: int) -> int:
    """A seed of its own for every micro-batch, so that dropout depends on nothing but where training is."""
    rank = 0
    return int(np.random.SeedSequence((seed, update, rank, micro_batch)).generate_state(1, np.uint64)[0] >> 1)
