"""`nmt train`: from a data folder and an architecture to a run folder of checkpoints."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from nmt import console
from nmt.checkpoint import WEIGHT_BYTES, check_memory
from nmt.config import ModelConfig, SearchConfig, TrainConfig
from nmt.config.options import flag_name
from nmt.data.batching import UpdatePlan
from nmt.data.folder import DataFolder, ParallelSplit
from nmt.errors import NmtError, StoppedError
from nmt.model.device import device_type
from nmt.scoring import tokenizer_warning
from nmt.training.log import require_tensorboard, show_plan
from nmt.training.loop import Clock, MemoryRanOutError, TrainingLoop, plan_epoch
from nmt.training.ranks import join_ranks
from nmt.training.resume import resume, start_from
from nmt.training.run_folder import RunFolder
from nmt.training.state import Setup, TrainState, new_state


def check_fit(data: DataFolder, model_config: ModelConfig, config: TrainConfig) -> None:
    """Checks that data, model and options fit together. Warns if BLEU lacks the tokeniser of the target language."""
    check_save_dir(data, config)
    if model_config.guided_alignment is not None and data.split("train").alignments is None:
        if config.init_from is None:
            raise NmtError(
                f"--guided-alignment needs word alignments, but {data.path} has none; give them to nmt preprocess "
                f"--alignments"
            )
        console.warn(
            f"{data.path} has no word alignments, so the head that --guided-alignment names does not learn them"
        )
    if config.tensorboard:
        require_tensorboard()
    _check_positions(data, model_config, config)
    if "bleu" in config.valid_metric and (warning := tokenizer_warning(data.codec.config.target_lang)):
        console.warn(warning)
    if device_type(config) == "cpu":
        # Weights, gradients, the two moments of Adam or the one of Muon, and the average.
        copies = 2 + (2 if config.optimizer == "adam" else 1) + (config.ema is not None)
        check_memory(model_config, data.codec, config.gpus * copies * WEIGHT_BYTES)


def check_save_dir(data: DataFolder, config: TrainConfig) -> None:
    """Raises NmtError if the training would write to the data folder."""
    if Path(config.save_dir).resolve() == data.path.resolve():
        raise NmtError(f"--save-dir {config.save_dir} is the data folder; choose another folder for the run")


def _check_positions(data: DataFolder, model_config: ModelConfig, config: TrainConfig) -> None:
    if model_config.learned_positions is None:
        return
    for name in ("train", "valid"):
        split = data.split(name)
        longest = max(split.source.longest, split.target.longest)
        model_config.check_positions(
            longest,
            f"{data.path} has {name} sentences of",
            f"give --learned-positions {longest}, or preprocess with a smaller --max-length",
        )
    if config.translates:
        longest = SearchConfig().longest
        model_config.check_positions(
            longest, "translations for validation may have", f"give --learned-positions {longest} or --valid-metric nll"
        )


def check_device_tokens(split: ParallelSplit, device_tokens: int) -> None:
    """Raises NmtError if a sentence is longer than --device-tokens, in any of its encodings."""
    longest = max(split.source.longest, split.target.longest)
    if longest > device_tokens:
        raise NmtError(
            f"--device-tokens {device_tokens} is too small for the longest training sentence, which needs {longest}; "
            f"give at least that, or drop long pairs with nmt preprocess --max-length"
        )


def train(
    data_folder: str, model_config: ModelConfig, config: TrainConfig, clock: Clock | None = None, *, ready: bool = False
) -> None:
    """Trains up to `config.max_updates`; resumes from the newest training state if the run folder has one.

    Args:
        clock: when training should end; it then changes `max_updates`.
        ready: whether this process has verified the data and has locked the run folder.

    Raises:
        NmtError: the data, the run folder or an option cannot be used; the message names it.
        StoppedError: a signal asked to stop; the training state is saved in the run folder.
    """
    stopping = "stopping as soon as the state is saved"
    with prepared(data_folder, model_config, config, stopping, verify=not ready) as setup:
        folder = RunFolder(Path(config.save_dir))
        with folder.locked() if setup.world.is_main and not ready else nullcontext():
            _train(setup, folder, clock)


@contextmanager
def prepared(
    data_folder: str, model_config: ModelConfig, config: TrainConfig, stopping: str, *, verify: bool = True
) -> Iterator[Setup]:
    """Joins the ranks, opens and verifies the data, and checks that data, model, options and ranks fit together."""
    with join_ranks(config, stopping) as (world, runtime, stop):
        data = DataFolder.open(data_folder)
        flags = {flag_name(name): value for name, value in (model_config.to_dict() | config.to_dict()).items()}
        world.require_same({"the data folder": data.meta.fingerprint, "precision": runtime.precision, **flags})
        check_fit(data, model_config, config)
        if verify and world.is_main:
            data.verify(lambda: stop.received)
        world.barrier()  # ends the other ranks if the data is damaged
        setup = Setup(data, model_config, config, runtime, world, stop)
        check_device_tokens(data.split("train"), setup.device_tokens)
        yield setup


def _train(setup: Setup, folder: RunFolder, clock: Clock | None) -> None:
    state = new_state(setup)
    loop = TrainingLoop(setup, state, folder, clock)
    try:
        if not resume(setup, state, folder) and setup.config.init_from:
            start_from(setup.config.init_from, state.loss.model, setup.data.codec)
        loop.run(first_plan(setup, state))
    except MemoryRanOutError as error:
        # All ranks have the same state, but the main rank waits for the gradients of this one.
        if folder.path.is_dir():
            loop.save_state()
        raise NmtError(
            f"{error}; training stopped {_place(state, folder)}; start the same command again with a smaller "
            f"--device-tokens, such as {state.device_tokens(setup) // 2}"
        ) from error
    except StoppedError as ended:
        if setup.world.is_main:
            loop.save_state()
        setup.world.barrier()  # when one rank ends, the launcher ends the others, even one that is saving
        raise StoppedError(f"stopped {_place(state, folder)}; start the same command again to resume") from ended


def _place(state: TrainState, folder: RunFolder) -> str:
    update = state.counters.update
    return f"after update {update:,} with its state saved in {folder.path}" if update else "before the first update"


def first_plan(setup: Setup, state: TrainState) -> UpdatePlan:
    """Returns the plan of the state's epoch; logs it, and makes sure that batches fit into memory."""
    plan = plan_epoch(setup, state)
    show_plan(setup, state, plan)
    fit_memory(setup, state, plan)
    return plan


def fit_memory(setup: Setup, state: TrainState, plan: UpdatePlan) -> None:
    """Checks that the largest micro-batches fit into memory. Lowers the default of --device-tokens if they do not."""
    tokens = state.device_tokens(setup)
    found = state.gradients.fitting_tokens(plan.epoch.widest, tokens, state.missing_bytes)
    fitting = min(setup.world.gather(found))
    if fitting == tokens:
        return
    problem = f"micro-batches of --device-tokens {tokens} do not fit into memory"
    if not fitting:
        raise NmtError(f"{problem}; train a smaller model or drop long pairs")
    if setup.config.device_tokens is not None:
        raise NmtError(f"{problem}; give --device-tokens {fitting}")
    state.counters.device_tokens = fitting
    console.info(f"{problem}, so training uses {fitting}")
