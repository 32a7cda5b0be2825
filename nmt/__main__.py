"""The entry point of the command `nmt` and of `python -m nmt`.

It sets up the handling of signals and of threads before it imports slow modules, so that a signal during the imports is
handled too.
"""

import sys

from nmt import processes, resources, signals


def main() -> None:
    """Runs the command that `sys.argv` names."""
    if "train" in sys.argv[1:2]:
        signals.end_resumably()
    else:
        signals.end_without_traceback()
    processes.end_with_starter()
    resources.limit_spinning()
    from nmt.cli.app import main as run

    run()


if __name__ == "__main__":
    main()
