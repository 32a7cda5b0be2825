"""The one exception a user is meant to see."""


class NmtError(Exception):
    """A mistake the user can put right.

    The message is one sentence that names the file, line or flag, what was found there, and the way out.
    The command line prints it on one line and exits with code 1; any other exception is a bug and shows its traceback.
    """
