"""The state of a training, which every update changes: weights, gradients, optimiser, counters."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from nmt import extensions
from nmt.checkpoint import WEIGHT_BYTES, new_model
from nmt.config import ModelConfig, TrainConfig
from nmt.data.folder import DataFolder
from nmt.errors import NmtError
from nmt.model.device import Runtime, is_native
from nmt.model.transformer import matrices
from nmt.signals import StopSignals
from nmt.training.gradients import Gradients
from nmt.training.loss import TrainingLoss
from nmt.training.optimizer import LossScale, Optimizer
from nmt.training.ranks import World
from nmt.training.records import Scores, without_improvement


@dataclass(frozen=True)
class Setup:
    """The data, options and machine of a training."""

    data: DataFolder
    model_config: ModelConfig
    config: TrainConfig
    runtime: Runtime
    world: World
    stop: StopSignals

    @property
    def device_tokens(self) -> int:
        """The most tokens on either side of a micro-batch by the options; padding counts, unless it is packed."""
        return self.config.tokens_at_once(self.runtime.device.type, self.model_config.d_model)


# The beginnings of the names of the weights in each group of --freeze.
_GROUPS = {
    "embeddings": ("source_embedding.", "target_embedding.", "source_positions.", "target_positions.", "output_bias"),
    "encoder": ("encoder.", "encoder_norm."),
    "decoder": ("decoder.", "decoder_norm."),
}


def freeze(model: nn.Module, groups: Sequence[str]) -> None:
    """Excludes the weights of the groups from training."""
    for name, weight in model.named_parameters():
        weight.requires_grad_(not any(name.startswith(_GROUPS[group]) for group in groups))
    if not any(weight.requires_grad for weight in model.parameters()):
        raise NmtError("--freeze leaves no weights to train; leave out one of its values")


class MovingAverage:
    """The average a ← β a + (1 − β) w of a model's weights w over the updates.

    After update n, β is `decay` or (1 + n) / (10 + n), whichever is smaller. Otherwise the average would contain the
    initial weights for a long time.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._weights, self.decay = dict(model.named_parameters()), decay
        self.averages: dict[str, Tensor] = {}  # by the name of the weight; empty before the first update

    def add(self, update: int) -> None:
        """Adds the weights after an update, counted from 1."""
        weights = [weight.detach() for weight in self._weights.values()]
        if not self.averages:
            self.averages = dict(zip(self._weights, (weight.clone() for weight in weights), strict=True))
        decay = min(self.decay, (1 + update) / (10 + update))
        torch._foreach_lerp_(list(self.averages.values()), weights, 1 - decay)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Gives the model the average in place of its weights until the block ends."""
        weights = {name: self._weights[name].data for name in self.averages}
        try:
            for name, average in self.averages.items():
                self._weights[name].data = average
            yield
        finally:
            for name, weight in weights.items():
                self._weights[name].data = weight

    def load(self, averages: Mapping[str, Tensor]) -> None:
        """Continues from these averages. If there are none, the next update begins a new average."""
        weights = self._weights if averages else {}
        self.averages = {name: averages[name].to(weight.device, copy=True) for name, weight in weights.items()}


@dataclass
class Counters:
    """The progress of a training."""

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
    """The parts of a training that an update changes."""

    loss: TrainingLoss
    gradients: Gradients
    optimizer: Optimizer
    counters: Counters = field(default_factory=Counters)
    validations: list[Scores] = field(default_factory=list)
    average: MovingAverage | None = None

    def device_tokens(self, setup: Setup) -> int:
        """Returns the most tokens on either side of a micro-batch: by the options, or fewer if those do not fit."""
        return min(setup.device_tokens, self.counters.device_tokens or setup.device_tokens)

    def averaged(self) -> AbstractContextManager[None]:
        """Returns a context in which the model has its averaged weights, if there are any."""
        return self.average.in_use() if self.average else nullcontext()

    @property
    def missing_bytes(self) -> int:
        """The memory in bytes that the first update will allocate; 0 after it."""
        return 0 if self.counters.update else self.optimizer.adam_bytes + self._average_bytes

    @property
    def bytes_on_disk(self) -> int:
        """The size of a training state in bytes."""
        return WEIGHT_BYTES * self.parameters + self.optimizer.moment_bytes + self._average_bytes

    @property
    def _average_bytes(self) -> int:
        return WEIGHT_BYTES * self.parameters if self.average else 0

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
    criterion = extensions.criterion(config.criterion) if config.criterion else None
    loss = TrainingLoss(model, config.label_smoothing, config.alignment_weight, criterion)
    freeze(model, config.freeze)
    loss = loss.to(setup.runtime.device).train()
    loss_scale = LossScale(setup.runtime.device) if setup.runtime.dtype == torch.float16 else None
    gradients = Gradients(loss, setup.runtime, setup.world, loss_scale)
    if config.compile:
        gradients.compile_layers()
    by_muon = list(matrices(model)) if config.optimizer == "muon" else []
    dtype = torch.bfloat16 if is_native(torch.bfloat16, setup.runtime.device.type) else torch.float32
    optimizer = Optimizer(gradients.parameters, config, loss_scale, by_muon, dtype)
    average = None if config.ema is None else MovingAverage(model, config.ema)
    return TrainState(loss, gradients, optimizer, average=average)
