"""Learning-rate schedules (paper §5.3)."""

from nmt.config import TrainConfig

ENDLESS = ("paper", "inverse-sqrt", "constant")  # do not depend on --max-updates, so a clock may end the training


def learning_rate(update: int, d_model: int, config: TrainConfig) -> float:
    """Returns the learning rate of update 1, 2, … by --lr-schedule.

    The paper's is scale · d_model^-0.5 · min(update^-0.5, update · warmup^-1.5). The others rise linearly to --lr
    in the warm-up. Then they fall with update^-0.5, fall linearly to 0 at the last update, or stay.
    """
    warmup = config.warmup_updates
    if config.lr_schedule == "paper":
        return config.lr_scale * d_model**-0.5 * min(update**-0.5, update * warmup**-1.5)
    assert config.lr is not None  # TrainConfig checks this
    if update <= warmup:
        return config.lr * update / warmup
    if config.lr_schedule == "inverse-sqrt":
        return config.lr * (warmup / update) ** 0.5
    if config.lr_schedule == "linear":
        return config.lr * max(0.0, (config.max_updates - update) / max(1, config.max_updates - warmup))
    return config.lr  # constant
