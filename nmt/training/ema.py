"""An exponential moving average of the weights while a model trains (--ema)."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

AVERAGE_BYTES = 4  # for each parameter


class MovingAverage:
    """The average a ← β a + (1 − β) w of a model's weights w over the updates.

    After update n, β is `decay` or (1 + n) / (10 + n), whichever is smaller. Otherwise the average would contain the
    initial weights for a long time.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._weights, self.decay = dict(model.named_parameters()), decay
        self._averages: dict[str, Tensor] = {}  # until the first update

    def add(self, update: int) -> None:
        """Adds the weights after an update, counted from 1."""
        weights = [weight.detach() for weight in self._weights.values()]
        if not self._averages:
            self._averages = dict(zip(self._weights, (weight.clone() for weight in weights), strict=True))
        decay = min(self.decay, (1 + update) / (10 + update))
        torch._foreach_lerp_(list(self._averages.values()), weights, 1 - decay)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Gives the model the average in place of its weights until the block ends."""
        weights = {name: self._weights[name].data for name in self._averages}
        try:
            for name, average in self._averages.items():
                self._weights[name].data = average
            yield
        finally:
            for name, weight in weights.items():
                self._weights[name].data = weight

    def state_dict(self) -> dict[str, Tensor]:
        """Returns the average of each weight."""
        return dict(self._averages)

    def load_state_dict(self, averages: Mapping[str, Tensor]) -> None:
        """Goes on from what `state_dict` returned, or from the model's weights if that is empty.

        Raises:
            KeyError: the averages are those of other weights.
        """
        weights = self._weights if averages else {}
        self._averages = {name: averages[name].to(weight.device, copy=True) for name, weight in weights.items()}
