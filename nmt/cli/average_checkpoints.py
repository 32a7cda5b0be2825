"""`nmt average-checkpoints`."""


def average_checkpoints() -> None:
    raise NotImplementedError
