"""The entry point of the command `nmt` and of `python -m nmt`.

It sets up the handling of signals and of threads before it imports slow modules, so that a signal during the
imports is handled too.
"""

import os
import sys
from signal import SIGTERM

from nmt import resources, signals


def main() -> None:
    """Runs the command that `sys.argv` names."""
    if _can_be_resumed(sys.argv[1:]):
        signals.end_resumably()
    else:
        signals.end_without_traceback()
    if "RANK" in os.environ:
        signals.end_with_parent(SIGTERM)
    resources.limit_spinning()
    from nmt.cli.app import main as run

    run()


def _can_be_resumed(arguments: list[str]) -> bool:
    match arguments:
        case ["train" | "preprocess" | "clean", *_]:
            return True
        case ["generate" | "rescore" | "align" | "translate-file" as command, *options]:
            has_output = command == "translate-file" or any(option.split("=")[0] == "--output" for option in options)
            return has_output and not any(option.split("=")[-1] == "-" for option in options)  # a standard stream
    return False


if __name__ == "__main__":
    main()
