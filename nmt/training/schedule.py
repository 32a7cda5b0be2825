"""The learning rate as a function of the update (paper §5.3)."""


def learning_rate(update: int, d_model: int, warmup_updates: int, scale: float = 1.0) -> float:
    """Returns scale · d_model^-0.5 · min(update^-0.5, update · warmup^-1.5), for update 1, 2, …"""
    return scale * d_model**-0.5 * min(update**-0.5, update * warmup_updates**-1.5)
