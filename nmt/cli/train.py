"""`nmt train`."""


def train() -> None:
    raise NotImplementedError
