"""The setup of a training, which stays the same, and its state, which every update changes."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch

from nmt.checkpoint import new_model
from nmt.config import ModelConfig, TrainConfig
from nmt.data.store import DataFolder
from nmt.model.runtime import Runtime
from nmt.training.distributed import World
from nmt.training.ema import AVERAGE_BYTES, MovingAverage
from nmt.training.freezing import freeze
from nmt.training.gradients import Gradients
from nmt.training.interrupts import StopSignals
from nmt.training.loss import TrainingLoss
from nmt.training.loss_scale import LossScale
from nmt.training.optimizer import Optimizer
from nmt.training.selection import Scores, without_improvement
from nmt.training.state import Counters


@dataclass(frozen=True)
class Setup:
    """The data, options and machine of a training.

    Attributes:
        runtime: the device and precision of this rank.
        world: the group of all ranks.
        stop: the signals that ask training to stop.
    """

    data: DataFolder
    model_config: ModelConfig
    config: TrainConfig
    runtime: Runtime
    world: World
    stop: StopSignals

    @property
    def device_tokens(self) -> int:
        """The most tokens on either side of a micro-batch, padding included."""
        return self.config.tokens_at_once(self.runtime.device.type, self.model_config.d_model)


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
    gradients = Gradients(loss, setup.data, setup.runtime, setup.world, loss_scale)
    if config.compile:
        gradients.compile_layers()
    optimizer = Optimizer(gradients.parameters, setup.model_config.d_model, config, loss_scale)
    average = None if config.ema is None else MovingAverage(model, config.ema)
    return TrainState(loss, gradients, optimizer, average=average)
