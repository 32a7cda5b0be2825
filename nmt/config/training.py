"""The options of `nmt train`, and those of the hardware, which other commands have, too."""

from dataclasses import dataclass
from functools import partial
from typing import Literal

from nmt.config.options import Config, Count, Natural, Positive, Probability, Processes, option

main_option = partial(option, panel="Options")
hardware_option = partial(option, panel="Hardware")
# In nmt clean, models are computed for --score-with alone.
runtime_option = partial(option, needs="score_with")
run_option = partial(option, panel="Run")
validation_option = partial(option, panel="Validation")
checkpoints_option = partial(option, panel="Checkpoints")


@dataclass(frozen=True, kw_only=True)
class RuntimeConfig(Config, panel="Hardware"):
    """Where and how precisely a model is computed, and the user's own code.

    The fields are the options of `nmt generate --help` under Hardware, and `user_module`.
    """

    device: Literal["auto", "cpu", "cuda"] = runtime_option("auto", "Device; auto uses a GPU if there is one.")
    precision: Literal["auto", "bf16", "fp16", "fp32"] = runtime_option(
        "auto",
        "Number format of matrix products. auto is bf16 where the hardware computes it, fp16 on GPUs without bf16, "
        "and otherwise fp32. Training keeps the weights that learn in fp32.",
    )
    user_module: str | None = runtime_option(
        None,
        "Python file with your own architectures, losses or scorers; see docs/extending.md.",
        panel="Run",
        excludes="cluster",
    )


@dataclass(frozen=True, kw_only=True)
class PlanConfig(Config, panel="Batches"):
    """The sizes of updates and of micro-batches."""

    batch_tokens: Count = option(
        25_000, "Size of an update: about so many source tokens and as many target tokens, over all devices together."
    )
    batch_groups: Count = option(
        8,
        "An update consists of this many groups of sentences, 8 as on the paper's 8 GPUs. The sentences of a group "
        "have similar lengths. More groups mix the lengths in an update better, fewer have less padding; 4 suits "
        "small updates.",
        at_most=10_000,
    )
    device_tokens: Count | None = option(
        None,
        "About the most tokens of a side in one forward pass, padding included. An update takes as many passes as it "
        "needs: lower it if memory runs out, and updates keep their size. By default, 32768 on a GPU. On a CPU, 2^20 / "
        "--d-model, such as 2048 for transformer_base, which fits into caches. Less if memory is too small.",
        at_most=1_000_000,
    )

    def tokens_at_once(self, device: str, d_model: int) -> int:
        """Returns --device-tokens, or the default for `device`, which is cuda or cpu.

        The default of a GPU holds an update of --batch-tokens 25,000, because few parts use a GPU better. That of
        a CPU is the number of tokens whose activations, tokens · d_model, stay in the cache.
        """
        return self.device_tokens or (32_768 if device == "cuda" else max(1, 2**20 // d_model))


@dataclass(frozen=True, kw_only=True)
class BatchConfig(PlanConfig, RuntimeConfig, panel="Batches"):
    """The options that the speed of training depends on, apart from the architecture."""

    compile: bool = hardware_option(
        False,
        "Compile the layers and the loss with torch.compile, which is faster. It works only on a GPU in bf16, because "
        "compiled layers use a kernel of attention that computes only there, and only if --d-k equals --d-v, without "
        "--attention-window, --guided-alignment and additive attention.",
    )


@dataclass(frozen=True, kw_only=True)
class TimeConfig(Config, panel="Options"):
    """The time that a training may take."""

    hours: float | None = option(
        None,
        "Train for this many hours. The command measures the machine, chooses architecture, optimiser, batch size, "
        "schedule, dropout, validation and checkpoints, and prints each choice with its reason. It does not change "
        "options that you give. Afterwards, use average.safetensors in the run folder.",
        at_least=0.01,
        at_most=100_000,
    )
    minutes: float | None = option(
        None, "The same as --hours, in minutes.", excludes="hours", at_least=0.1, at_most=6_000_000
    )

    @property
    def seconds(self) -> float:
        """The time in seconds; 0 if it is not limited."""
        return 3600 * (self.hours or 0) + 60 * (self.minutes or 0)


@dataclass(frozen=True, kw_only=True)
class TrainConfig(BatchConfig, panel="Optimiser"):
    """How `nmt train` trains. The defaults are the values of the paper (§5), unless the help says otherwise."""

    save_dir: str = main_option(
        help="Run folder: the place of checkpoints, metrics and options. A training that was stopped there resumes."
    )
    arch: str | None = main_option(
        None, "Architecture; `nmt architectures` lists them. Required without --init-from, --hours and --minutes."
    )
    init_from: str | None = main_option(
        None,
        "Checkpoint to fine-tune: training starts with its weights, and with its architecture if --arch is not given. "
        "--encoder-layers and --decoder-layers may be smaller than the checkpoint's.",
        checkpoint=True,
    )
    max_updates: Count = main_option(100_000, "Stop after this many updates.")
    gpus: Processes = option(
        1,
        "Training processes on this machine, each on its own GPU. With --device cpu, they share the cores. "
        "Their number changes the speed, but not the size of an update.",
        panel="Hardware",
    )
    rank_timeout: Positive = hardware_option(
        600.0,
        "Seconds that a process of a training on several GPUs waits for the others before the run fails.",
        at_most=1_000_000,
    )
    reduce_precision: Literal["fp32", "bf16"] = hardware_option(
        "fp32",
        "Number format in which the processes of a training send each other their gradients, once in an update. bf16 "
        "halves the data and rounds the sums, which helps where GPUs are connected without NVLink.",
    )
    resume_changed: bool = run_option(
        False,
        "Resume although the data, the batches, the seed, the dropouts, --attention-window or --guided-alignment have "
        "changed. Training goes on with the run's weights in a new epoch. The updates that are done count towards "
        "--max-updates.",
    )
    seed: Natural = run_option(1, "Seed of the initial weights, the data order and dropout.")
    label_smoothing: Probability = option(
        0.1, "Label smoothing: share of each target token's probability that is spread over the vocabulary."
    )
    criterion: str | None = option(
        None,
        "Name of a loss of yours, which the file of --user-module registers. It replaces the default: cross-entropy "
        "with --label-smoothing.",
        excludes="label_smoothing",
    )
    alignment_weight: float = option(
        0.05, "Weight of the alignment loss of --guided-alignment, relative to the translation loss.", at_least=0
    )
    freeze: tuple[Literal["embeddings", "encoder", "decoder"], ...] = option(
        (),
        "Part of the model whose weights stay as they are in --init-from. embeddings includes positions and the output "
        "layer, which shares its weights with them. May be given several times.",
    )
    lora: Count | None = option(
        None,
        "LoRA (Hu et al. 2021), which needs less memory: learn a low-rank update of this rank for each attention and "
        "feed-forward matrix. The weights of --init-from do not change; those of layers are kept in memory in 16 bits. "
        "Embeddings of pieces that --init-from does not have are learnt, too.",
        needs="init_from",
        excludes="freeze",
    )
    optimizer: Literal["adam", "muon"] = option(
        "adam",
        "adam is the paper's. muon orthogonalises the momentum of the matrices in the layers (Jordan et al. 2024), and "
        "uses Adam for all other weights.",
    )
    lr_schedule: Literal["paper", "inverse-sqrt", "linear", "constant"] = option(
        "paper",
        "Learning rate after the warm-up. paper and inverse-sqrt fall with update^-0.5, linear falls to 0 at "
        "--max-updates, and constant stays. The peak is --lr, but that of paper follows from --d-model, "
        "--warmup-updates and --lr-scale.",
        needs="lr",
    )
    lr: Positive | None = option(
        None,
        "Peak learning rate, reached at the end of the warm-up. inverse-sqrt, linear and constant need it, such as "
        "1e-4 to tune a model; the schedule paper has --lr-scale instead.",
        needs="lr_schedule=inverse-sqrt lr_schedule=linear lr_schedule=constant",
    )
    warmup_updates: Count = option(4000, "Updates in which the learning rate rises linearly.")
    lr_scale: Positive = option(
        1.0,
        "Factor on the paper's learning rate, d_model^-0.5 · min(step^-0.5, step · warmup^-1.5).",
        excludes="lr_schedule",
    )
    adam_beta1: Probability = option(0.9, "Adam's β1.")
    adam_beta2: Probability = option(0.98, "Adam's β2.")
    adam_epsilon: Positive = option(1e-9, "Adam's ε.")
    ema: Positive | None = option(
        None,
        "Keep a moving average of the weights with this decay; validation and checkpoints use it. 0.9999 covers about "
        "the last 10,000 updates and 0.999 the last 1,000. By default, no average; it can replace average-checkpoints.",
        below=1,
    )
    max_skipped_updates: Count = option(
        10, "An update whose loss or gradient is infinite or NaN is skipped. Stop after this many in a row."
    )
    clip_norm: Positive | None = option(None, "Largest norm of the gradient; a larger gradient is scaled down to it.")
    valid_updates: Count = validation_option(1000, "Validate every N updates.")
    valid_metric: tuple[Literal["bleu", "chrf", "paper-bleu", "exact", "nll"], ...] = validation_option(
        ("bleu",),
        "Metric that decides which checkpoint is the best. nll, the loss, takes less time than the others, which need "
        "translations. paper-bleu and exact are those of nmt score. May be given several times: the first one decides, "
        "and --patience watches all.",
    )
    valid_lines: Count | None = validation_option(
        None,
        "Translate at most this many lines of each direction. By default 100 for a model of several languages, and "
        "otherwise all.",
    )
    patience: Count | None = validation_option(
        None, "Stop when no --valid-metric has improved in this many validations."
    )
    min_delta: float = validation_option(
        0.0,
        "Improvements up to this size do not count for --patience. The unit is that of the metric: points of BLEU or "
        "chrF, or nats of nll.",
        needs="patience",
        at_least=0,
    )
    keep_best: Count = checkpoints_option(1, "Best checkpoints to keep, for average-checkpoints --best.")
    save_minutes: Positive = checkpoints_option(
        10.0,
        "Write a training state, from which training resumes after a crash, every N minutes of training; and a "
        "checkpoint, the file snapshot-UPDATE.safetensors, unless --save-updates is given.",
    )
    save_updates: Count | None = checkpoints_option(
        None, "Write a checkpoint every N updates instead of every N minutes."
    )
    keep_checkpoints: Count = checkpoints_option(
        20,
        "Checkpoints (snapshot-UPDATE.safetensors) to keep, at least as many as --average-last takes; older ones are "
        "removed.",
    )
    average_last: Count | None = checkpoints_option(
        None,
        "After training, average this many of the last checkpoints (snapshot-UPDATE.safetensors) into "
        "average.safetensors.",
    )
    log_updates: Count = run_option(
        100,
        "Print and record the metrics every N updates. loss contains label smoothing, and ppl does not; norm is the "
        "norm of the gradient; docs/runs.md explains the others.",
    )
    tensorboard: bool = run_option(False, "Also write the metrics as TensorBoard event files into the run folder.")

    def _check(self) -> None:
        object.__setattr__(self, "freeze", tuple(sorted(set(self.freeze))))  # a resumed run may give another order

    @property
    def translates(self) -> bool:
        """Whether a validation translates the validation set."""
        return any(metric != "nll" for metric in self.valid_metric)
