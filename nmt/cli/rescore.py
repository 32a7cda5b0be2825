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
    from nmt.jobs.run import Run, check_files
    from nmt.jobs.source import Files
    from nmt.training.records import perplexity
    from nmt.translate.job import RescoringJob, placed, settings_of
    from nmt.translate.lines import PairFormat
    from nmt.translate.records import ScoredLine

    form = "files" if files.source is not None else files.input_format
    lines = PairFormat(form, files.output_format, files.normalize)
    names = ("input_format", "output_format", "normalize", "alignments")
    source = Files([list(files.by_flag.values())], list(files.by_flag))
    check_files([*source.paths, *checkpoints], files.output, options)
    totals = {"lines": 0, "pieces": 0, "log_prob": 0.0}

    def text(record: Any) -> str:
        line = ScoredLine.of(record)
        totals["lines"] += 1
        totals["pieces"] += sum(score.tokens for score in line.scores)
        totals["log_prob"] += sum(score.log_prob for score in line.scores)
        return lines.written(line)

    with connected(options, files.workers) as execution, console.Progress("rescore", None, "line") as progress:
        runtime = placed(runtime, options)
        job = RescoringJob(tuple(checkpoints), runtime, files.batch_tokens, files.alignments, lines)
        settings = settings_of(runtime) | {flag_name(name): getattr(files, name) for name in names}
        is_written = Run.of_files(job, source, files.output, settings, execution, progress).write(text)
    if is_written:
        per_piece = perplexity(-totals["log_prob"] / max(totals["pieces"], 1))
        console.info(
            f"{console.counted(int(totals['lines']), 'line')}, {console.counted(int(totals['pieces']), 'piece')} with "
            f"EOS, log P {totals['log_prob']:,.4f}, perplexity {per_piece:,.4f} per piece"
        )
