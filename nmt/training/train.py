"""`nmt train`: from a data folder and an architecture to a run folder of checkpoints."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from nmt.config import ModelConfig, TrainConfig
from nmt.data.batching import UpdatePlan
from nmt.data.store import DataFolder
from nmt.data.verification import Verification
from nmt.errors import DataChanged, Interrupted
from nmt.options import flag_name
from nmt.training.checks import check_fit
from nmt.training.distributed import join_ranks
from nmt.training.initial import start_from
from nmt.training.interrupts import SAVES_FIRST
from nmt.training.loop import TrainingLoop
from nmt.training.resume import resume
from nmt.training.run_folder import RunFolder
from nmt.training.setup import Setup
from nmt.training.state import TrainState, new_state
from nmt.training.stream import UpdateStream
from nmt.training.summary import show_plan


def train(data_folder: str, model_config: ModelConfig, config: TrainConfig) -> None:
    """Trains up to `config.max_updates`; resumes from the newest training state if the run folder has one.

    Raises:
        NmtError: the data, the run folder or an option cannot be used; the message names it.
        DataChanged: the data folder changed during the training; the training state is saved in the run folder.
        Interrupted: a signal asked to stop; the training state is saved in the run folder.
    """
    with prepared(data_folder, model_config, config, SAVES_FIRST) as (setup, verification):
        folder = RunFolder(Path(config.save_dir))
        with folder.locked() if setup.world.is_main else nullcontext():
            _train(setup, folder, verification)


@contextmanager
def prepared(
    data_folder: str, model_config: ModelConfig, config: TrainConfig, stopping: str
) -> Iterator[tuple[Setup, Verification | None]]:
    """Joins the ranks, opens the data, and checks that data, model, options and ranks fit together.

    Yields the setup and, on the main rank, the verification of the data, which runs in the background.

    Args:
        stopping: the message of `StopSignals`.

    Raises:
        NmtError: they do not fit together; the message says why.
    """
    with join_ranks(config, stopping) as (world, runtime, stop):
        data = DataFolder.open(data_folder)
        verification = Verification(data) if world.is_main else None
        flags = {flag_name(name): value for name, value in (model_config.to_dict() | config.to_dict()).items()}
        world.require_same({"the data folder": data.fingerprint, "precision": runtime.precision, **flags})
        check_fit(data, model_config, config)
        data.split("valid")  # finds damage now, not at the first validation
        yield Setup(data, model_config, config, runtime, world, stop), verification


def _train(setup: Setup, folder: RunFolder, verification: Verification | None) -> None:
    state = new_state(setup)
    loop = TrainingLoop.of(setup, state, folder)
    try:
        if not resume(setup, state, folder) and setup.config.init_from:
            start_from(setup.config.init_from, state.loss.model, setup.data.codec)
        stream = UpdateStream.of(setup, state)
        loop.run(stream, first_plan(setup, state, stream, verification))
    except (Interrupted, DataChanged) as ended:
        loop.save_state()
        setup.world.barrier()  # when one rank ends, the launcher ends the others, even one that is saving
        update = state.counters.update
        place = (
            f"after update {update:,} with its state saved in {folder.path}" if update else "before the first update"
        )
        if isinstance(ended, DataChanged):
            raise DataChanged(f"training stopped {place}: {ended.found}") from ended
        raise Interrupted(f"stopped {place}; start the same command again to resume") from ended


def first_plan(setup: Setup, state: TrainState, stream: UpdateStream, verification: Verification | None) -> UpdatePlan:
    """Returns the plan of the state's epoch; logs it, and checks that batches fit into memory and data is intact.

    Raises:
        NmtError: a micro-batch does not fit into memory, or the data is damaged.
    """
    plan = stream.plan(state.counters.epoch)
    show_plan(setup, plan, state.parameters, state.gradients.hardware)
    state.gradients.check_memory(plan.epoch.widest, setup.device_tokens, state.missing_bytes)
    damage = setup.world.broadcast(lambda: verification.error(lambda: setup.stop.received) if verification else None)
    if damage:
        raise damage
    return plan
