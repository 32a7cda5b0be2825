"""`nmt rescore` computes log P of given translations."""

from typing import Annotated, Any

import typer

from nmt import console
from nmt.cli.flags import flags
from nmt.config import JobConfig, RescoringFiles, RuntimeConfig
from nmt.config.options import flag_name


@flags(files=RescoringFiles, options=JobConfig, runtime=RuntimeConfig)
def rescore(
    checkpoints: Annotated[
        list[str], typer.Argument(metavar="CHECKPOINT", help="Checkpoint files; several form an ensemble.")
    ],
    files: RescoringFiles,
    options: JobConfig,
    runtime: RuntimeConfig,
) -> None:
    """Print the log probability of given translations, one line for every pair, and the perplexity of all.

    A job from file to file is resumed by the same command if it was interrupted.
    """
    from nmt.jobs.ray import connected
    from nmt.translate.formats import PairFormat
    from nmt.translate.job import JobOutput, check_files, placed, settings_of
    from nmt.translate.rescoring import RescoringJob

    lines = PairFormat(
        "files" if files.source is not None else files.input_format, files.output_format, files.normalize
    )
    names = ("input_format", "output_format", "normalize", "alignments")
    check_files([*files.by_flag.values(), *checkpoints], files.output, options)
    with connected(options), console.Progress("rescore", None, "line") as progress:
        runtime = placed(runtime, options)
        totals = JobOutput(
            job=RescoringJob(tuple(checkpoints), runtime, files.batch_tokens, files.alignments, lines),
            segments=[list(files.by_flag.values())],
            flags=list(files.by_flag),
            output=files.output,
            settings=settings_of(runtime) | {flag_name(name): getattr(files, name) for name in names},
            options=options,
            workers=files.workers,
            progress=progress,
        ).write()
    if totals is not None:
        _show(totals)


def _show(totals: dict[str, Any]) -> None:
    from nmt.training.records import perplexity

    lines, pieces, log_prob = (totals.get(name, 0) for name in ("lines", "pieces", "log_prob"))
    per_piece = perplexity(-log_prob / max(pieces, 1))
    console.info(
        f"{console.counted(lines, 'line')}, {console.counted(pieces, 'piece')} with EOS, log P {log_prob:,.4f}, "
        f"perplexity {per_piece:,.4f} per piece"
    )
