"""Ends the work of all ranks at the same place."""

from nmt.errors import DataChanged, Interrupted
from nmt.training.distributed import World


def end_together(world: World, reason: Interrupted | DataChanged | None) -> None:
    """Ends the work of all ranks if any rank gives a reason. All ranks must call this function at the same place.

    Raises:
        DataChanged: a rank found that the data folder has changed.
        Interrupted: a rank was asked to stop, and no rank found changed data.
    """
    if not world.any(reason is not None):
        return
    changes = [found for found in world.gather(reason) if isinstance(found, DataChanged)]
    raise changes[0] if changes else Interrupted
