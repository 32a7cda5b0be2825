"""Why a request cannot be answered. `answers.py` gives each kind a status; any other NmtError is a wrong request."""

from nmt.errors import NmtError

# When clients may try again what had no room or took too long.
RETRY_SECONDS = 1


class UnknownNameError(NmtError):
    """A request names something that the server does not have."""


class TooLargeError(NmtError):
    """A request has more text than the server allows."""


class ChangedModelError(NmtError):
    """The server cannot load a model, because its file is another one now."""


class OverloadedError(NmtError):
    """The server cannot do now what it may be able to do after `RETRY_SECONDS`."""
