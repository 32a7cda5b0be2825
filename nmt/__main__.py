"""The entry point of the command `nmt` and of `python -m nmt`.

It settles what signals do and how threads wait before anything slow is imported.
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
