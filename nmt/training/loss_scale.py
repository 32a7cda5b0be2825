"""The scale of the loss in fp16, whose range is too small for many gradients (Micikevicius et al. 2018)."""

from typing import Any

import torch
from torch import Tensor

_FIRST = 2.0**16
_GROWTH, _BACKOFF = 2.0, 0.5
# The scale grows after this many updates in a row that were not skipped.
_GROWTH_UPDATES = 2000


class LossScale:
    """A factor on the loss, and so on all gradients. It adapts to the largest value that does not overflow.

    All ranks have the same scale, because it depends on whether updates were skipped, which all ranks agree on.

    Attributes:
        scale: the factor, on the device.
    """

    def __init__(self, device: torch.device) -> None:
        self.scale = torch.tensor(_FIRST, device=device)
        self._good_updates = torch.zeros((), dtype=torch.int32, device=device)

    def update(self, skipped: Tensor) -> None:
        """Lowers the scale if the last update was skipped, and raises it now and then otherwise."""
        torch._amp_update_scale_(self.scale, self._good_updates, skipped, _GROWTH, _BACKOFF, _GROWTH_UPDATES)

    def state_dict(self) -> dict[str, Any]:
        """Returns the scale and the number of updates since it changed or one was skipped."""
        return {"scale": self.scale.item(), "good_updates": int(self._good_updates)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from what `state_dict` returned."""
        self.scale.fill_(state["scale"])
        self._good_updates.fill_(state["good_updates"])
