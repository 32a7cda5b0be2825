"""`nmt preprocess`."""


def preprocess() -> None:
    raise NotImplementedError
