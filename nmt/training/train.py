"""`nmt train`: from a data folder and an architecture to a run folder of checkpoints."""

from contextlib import nullcontext
from pathlib import Path

from nmt.config import ModelConfig, TrainConfig
from nmt.data.folder import DataFolder
from nmt.errors import NmtError, StoppedError
from nmt.training.clock import Clock
from nmt.training.fine_tuning import start_from
from nmt.training.loop import TrainingLoop
from nmt.training.prepare import first_plan, prepare
from nmt.training.ranks import join_ranks
from nmt.training.resume import resume
from nmt.training.run_folder import RunFolder
from nmt.training.state import Setup, new_state
from nmt.training.update import MemoryRanOutError

STOPPING = "stopping as soon as the state is saved"  # what is logged when a signal stops a training


def train(data_folder: str, model_config: ModelConfig, config: TrainConfig, clock: Clock | None = None) -> None:
    """Trains up to `config.max_updates`; resumes from the newest training state if the run folder has one.

    Args:
        clock: when training should end; it then changes `max_updates`.

    Raises:
        NmtError: the data, the run folder or an option cannot be used; the message names it.
        StoppedError: a signal asked to stop; the training state is saved in the run folder.
    """
    with join_ranks(config, STOPPING) as ranks:
        setup = prepare(DataFolder.open(data_folder), model_config, config, *ranks)
        folder = RunFolder(Path(config.save_dir))
        with folder.locked() if setup.world.is_main else nullcontext():
            train_in_folder(setup, folder, clock)


def train_in_folder(setup: Setup, folder: RunFolder, clock: Clock | None = None) -> None:
    """Trains in a run folder that this process has locked. See `train`."""
    state = new_state(setup)
    loop = TrainingLoop(setup, state, folder, clock)

    def outcome() -> str:
        update = state.counters.update
        return f"after update {update:,} with its state saved in {folder.path}" if update else "before the first update"

    try:
        if not resume(setup, state, folder) and setup.config.init_from:
            start_from(setup.config.init_from, state.loss.model, setup.data.codec)
        loop.run(first_plan(setup, state))
    except MemoryRanOutError as error:
        # All ranks have the same state, but the main rank waits for the gradients of this one.
        if folder.path.is_dir():
            loop.save_state()
        raise NmtError(
            f"{error}; training stopped {outcome()}; start the same command again with a smaller "
            f"--device-tokens, such as {state.device_tokens(setup) // 2}"
        ) from error
    except StoppedError as ended:
        if setup.world.is_main:
            loop.save_state()
        setup.world.barrier()  # when one rank ends, the launcher ends the others, even one that is saving
        raise StoppedError(f"stopped {outcome()}; start the same command again to resume") from ended
