"""The expected exceptions that end a command. Any other exception is a bug.

- NmtError: a mistake that the user can correct
  - OptionError: an option has a wrong value, or two options do not go together
  - DamagedError: a file is damaged
  - BusyError: another process uses a folder
  - MemoryRanOutError: a training needs more memory than there is
- StoppedError: a signal stopped the work, which can be resumed
"""

from collections.abc import Iterator
from contextlib import contextmanager

# EX_TEMPFAIL of <sysexits.h>. If the same command is started again, it resumes the work.
INTERRUPTED_EXIT_CODE = 75


class NmtError(Exception):
    """A mistake that the user can correct.

    The message is one sentence. It names the file, line or flag, says what was found there, and says what to do.
    The command line prints it on one line and exits with code 1.
    """


class OptionError(NmtError):
    """An option has a wrong value, or two options do not go together.

    A program that tries many options, such as a search for the best ones, can go on with the next.
    """


class DamagedError(NmtError):
    """A file does not have the content that nmt wrote. A program can take an earlier file or another copy."""


class BusyError(NmtError):
    """Another process uses a folder. A program can wait and try again, or choose another folder."""


class MemoryRanOutError(NmtError):
    """A training ran out of memory. A program can train on with a smaller `device_tokens`; the run folder is intact.

    Args:
        advice: what else to do, if a smaller `device_tokens` does not help.
    """

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.advice = advice


class StoppedError(Exception):
    """A signal asked the work to stop. The same call resumes it; the command line exits with INTERRUPTED_EXIT_CODE."""


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Puts a name, such as that of a file, before the message of an NmtError."""
    try:
        yield
    except NmtError as error:
        raise NmtError(f"{name}: {error}") from error


@contextmanager
def importing(package: str, user: str, *, extra: str) -> Iterator[None]:
    """Turns an ImportError in the block into an NmtError that says how to install an optional package.

    Args:
        user: the command, flag or file that needs the package.
        extra: the extra of the toolkit that has the package.
    """
    try:
        yield
    except ImportError as error:
        # The toolkit is on no package index.
        command = f"pip install '.[{extra}]' -c constraints.txt in the clone of nmt"
        raise NmtError(f"{user} needs the package {package} ({error}); install it with {command}") from error
