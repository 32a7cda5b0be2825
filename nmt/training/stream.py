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
from nmt.training.setup import Setup
from nmt.training.state import Counters, TrainState


@dataclass(frozen=True)
class UpdateStream:
    """Plans epochs and yields this rank's part of their updates.

    Attributes:
        split: the training data.
        device_tokens: the most tokens on either side of a micro-batch, padding included.
        packs: whether micro-batches are packed, without padding.
    """

    split: ParallelSplit
    config: TrainConfig
    device_tokens: int
    packs: bool
    world: World

    @classmethod
    def of(cls, setup: Setup, state: TrainState) -> Self:
        """Returns the stream that trains a state.

        Raises:
            NmtError: a sentence is longer than --device-tokens.
        """
        split = setup.data.split("train")
        check_device_tokens(split, setup.device_tokens)
        return cls(split, setup.config, setup.device_tokens, state.gradients.packs, setup.world)

    def plan(self, epoch: int) -> UpdatePlan:
        """Returns the update plan of an epoch.

        Raises:
            DataChanged: on all ranks, if the training data of any of them has changed.
        """
        self._check_files()
        c = self.config
        split = self.split.in_epoch(c.seed, epoch)
        lengths = split.source.lengths, split.target.lengths
        drawn = self.world.broadcast(
            lambda: draw_epoch(*lengths, batch_tokens=c.batch_tokens, groups=c.batch_groups, seed=c.seed, epoch=epoch)
        )
        return UpdatePlan(*lengths, drawn, c.batch_groups)

    def _check_files(self) -> None:
        changed = None
        try:
            self.split.check_files()
        except DataChanged as found:
            changed = found
        end_together(self.world, changed)

    def updates(self, plan: UpdatePlan, counters: Counters) -> Generator[Update, None, None]:
        """Yields this rank's part of every update, without end, from the position of the counters.

        Args:
            plan: the plan of the epoch that the counters are in.

        Raises:
            DataChanged: on all ranks, if the training data of any of them has changed. The other ranks raise it before
                the update's first micro-batch, where all ranks agree whether to stop.
        """
        rank, ranks = self.world.rank, self.world.size
        while True:
            split, first = self.split.in_epoch(self.config.seed, counters.epoch), counters.update_in_epoch
            rest_of_epoch = updates(split, plan, self.device_tokens, first, rank, ranks, packs=self.packs)
            with closing(rest_of_epoch) as prepared:
                try:
                    yield from prepared
                except DataChanged as changed:
                    end_together(self.world, changed)
            counters.skip_to_next_epoch()
            plan = self.plan(counters.epoch)
