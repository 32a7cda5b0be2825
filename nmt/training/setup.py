"""The setup of a training, which stays the same."""

from dataclasses import dataclass

from nmt.config import ModelConfig, TrainConfig
from nmt.data.folder import DataFolder
from nmt.model.device import Runtime
from nmt.signals import StopSignals
from nmt.training.distributed import World


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
