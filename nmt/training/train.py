"""`nmt train`: from a data folder and an architecture to a run folder of checkpoints."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

import nmt
from nmt import console
from nmt.checkpoint import WEIGHT_BYTES, Checkpoint, check_memory, meta_model
from nmt.config import ModelConfig, ScoreConfig, SearchConfig, TrainConfig, flag_name
from nmt.data.batching import PLAN_VERSION, UpdatePlan
from nmt.data.folder import DataFolder
from nmt.data.loader import Update
from nmt.errors import MemoryRanOutError, NmtError, OptionError, StoppedError, importing
from nmt.files import identity
from nmt.model.architectures import parameter_count, training_flops, weight_shapes
from nmt.model.device import device_type
from nmt.model.lora import add_low_rank
from nmt.scoring import METRICS, tokenizer_warning
from nmt.training.clock import Clock
from nmt.training.fine_tuning import start_from
from nmt.training.log import show_lines, show_plan
from nmt.training.loop import TrainingLoop
from nmt.training.ranks import Rank, join_ranks
from nmt.training.run_folder import STATES_KEPT, RunFolder
from nmt.training.snapshots import has_room_for_copies, resume, snapshot_of, training_state_of
from nmt.training.state import FROZEN_WEIGHTS, Training
from nmt.training.update import Interval, endless_updates, fit_memory, plan_epoch, train_update

# The dry run measures at most so many updates, for about so many seconds, unless a single micro-batch takes longer.
_MEASURED_UPDATES, _SECONDS = 8, 20.0
# The rank for which the dry run estimates the memory of --lora if none is given.
_USUAL_RANK = 16


def train(data_folder: str, model_config: ModelConfig, config: TrainConfig, clock: Clock | None = None) -> None:
    """Trains up to `config.max_updates`; resumes from the newest training state if the run folder has one.

    Args:
        clock: when training should end; it then changes `max_updates`.

    Raises:
        NmtError: the data, the run folder or an option cannot be used; the message names it.
        StoppedError: a signal asked to stop; the training state is saved in the run folder.
    """
    with join_ranks(config, saves=True) as rank:
        data, folder = DataFolder.open(data_folder), RunFolder(Path(config.save_dir))
        check_save_dir(data, config)
        with folder.locked() if rank.world.is_main else nullcontext():
            train_in_folder(prepare(data, model_config, config, rank), folder, clock)


def train_in_folder(training: Training, folder: RunFolder, clock: Clock | None = None) -> None:
    """Trains in a run folder that this process has locked. See `train`."""
    loop = TrainingLoop(training, folder, clock)

    def outcome() -> str:
        update = training.counters.update
        return f"after update {update:,} with its state saved in {folder.path}" if update else "before the first update"

    try:
        if not resume(training, folder):
            _take_first_weights(training)
        loop.run(first_plan(training))
    except MemoryRanOutError as error:
        # All ranks have the same state, but the main rank waits for the gradients of this one.
        if folder.path.is_dir():
            loop.save_state()
        smaller = f"start the same command again with a smaller --device-tokens, such as {training.device_tokens // 2}"
        message = f"{error}; training stopped {outcome()}; {error.advice or smaller}"
        raise MemoryRanOutError(message, error.advice) from error
    except StoppedError as ended:
        if training.world.is_main:
            loop.save_state()
        training.world.end()  # when one rank ends, the launcher ends the others, even one that is saving
        raise StoppedError(f"stopped {outcome()}; start the same command again to resume") from ended


def prepare(data: DataFolder, model_config: ModelConfig, config: TrainConfig, rank: Rank) -> Training:
    """Returns a new training, after it has verified the data, and that data, model, options and ranks fit together.

    Warns if BLEU lacks the tokeniser of the target language.

    Raises:
        NmtError: they do not fit together, or the data is damaged; the message names what does not fit.
    """
    world, runtime, stop = rank
    flags = {flag_name(name): value for name, value in (model_config.to_dict() | config.to_dict()).items()}
    own = {"the data folder": data.meta.fingerprint, "precision": runtime.precision, "device": runtime.device.type}
    world.require_same({"the version of nmt": nmt.__version__, "the plan of updates": PLAN_VERSION, **own, **flags})
    check_save_dir(data, config)
    if model_config.guided_alignment is None:
        if "alignment_weight" in config.variants():
            raise OptionError(
                f"--alignment-weight is {config.alignment_weight:g}, but needs --guided-alignment; add it"
            )
    elif data.split("train").alignments is None:
        if config.init_from is None:
            raise NmtError(
                f"--guided-alignment needs word alignments, but {data.path} has none; give them to nmt preprocess "
                f"--alignments"
            )
        console.warn(
            f"{data.path} has no word alignments, so the head that --guided-alignment names does not learn them"
        )
    elif config.lora:
        raise NmtError(
            f"--lora does not train the head of --guided-alignment, but {data.path} has word alignments; leave out one "
            f"of them"
        )
    if config.tensorboard:
        with importing("tensorboard", "--tensorboard", extra="tensorboard"):
            import torch.utils.tensorboard  # noqa: F401
    if model_config.learned_positions is not None:
        for name in ("train", "valid"):
            longest = data.split(name).longest
            model_config.check_positions(
                longest,
                f"{data.path} has {name} sentences of",
                f"give --learned-positions {longest}, or preprocess with a smaller --max-length",
            )
        if config.translates:
            longest = SearchConfig().longest + data.codec.config.most_language_tokens
            advice = f"give --learned-positions {longest} or --valid-metric nll"
            model_config.check_positions(longest, "translations for validation may have", advice)
    targets = dict.fromkeys(direction.target for direction in data.directions("valid"))
    for warning in filter(None, map(tokenizer_warning, targets if "bleu" in config.valid_metric else ())):
        console.warn(warning)
    for target in targets if "paper-bleu" in config.valid_metric else ():
        METRICS["paper-bleu"](ScoreConfig(target_lang=target))  # fails here instead of after the first updates
    if device_type(config) == "cpu":
        needed = config.gpus * bytes_of_weights(data, model_config, config)
        check_memory(model_config, data.codec, needed / parameter_count(model_config, data.codec))
    try:
        if world.is_main:
            data.verify(lambda: stop.received)
    finally:
        world.follow_main("verified")  # which may take longer than a barrier waits
    world.barrier()  # ends the other ranks if the data is damaged
    longest, limit = data.split("train").longest, config.tokens_at_once(runtime.device.type, model_config.d_model)
    if longest > limit:
        raise NmtError(
            f"--device-tokens {limit} is too small for the longest training sentence, which needs "
            f"{longest}; give at least that, or drop long pairs with nmt preprocess --max-length"
        )
    return Training(data, model_config, config, rank)


def _take_first_weights(training: Training) -> None:
    """Begins with the weights of --init-from, unless the model has them already because most do not learn."""
    if training.config.init_from and training.base is None:
        start_from(training.config.init_from, training.loss.model, training.data.codec)


def bytes_of_weights(data: DataFolder, model_config: ModelConfig, config: TrainConfig) -> int:
    """Returns the memory of the weights, and of gradients, moments and average of those that learn.

    With --lora, those of layers that --init-from has take 16 bits. Rows that pieces added to tables are left out.
    """
    model, codec = model_config, data.codec
    # The two moments of Adam or the one of Muon.
    copies = 2 + (2 if config.optimizer == "adam" else 1) + (config.ema is not None)
    count = parameter_count(model, codec)
    if config.lora:
        adapted = meta_model(model, codec)
        add_low_rank(adapted, config.lora)
        named = adapted.named_parameters()
        factors = sum(weight.numel() for name, weight in named if name.endswith((".down", ".up")))
        return 2 * count + copies * WEIGHT_BYTES * factors
    shapes = weight_shapes(model, len(codec.target), 0 if codec.config.joint_vocab else len(codec.source))
    beginnings = tuple(chain.from_iterable(FROZEN_WEIGHTS[value] for value in config.freeze))
    frozen = sum(math.prod(shape) for name, shape in shapes.items() if name.startswith(beginnings))
    return WEIGHT_BYTES * (frozen + copies * (count - frozen))


def check_save_dir(data: DataFolder, config: TrainConfig) -> None:
    """Raises NmtError if the training would write to the data folder."""
    if identity(config.save_dir) == identity(data.path):
        raise NmtError(f"--save-dir {config.save_dir} is the data folder; choose another folder for the run")


def first_plan(training: Training) -> UpdatePlan:
    """Returns the plan of the training's epoch; logs it, and makes sure that batches fit into memory."""
    plan = plan_epoch(training)
    show_plan(training, plan)
    fit_memory(training, plan)
    return plan


# The dry run estimates what a training needs from a few updates, and discards them.


def timed_updates(training: Training, stream: Iterator[Update], count: int) -> tuple[Interval, float]:
    """Performs `count` updates, or all if there are fewer; returns their sums and their time in seconds."""
    interval, started = Interval(), time.perf_counter()
    for update in stream:
        if result := train_update(training, update):
            interval.add(update.batches, result)
        if interval.updates == count:
            break
    training.runtime.wait()
    return interval, time.perf_counter() - started


def dry_run(data_folder: str, model_config: ModelConfig, config: TrainConfig) -> None:
    """Logs the plan of a training, and the time, memory, operations and disk space that it needs. Writes no run folder.

    Raises:
        StoppedError: a signal asked to stop.
    """
    with join_ranks(config, saves=False) as rank:
        training = prepare(DataFolder.open(data_folder), model_config, config, rank)
        _take_first_weights(training)
        plan = first_plan(training)
        seconds = seconds_per_update(training, plan, _SECONDS)
        updates = config.max_updates
        source, target = (tokens // len(plan) for tokens in plan.totals)
        flops = training_flops(model_config, len(training.data.codec.target), source, target) + training.optimizer.flops
        # best.safetensors and, with --keep-best, numbered copies
        best = 1 if config.keep_best == 1 else 1 + config.keep_best
        every = 60 * config.save_minutes / seconds if config.save_updates is None else config.save_updates
        kept = min(max(config.keep_checkpoints, config.average_last or 0), int(updates / every) + 1)
        moments = training.optimizer.moment_bytes + training.average_bytes
        # With --lora, snapshots have only the weights that learn, and so have training states of frozen weights.
        whole, learned = (WEIGHT_BYTES * count / 2**20 for count in (training.parameters, training.learned))
        checkpoint = learned if config.lora else whole
        training_state = (learned if training.base else whole) + moments / 2**20
        disk = kept * checkpoint + (best + (config.average_last is not None)) * whole + STATES_KEPT * training_state
        disk += max(checkpoint, whole, training_state)  # a new file is written before an old one is removed
        states = 1 + seconds * updates / (60 * config.save_minutes)
        saving = updates / every * seconds_to_copy(snapshot_of, training)
        saving += states * seconds_to_copy(training_state_of, training)
        show_lines({
            "update": f"{source:,} source and {target:,} target tokens, {flops / 1e12:.3g} TFLOP, {seconds:.3g} s",
            "in total": f"{console.duration(seconds * updates + saving)} without validation, "
            f"{updates / len(plan):,.1f} epochs, "
            f"{updates * flops:.1e} FLOP at {flops / seconds / 1e12:.3g} TFLOP/s",
            "memory": memory_in_words(training),
            "disk": f"{console.counted(kept, 'checkpoint')} of {checkpoint:,.0f} MiB and {STATES_KEPT} training states "
            f"of {training_state:,.0f} MiB, {disk / 1024:,.1f} GiB in total with "
            + ("the best checkpoint" if best == 1 else f"{best} best checkpoints"),
        })  # fmt: skip
        console.info("dry run: nothing was written to --save-dir")


def seconds_to_copy(copy: Callable[..., Checkpoint], training: Training) -> float:
    """Returns how long a training waits for the copy of a checkpoint that is then written while it goes on."""
    started = time.perf_counter()
    copy(training, copied=has_room_for_copies(training))
    return time.perf_counter() - started


def memory_in_words(training: Training) -> str:
    """Returns the peak memory so far, and for fine-tuning, an estimate of that of the other ways to tune."""
    data, model_config, config = training.data, training.model_config, training.config
    peak = training.runtime.peak_memory_mib
    words = f"{peak:,.0f} MiB per process"
    if not config.init_from:
        return words
    rank = config.lora or _USUAL_RANK
    ways = {
        "whole": replace(config, lora=None, freeze=()),
        "with --freeze embeddings": replace(config, lora=None, freeze=("embeddings",)),
        f"with --lora {rank}": replace(config, lora=rank, freeze=()),
    }
    now = bytes_of_weights(data, model_config, config)
    others = {way: bytes_of_weights(data, model_config, other) - now for way, other in ways.items()}
    return f"{words}; " + ", ".join(f"{way} {peak + more / 2**20:,.0f} MiB" for way, more in others.items())


def seconds_per_update(training: Training, plan: UpdatePlan, limit: float) -> float:
    """Returns the time of an update, which it measures for about `limit` seconds.

    If whole updates take longer, only some of their micro-batches are measured.
    """
    stream = endless_updates(training, plan)
    with console.Progress("measuring", None, "micro-batch", lines=False) as progress, closing(stream) as updates:

        def timed(measured: list[Update]) -> float:
            _, seconds = timed_updates(training, iter(measured), len(measured))
            progress.advance(sum(len(update.batches) for update in measured))
            return seconds

        first = next(updates)
        first_batch = [replace(first, batches=first.batches[:1])]
        timed(first_batch)  # is slower than the next, because memory is allocated
        seconds = timed(first_batch) * len(first.batches)
        estimate = training.world.broadcast(lambda: seconds)
        stride = math.ceil(estimate / limit)
        whole = list(islice(updates, max(1, min(_MEASURED_UPDATES, int(limit / estimate)))))
        measured = [replace(update, batches=update.batches[::stride]) for update in whole]
        for _ in range(2 if training.graphs else 0):  # a shape is computed without its graph, and then to record it
            timed(measured)
        positions = [sum(batch.positions for update in part for batch in update.batches) for part in (whole, measured)]
        return timed(measured) / len(whole) * positions[0] / positions[1]
