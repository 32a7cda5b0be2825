"""`nmt info` describes a checkpoint or a folder."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from nmt.cli.flags import CHECKPOINT, flags


@flags()
def info(
    path: Annotated[
        str,
        Argument(
            metavar="FILE|FOLDER",
            help="Checkpoint, name of a published model, training state, data folder, run folder or exported folder.",
        ),
        CHECKPOINT,
    ],
    as_json: Annotated[bool, Option("--json", help="Print everything as JSON.")] = False,
    verify: Annotated[bool, Option("--verify", help="Compare the content with its recorded SHA-256.")] = False,
) -> None:
    """Show what a file or folder is: its model, languages, text processing, last validation and origin."""
    import json

    from nmt.info import describe, lines_of

    description = describe(Path(path), verify=verify)
    if as_json:
        print(json.dumps(description, indent=1))
    else:
        for name, value in list(lines_of(description)):  # so that nothing is printed before an error
            print(f"{name:<14}  {value}")
