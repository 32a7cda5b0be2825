"""`nmt average-checkpoints` averages the weights of several checkpoints."""

from typing import Annotated

import typer


def average_checkpoints(
    checkpoints: Annotated[
        list[str], typer.Argument(metavar="RUN|CHECKPOINT...", help="Run folders or checkpoint files.")
    ],
    output: Annotated[str, typer.Option(help="File to write, whose name ends in .safetensors.")],
    last: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Number of newest checkpoints to take from each run folder.")
    ] = 5,
    best: Annotated[
        int | None,
        typer.Option(min=1, max=1_000_000, help="Take this many of the best checkpoints instead (train --keep-best)."),
    ] = None,
) -> None:
    """Average the weights of the newest or best checkpoints of a run, or of the given checkpoint files."""
    from nmt import checkpoint, console
    from nmt.checkpoint_file import SUFFIX
    from nmt.files import output_file
    from nmt.training.run_folder import chosen_checkpoints

    paths = chosen_checkpoints(checkpoints, last, best)
    with output_file(output, paths, suffix=SUFFIX) as file:
        checkpoint.write_checkpoint(checkpoint.average_checkpoints(paths), file)
    console.info(f"{output}: average of {', '.join(path.name for path in paths)}")
