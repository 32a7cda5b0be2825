"""The options of `nmt train`."""

from dataclasses import dataclass
from typing import Literal

from nmt.options import MOST_PROCESSES, Config, option

# Padded tokens at once that fill a GPU, and tokens times d_model that stay in the cache of a CPU.
_GPU_TOKENS, _CPU_NUMBERS = 8192, 2**20


@dataclass(frozen=True, kw_only=True)
class RuntimeConfig(Config):
    """Where and in which precision a model runs."""

    device: Literal["auto", "cpu", "cuda"] = option(
        "auto", help="auto takes a GPU where there is one.", panel="Hardware"
    )
    precision: Literal["auto", "bf16", "fp32"] = option(
        "auto",
        help="bf16 computes matrix products in bfloat16, with fp32 weights; auto takes it where the hardware has it.",
        panel="Hardware",
    )


@dataclass(frozen=True, kw_only=True)
class PlanConfig(Config):
    """What is trained on at once."""

    batch_tokens: int = option(
        25_000, help="Source tokens and target tokens in an update, over all devices.", panel="Batches", at_least=1
    )
    batch_groups: int = option(
        8,
        help="Groups of similar length an update is put together from; 1 is the paper's text, 8 what its GPUs did.",
        panel="Batches",
        at_least=1,
        at_most=10_000,
    )
    device_tokens: int | None = option(
        None,
        help="Padded tokens a side in one forward pass; lower it if memory runs out, the update stays the same. "
        "Otherwise 8192 on a GPU, and on a CPU 2^20 / d_model, more than which is slower.",
        panel="Batches",
        at_least=1,
        at_most=1_000_000,
    )

    def tokens_at_once(self, device: str, d_model: int) -> int:
        """--device-tokens, or what suits `device`, cuda or cpu."""
        return self.device_tokens or (_GPU_TOKENS if device == "cuda" else max(1, _CPU_NUMBERS // d_model))


@dataclass(frozen=True, kw_only=True)
class BatchConfig(PlanConfig, RuntimeConfig):
    """What the speed of training depends on: what is trained on at once, where, and how."""

    compile: bool = option(
        False,
        help="Compile the layers with torch.compile, which takes a while at first. For a GPU in bf16, where attention "
        "is without dropout, windows or additive scores.",
        panel="Hardware",
    )


@dataclass(frozen=True, kw_only=True)
class TrainConfig(BatchConfig):
    """How `nmt train` trains. The defaults are the paper's base model (§5), unless the help says otherwise."""

    gpus: int = option(
        1,
        help="Processes to train with on this machine, each on a GPU of its own; with --device cpu they share the "
        "cores. The number changes the speed, not what is trained.",
        panel="Hardware",
        at_least=1,
        at_most=MOST_PROCESSES,
    )
    rank_timeout: float = option(
        600.0,
        help="Seconds that processes wait for one another before the run ends.",
        panel="Hardware",
        above=0,
        at_most=1_000_000,
    )
    save_dir: str = option(help="Run folder: checkpoints, metrics.jsonl. Training resumes what it finds.", panel="Run")
    resume_changed: bool = option(
        False,
        help="Resume though model, data, batches or seed are not the run's own: from its weights, with a new epoch.",
        panel="Run",
    )
    max_updates: int = option(100_000, help="Updates to train for.", panel="Run", at_least=1)
    seed: int = option(1, help="Seed of weights, data order and dropout.", panel="Run", at_least=0)
    label_smoothing: float = option(
        0.1, help="Share of probability spread over the vocabulary.", panel="Optimiser", at_least=0, below=1
    )
    warmup_updates: int = option(4000, help="Updates of linear warm-up.", panel="Optimiser", at_least=1)
    lr_scale: float = option(
        1.0,
        help="Factor on the paper's d_model^-0.5 · min(step^-0.5, step · warmup^-1.5).",
        panel="Optimiser",
        above=0,
        at_most=1e30,
    )
    adam_beta1: float = option(0.9, help="Adam's β1.", panel="Optimiser", at_least=0, below=1)
    adam_beta2: float = option(0.98, help="Adam's β2.", panel="Optimiser", at_least=0, below=1)
    adam_epsilon: float = option(1e-9, help="Adam's ε.", panel="Optimiser", above=0)
    max_skipped_updates: int = option(
        10,
        help="Stop at so many updates in a row whose loss or gradient is not finite; each is skipped.",
        panel="Optimiser",
        at_least=1,
    )
    clip_norm: float | None = option(
        None, help="Scale gradients down to this norm. The paper does not.", panel="Optimiser", above=0
    )
    valid_updates: int = option(1000, help="Validate every so many updates.", panel="Validation", at_least=1)
    valid_bleu: bool = option(True, help="Also translate the validation set and score it.", panel="Validation")
    save_minutes: float = option(10.0, help="Write a snapshot every so many minutes.", panel="Checkpoints", above=0)
    save_updates: int | None = option(
        None, help="Write a snapshot every so many updates instead.", panel="Checkpoints", at_least=1
    )
    keep_checkpoints: int = option(20, help="Snapshots to keep.", panel="Checkpoints", at_least=1)
    log_updates: int = option(100, help="Log every so many updates.", panel="Run", at_least=1)
