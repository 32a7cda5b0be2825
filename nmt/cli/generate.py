"""`nmt generate`."""


def generate() -> None:
    raise NotImplementedError
