"""`nmt train`: from a data folder and an architecture to a run folder of checkpoints."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from nmt.config import ModelConfig, TrainConfig
from nmt.config.options import flag_name
from nmt.data.batching import UpdatePlan
from nmt.data.folder import DataFolder
from nmt.errors import Interrupted, NmtError
from nmt.signals import StopSignals
from nmt.training.checks import check_device_tokens, check_fit
from nmt.training.distributed import World, join_ranks
from nmt.training.initial import start_from
from nmt.training.loop import TrainingLoop
from nmt.training.resume import resume
from nmt.training.run_folder import RunFolder
from nmt.training.setup import Setup
from nmt.training.state import TrainState, new_state
from nmt.training.stream import UpdateStream
from nmt.training.summary import show_plan
from nmt.training.update import OutOfMemoryError


def train(data_folder: str, model_config: ModelConfig, config: TrainConfig) -> None:
    """Trains up to `config.max_updates`; resumes from the newest training state if the run folder has one.

    Raises:
        NmtError: the data, the run folder or an option cannot be used; the message names it.
        Interrupted: a signal asked to stop; the training state is saved in the run folder.
    """
    with prepared(data_folder, model_config, config, "stopping as soon as the state is saved") as setup:
        folder = RunFolder(Path(config.save_dir))
        with folder.locked() if setup.world.is_main else nullcontext():
            _train(setup, folder)


@contextmanager
def prepared(data_folder: str, model_config: ModelConfig, config: TrainConfig, stopping: str) -> Iterator[Setup]:
    """Joins the ranks, opens and verifies the data, and checks that data, model, options and ranks fit together.

    Args:
        stopping: what to print when the first signal arrives.

    Raises:
        NmtError: they do not fit together, or the data is damaged; the message says why.
    """
    with join_ranks(config, stopping) as (world, runtime, stop):
        data = DataFolder.open(data_folder)
        flags = {flag_name(name): value for name, value in (model_config.to_dict() | config.to_dict()).items()}
        world.require_same({"the data folder": data.meta.fingerprint, "precision": runtime.precision, **flags})
        check_fit(data, model_config, config)
        _verify(data, world, stop)
        setup = Setup(data, model_config, config, runtime, world, stop)
        check_device_tokens(data.split("train"), setup.device_tokens)
        yield setup


def _verify(data: DataFolder, world: World, stop: StopSignals) -> None:
    """Makes the main rank verify the data. Raises its error on all ranks."""

    def damage() -> NmtError | None:
        try:
            data.verify(lambda: stop.received)
        except NmtError as error:
            return error
        return None

    if error := world.broadcast(damage):
        raise error


def _train(setup: Setup, folder: RunFolder) -> None:
    state = new_state(setup)
    loop = TrainingLoop.of(setup, state, folder)
    try:
        if not resume(setup, state, folder) and setup.config.init_from:
            start_from(setup.config.init_from, state.loss.model, setup.data.codec)
        stream = UpdateStream(setup, state)
        loop.run(stream, first_plan(setup, state, stream))
    except OutOfMemoryError as error:
        # All ranks have the same state, but the main rank waits for the gradients of this one.
        if folder.path.is_dir():
            loop.save_state()
        raise NmtError(
            f"{error}; training stopped {_place(state, folder)}; start the same command again with a smaller "
            f"--device-tokens, such as {state.device_tokens(setup) // 2}"
        ) from error
    except Interrupted as ended:
        if setup.world.is_main:
            loop.save_state()
        setup.world.barrier()  # when one rank ends, the launcher ends the others, even one that is saving
        raise Interrupted(f"stopped {_place(state, folder)}; start the same command again to resume") from ended


def _place(state: TrainState, folder: RunFolder) -> str:
    update = state.counters.update
    return f"after update {update:,} with its state saved in {folder.path}" if update else "before the first update"


def first_plan(setup: Setup, state: TrainState, stream: UpdateStream) -> UpdatePlan:
    """Returns the plan of the state's epoch; logs it, and checks that batches fit into memory.

    Raises:
        NmtError: a micro-batch does not fit into memory.
    """
    plan = stream.plan()
    show_plan(setup, plan, state.parameters, state.gradients.hardware)
    state.gradients.check_memory(plan.epoch.widest, state.device_tokens(setup), state.missing_bytes)
    return plan
