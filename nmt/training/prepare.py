"""What happens before the first update: data, model, options and ranks are checked, and the plan is shown."""

from pathlib import Path

from nmt import console
from nmt.checkpoint import WEIGHT_BYTES, check_memory
from nmt.config import ModelConfig, SearchConfig, TrainConfig
from nmt.config.options import flag_name
from nmt.data.batching import UpdatePlan
from nmt.data.folder import DataFolder
from nmt.errors import NmtError
from nmt.model.device import Runtime, device_type
from nmt.scoring import tokenizer_warning
from nmt.signals import StopSignals
from nmt.training.log import require_tensorboard, show_plan
from nmt.training.ranks import World
from nmt.training.state import Setup, TrainState
from nmt.training.update import fit_memory, plan_epoch

NOTHING_SAVED = "stopping; nothing is saved"  # what is logged when a signal stops a measurement


def prepare(
    data: DataFolder, model_config: ModelConfig, config: TrainConfig, world: World, runtime: Runtime, stop: StopSignals
) -> Setup:
    """Verifies the data, and checks that data, model, options and ranks fit together.

    Raises:
        NmtError: they do not fit together, or the data is damaged; the message names what does not fit.
    """
    flags = {flag_name(name): value for name, value in (model_config.to_dict() | config.to_dict()).items()}
    world.require_same({"the data folder": data.meta.fingerprint, "precision": runtime.precision, **flags})
    _check_fit(data, model_config, config)
    if world.is_main:
        data.verify(lambda: stop.received)
    world.barrier()  # ends the other ranks if the data is damaged
    setup = Setup(data, model_config, config, world, runtime, stop)
    split = data.split("train")
    longest = max(split.source.longest, split.target.longest)  # in any of its encodings
    if longest > setup.device_tokens:
        raise NmtError(
            f"--device-tokens {setup.device_tokens} is too small for the longest training sentence, which needs "
            f"{longest}; give at least that, or drop long pairs with nmt preprocess --max-length"
        )
    return setup


def check_save_dir(data: DataFolder, config: TrainConfig) -> None:
    """Raises NmtError if the training would write to the data folder."""
    if Path(config.save_dir).resolve() == data.path.resolve():
        raise NmtError(f"--save-dir {config.save_dir} is the data folder; choose another folder for the run")


def _check_fit(data: DataFolder, model_config: ModelConfig, config: TrainConfig) -> None:
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
    if model_config.learned_positions is not None:
        _check_positions(data, model_config, config)
    if "bleu" in config.valid_metric and (warning := tokenizer_warning(data.codec.config.target_lang)):
        console.warn(warning)
    if device_type(config) == "cpu":
        # Weights, gradients, the two moments of Adam or the one of Muon, and the average.
        copies = 2 + (2 if config.optimizer == "adam" else 1) + (config.ema is not None)
        check_memory(model_config, data.codec, config.gpus * copies * WEIGHT_BYTES)


def _check_positions(data: DataFolder, model_config: ModelConfig, config: TrainConfig) -> None:
    """Raises NmtError if the data or a translation may be longer than --learned-positions."""
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


def first_plan(setup: Setup, state: TrainState) -> UpdatePlan:
    """Returns the plan of the state's epoch; logs it, and makes sure that batches fit into memory."""
    plan = plan_epoch(setup, state)
    show_plan(setup, state, plan)
    fit_memory(setup, state, plan)
    return plan
