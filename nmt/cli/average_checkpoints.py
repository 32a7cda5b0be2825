"""`nmt average-checkpoints` averages the weights of several checkpoints."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from nmt.errors import NmtError


def average_checkpoints(
    checkpoints: Annotated[list[str], Argument(metavar="RUN|CHECKPOINT", help="Run folders or checkpoint files.")],
    output: Annotated[str, Option(help="File to write, whose name ends in .safetensors.")],
    last: Annotated[
        int | None,
        Option(
            min=1,
            max=1_000_000,
            help="Newest checkpoints, snapshot-UPDATE.safetensors, to take from each run folder; 5 by default.",
        ),
    ] = None,
    best: Annotated[
        int | None,
        Option(
            min=1,
            max=1_000_000,
            help="Take this many of the best checkpoints instead (best-UPDATE.safetensors of train --keep-best).",
        ),
    ] = None,
) -> None:
    """Average the weights of the newest or best checkpoints of a run, or of the given checkpoint files.

    Several run folders, whose models must have the same sizes and vocabulary, give one average of all checkpoints
    that are taken from them.
    """
    from nmt import checkpoint, console
    from nmt.checkpoint_format import SUFFIX, read_provenance
    from nmt.files import output_file
    from nmt.training import averaging

    if last and best:
        raise NmtError("--last and --best were both given; leave out one of them")
    if (last or best) and all(Path(path).is_file() for path in checkpoints):
        flag = "--last" if last else "--best"
        raise NmtError(f"{flag} takes checkpoints from run folders, but {checkpoints[0]} is a file; leave out {flag}")
    paths = averaging.chosen_checkpoints(checkpoints, last or 5, best)
    learned = [read_provenance(path).get("learned_from") for path in paths]  # of --lora and the like
    with output_file(output, [*paths, *(each["path"] for each in learned if each)], suffix=SUFFIX) as file:
        checkpoint.write_checkpoint(averaging.average_checkpoints(paths), file)
    console.info(f"{output}: average of {', '.join(path.name for path in paths)}")
