"""The expected exceptions that end a command. Any other exception is a bug."""

# EX_TEMPFAIL of <sysexits.h>. If the same command is started again, it resumes the work.
INTERRUPTED_EXIT_CODE = 75


class NmtError(Exception):
    """A mistake that the user can correct.

    The message is one sentence. It names the file, line or flag, says what was found there, and says what to do. The
    command line prints it on one line and exits with code 1.
    """


class DataChanged(NmtError):  # noqa: N818 (named after what happened)
    """The data folder has changed since it was opened; `found` names the file and says what is wrong with it."""

    def __init__(self, found: str) -> None:
        super().__init__(found)
        self.found = found

    def __str__(self) -> str:
        return f"{self.found}; restore the data folder and start the same command again"


class Interrupted(Exception):  # noqa: N818 (not an error)
    """A signal asked the work to stop. The work can be resumed; the command line exits with INTERRUPTED_EXIT_CODE."""
