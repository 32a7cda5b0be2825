"""What goes wrong when files are written, in one sentence."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nmt.errors import NmtError


@contextmanager
def writing(path: str | Path, way_out: str) -> Iterator[None]:
    """Turns the errors of writing to `path` into an NmtError that ends with `way_out`."""
    try:
        yield
    except BrokenPipeError:  # the reader wants no more
        raise
    except OSError as error:
        raise NmtError(f"{path} cannot be written ({error.strerror or error}); {way_out}") from error
