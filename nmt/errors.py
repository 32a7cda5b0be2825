"""The expected exceptions that end a command. Any other exception is a bug."""

from collections.abc import Iterator
from contextlib import contextmanager

# EX_TEMPFAIL of <sysexits.h>. If the same command is started again, it resumes the work.
INTERRUPTED_EXIT_CODE = 75


class NmtError(Exception):
    """A mistake that the user can correct.

    The message is one sentence. It names the file, line or flag, says what was found there, and says what to do. The
    command line prints it on one line and exits with code 1.
    """


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Puts a name, such as that of a file, before the message of an NmtError."""
    try:
        yield
    except NmtError as error:
        raise NmtError(f"{name}: {error}") from error


@contextmanager
def importing(package: str, user: str, install: str = "") -> Iterator[None]:
    """Turns an ImportError in the block into an NmtError that says how to install an optional package.

    Args:
        user: the command, flag or file that needs the package.
        install: what pip has to install; by default the package.
    """
    try:
        yield
    except ImportError as error:
        raise NmtError(
            f"{user} needs the package {package} ({error}); install it with pip install {install or package}"
        ) from error


class DamagedError(NmtError):
    """A file does not have the content that nmt wrote."""


class StoppedError(Exception):
    """A signal asked the work to stop. The work can be resumed; the command line exits with INTERRUPTED_EXIT_CODE."""
