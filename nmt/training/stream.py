"""The stream of updates that a rank trains on, epoch after epoch."""

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass

from nmt.data.batching import UpdatePlan, draw_epoch
from nmt.data.loader import Update, updates
from nmt.training.setup import Setup
from nmt.training.state import TrainState


@dataclass(frozen=True)
class UpdateStream:
    """Plans epochs and yields this rank's part of their updates, from the position of the state's counters."""

    setup: Setup
    state: TrainState

    def plan(self) -> UpdatePlan:
        """Returns the update plan of the epoch that the state is in."""
        c, epoch = self.setup.config, self.state.counters.epoch
        split = self.setup.data.split("train").in_epoch(c.seed, epoch)
        lengths = split.source.lengths, split.target.lengths
        drawn = self.setup.world.broadcast(
            lambda: draw_epoch(*lengths, batch_tokens=c.batch_tokens, groups=c.batch_groups, seed=c.seed, epoch=epoch)
        )
        return UpdatePlan(*lengths, drawn, c.batch_groups)

    def updates(self, plan: UpdatePlan) -> Generator[Update, None, None]:
        """Yields this rank's part of every update, without end.

        If memory runs out in an update, it follows once more, in smaller micro-batches.

        Args:
            plan: the plan of the epoch that the state is in.
        """
        counters, world, packs = self.state.counters, self.setup.world, self.state.gradients.packs
        train = self.setup.data.split("train")
        while True:
            split, tokens = train.in_epoch(self.setup.config.seed, counters.epoch), self.state.device_tokens(self.setup)
            rest = updates(split, plan, tokens, counters.update_in_epoch, world.rank, world.size, packs=packs)
            with closing(rest) as prepared:
                for update in prepared:
                    yield update
                    if self.state.device_tokens(self.setup) < tokens:
                        break
                else:
                    counters.skip_to_next_epoch()
                    plan = self.plan()
