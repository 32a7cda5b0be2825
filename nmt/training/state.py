"""The state of a training, which every update changes."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch

from nmt.checkpoint import new_model
from nmt.config import TrainConfig
from nmt.training.ema import AVERAGE_BYTES, MovingAverage
from nmt.training.freezing import freeze
from nmt.training.gradients import Gradients
from nmt.training.loss import TrainingLoss
from nmt.training.loss_scale import LossScale
from nmt.training.optimizer import Optimizer
from nmt.training.selection import Scores, without_improvement
from nmt.training.setup import Setup


@dataclass
class Counters:
    """The progress of a training.

    Attributes:
        update: the number of completed updates.
        epoch: the number of completed epochs.
        update_in_epoch: the number of completed updates in the current epoch.
        snapshot_seconds: the training time at the last checkpoint, in seconds.
        seconds: the training time, in seconds.
        flops: the floating-point operations of the training.
        device_tokens: the value of --device-tokens to use since memory ran out; None before that.
    """

    update: int = 0
    epoch: int = 0
    update_in_epoch: int = 0
    snapshot_seconds: float = 0.0
    seconds: float = 0.0
    flops: float = 0.0
    device_tokens: int | None = None

    def skip_to_next_epoch(self) -> None:
        """Moves to the first update of the next epoch."""
        self.epoch += 1
        self.update_in_epoch = 0

    def snapshot_due(self, config: TrainConfig) -> bool:
        """Returns whether a checkpoint is due after the last update."""
        if config.save_updates is not None:
            return self.update % config.save_updates == 0
        return self.seconds - self.snapshot_seconds >= 60 * config.save_minutes


@dataclass
class TrainState:
    """The parts of a training that an update changes.

    Attributes:
        loss: the model with its loss.
        gradients: sums the gradients of `loss` over micro-batches and ranks.
        optimizer: changes the weights by the gradients.
        counters: the progress of the training.
        validations: the scores of all validations so far.
        average: the moving average of the weights; None without --ema.
    """

    loss: TrainingLoss
    gradients: Gradients
    optimizer: Optimizer
    counters: Counters = field(default_factory=Counters)
    validations: list[Scores] = field(default_factory=list)
    average: MovingAverage | None = None

    def device_tokens(self, setup: Setup) -> int:
        """Returns the most tokens on either side of a micro-batch, padding included."""
        return min(setup.device_tokens, self.counters.device_tokens or setup.device_tokens)

    def averaged(self) -> AbstractContextManager[None]:
        """Returns a context in which the model has its averaged weights, if there are any."""
        return self.average.in_use() if self.average else nullcontext()

    @property
    def missing_bytes(self) -> int:
        """Memory in bytes that the first update will allocate."""
        missing = self.optimizer.missing_bytes
        return missing + (AVERAGE_BYTES * self.parameters if missing and self.average else 0)

    @property
    def parameters(self) -> int:
        """The number of parameters."""
        return sum(p.numel() for p in self.loss.parameters())

    def validation_due(self, config: TrainConfig) -> bool:
        """Returns whether a validation is due after the last update and has not been done."""
        update = self.counters.update
        planned = update % config.valid_updates == 0 or update == config.max_updates
        return planned and update > max((scores.update for scores in self.validations), default=0)

    def out_of_patience(self, config: TrainConfig) -> bool:
        """Returns whether --patience ends the training."""
        stalled = without_improvement(self.validations, config.valid_metric, config.min_delta)
        return config.patience is not None and stalled >= config.patience


def new_state(setup: Setup) -> TrainState:
    """Returns the state before the first update; the weights depend only on the model and the seed."""
    config = setup.config
    torch.manual_seed(config.seed)
    model = new_model(setup.model_config, setup.data.codec)
    loss = TrainingLoss(model, config.label_smoothing, config.alignment_weight)
    freeze(model, config.freeze)
    loss = loss.to(setup.runtime.device).train()
    loss_scale = LossScale(setup.runtime.device) if setup.runtime.dtype == torch.float16 else None
    gradients = Gradients(loss, setup.runtime, setup.world, loss_scale)
    if config.compile:
        gradients.compile_layers()
    optimizer = Optimizer(gradients.parameters, setup.model_config.d_model, config, loss_scale)
    average = None if config.ema is None else MovingAverage(model, config.ema)
    return TrainState(loss, gradients, optimizer, average=average)
