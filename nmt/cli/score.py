"""`nmt score`."""


def score() -> None:
    raise NotImplementedError
