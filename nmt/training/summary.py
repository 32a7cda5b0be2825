"""What a training prints at its start: its plan, and warnings about options that do not fit."""

from nmt import console
from nmt.data.batching import UpdatePlan
from nmt.training.setup import Setup

# The padding share is computed over this many updates.
_SAMPLED_UPDATES = 100
# More epochs than this cause a warning. The paper's base model takes 22 epochs of WMT14; small corpora need about 100.
_MANY_EPOCHS = 2000


def show_plan(setup: Setup, plan: UpdatePlan, parameters: int, hardware: str) -> None:
    """Logs the plan of a training, and warnings about options that do not fit the corpus.

    Args:
        plan: the plan of the first epoch.
        parameters: the number of trained parameters.
        hardware: a description of the device.
    """
    for name, value in _plan_lines(setup, plan, parameters, hardware).items():
        console.info(f"{name:>10}  {value}")
    _warn_of_unsuitable_options(setup, plan)


def _plan_lines(setup: Setup, plan: UpdatePlan, parameters: int, hardware: str) -> dict[str, str]:
    data, model, config = setup.data, setup.model_config, setup.config
    text = data.codec.config
    sizes = f"{len(data.codec.source):,}" + ("" if text.joint_vocab else f" and {len(data.codec.target):,}")
    processes = f", {setup.world.size} processes" if setup.world.size > 1 else ""
    name = f"{config.arch}: " if config.arch else ""
    padding = plan.padding_share(setup.device_tokens, _SAMPLED_UPDATES)
    return {
        "model": f"{name}{model.in_words()}, {parameters:,} parameters"
        + (f", {' and '.join(config.freeze)} frozen" if config.freeze else ""),
        "vocabulary": f"{sizes} {text.subword} pieces, {'joint' if text.joint_vocab else 'separate'}",
        "data": f"{text.source_lang} -> {text.target_lang}, {len(plan.source_lengths):,} pairs, "
        f"{data.split('train').target.lengths.total:,} target tokens",
        "batches": f"{config.batch_tokens:,} tokens an update in {console.counted(config.batch_groups, 'group')}, "
        f"{console.counted(len(plan), 'update')} an epoch, {padding:.1%} padding",
        "device": f"{hardware}{processes}",
        "run": f"{config.save_dir}, up to update {config.max_updates:,}",
    }


def _warn_of_unsuitable_options(setup: Setup, plan: UpdatePlan) -> None:
    config = setup.config
    pairs, epochs = len(plan.source_lengths), config.max_updates / len(plan)
    if epochs > _MANY_EPOCHS:
        console.warn(
            f"--max-updates {config.max_updates:,} is {epochs:,.0f} epochs of {pairs:,} pairs; a corpus of this size "
            f"needs fewer updates, and a smaller --batch-tokens, --warmup-updates and --arch"
        )
    if config.warmup_updates > config.max_updates:
        console.warn(
            f"--warmup-updates {config.warmup_updates:,} is more than --max-updates {config.max_updates:,}, so the "
            f"learning rate never reaches its peak; lower --warmup-updates"
        )
    if pairs < len(plan) * setup.world.size:
        console.warn(
            f"{pairs:,} pairs in {len(plan):,} updates are too few for {setup.world.size} processes; "
            f"raise --batch-tokens or use fewer processes"
        )
