"""The exceptions that end a command early, other than bugs."""

# EX_TEMPFAIL of <sysexits.h>: the same command, started again, resumes the work.
INTERRUPTED_EXIT_CODE = 75


class NmtError(Exception):
    """A mistake that the user can correct.

    The message is one sentence that names the file, line or flag, what was found there, and the way out.
    The command line prints it on one line and exits with code 1; any other exception is a bug and shows its traceback.
    """


class DataChanged(NmtError):  # noqa: N818 (named after what happened)
    """The data folder is not what it was when it was opened; `found` names the file and what happened to it."""

    def __init__(self, found: str) -> None:
        super().__init__(found)
        self.found = found

    def __str__(self) -> str:
        return f"{self.found}; put the data folder back as it was and start the same command again"


class Interrupted(Exception):  # noqa: N818 (it is no error)
    """Work was asked to stop and has saved its state; the command line exits with INTERRUPTED_EXIT_CODE."""
