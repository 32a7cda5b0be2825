"""The stream of updates that a rank trains on, epoch after epoch."""

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from typing import Self

from nmt.config import TrainConfig
from nmt.data.batching import UpdatePlan, draw_epoch
from nmt.data.loader import Update, updates
from nmt.data.store import ParallelSplit
from nmt.errors import DataChanged
from nmt.training.agreement import end_together
from nmt.training.checks import check_device_tokens
from nmt.training.distributed import World
from nmt.training.setup import Setup, TrainState
from nmt.training.state import Counters


@dataclass(frozen=True)
class UpdateStream:
    """Plans epochs and yields this rank's part of their updates.

    Attributes:
        split: the training data.
        device_tokens: padded tokens on either side of a micro-batch.
        packs: whether micro-batches are packed, without padding.
    """

    split: ParallelSplit
    config: TrainConfig
    device_tokens: int
    packs: bool
    world: World

    @classmethod
    def of(cls, setup: Setup, state: TrainState) -> Self:
        """Makes the stream for a state."""
        packs = state.gradients.packs
        return cls(setup.data.split("train"), setup.config, setup.device_tokens, packs, setup.world)

    def plan(self, epoch: int) -> UpdatePlan:
        """Returns the epoch's update plan.

        Raises:
            NmtError: a sentence is longer than --device-tokens.
            DataChanged: on all ranks, if the training data of any of them has changed.
        """
        self._check_files()
        c, lengths = self.config, (self.split.source.lengths, self.split.target.lengths)
        drawn = self.world.broadcast(
            lambda: draw_epoch(*lengths, batch_tokens=c.batch_tokens, groups=c.batch_groups, seed=c.seed, epoch=epoch)
        )
        check_device_tokens(self.split, drawn, self.device_tokens)
        return UpdatePlan(*lengths, drawn, c.batch_groups)

    def _check_files(self) -> None:
        changed = None
        try:
            self.split.check_files()
        except DataChanged as found:
            changed = found
        end_together(self.world, changed)

    def updates(self, plan: UpdatePlan, counters: Counters) -> Generator[Update, None, None]:
        """Yields this rank's part of one update after the other, without end, from where the counters are.

        Args:
            plan: the plan of the epoch that the counters are in.

        Raises:
            DataChanged: on all ranks, if the training data of any of them has changed. The other ranks learn of it
                where they ask whether to stop before the update's first micro-batch.
        """
        rank, ranks = self.world.rank, self.world.size
        while True:
            first = counters.update_in_epoch
            made = updates(self.split, plan, self.device_tokens, first, rank, ranks, packs=self.packs)
            with closing(made) as prepared:
                try:
                    yield from prepared
                except DataChanged as changed:
                    end_together(self.world, changed)
            counters.skip_to_next_epoch()
            plan = self.plan(counters.epoch)
