"""`nmt rescore` computes log P of given translations."""

from typing import Any

from nmt import console
from nmt.cli.flags import Checkpoints, flags
from nmt.config import DirectionConfig, JobConfig, RescoringFiles, RuntimeConfig, flag_name


@flags()
def rescore(
    checkpoints: Checkpoints,
    files: RescoringFiles,
    languages: DirectionConfig,
    options: JobConfig,
    runtime: RuntimeConfig,
) -> None:
    """Print the log probability of given translations, one line for every pair, and the perplexity of all.

    If a job from files to --output is interrupted, the same command resumes it.
    """
    from nmt.checkpoint_format import read_text_config
    from nmt.jobs.run import Run, can_resume, check_inputs, executing, settings_of
    from nmt.jobs.source import Files
    from nmt.text.directions import Direction
    from nmt.training.records import perplexity
    from nmt.translate.rescoring import PairReader, RescoringJob
    from nmt.translate.setup import placed

    form = "files" if files.source is not None else files.input_format
    direction = Direction.of(languages.source_lang, languages.target_lang)
    pairs = PairReader(read_text_config(checkpoints[0]), direction, form)
    source = Files([list(files.by_flag.values())], list(files.by_flag), pairs)
    check_inputs(source.paths)
    is_resumable = can_resume([*source.paths, *checkpoints], files.output, options)
    lines = pieces = 0
    log_prob = 0.0

    def text(line: Any) -> str:
        nonlocal lines, pieces, log_prob
        lines += 1
        pieces += sum(score.tokens for score in line.scores)
        log_prob += sum(score.log_prob for score in line.scores)
        return job.text(line)

    with executing(options, files.workers) as execution, console.Progress("rescore", None, "line") as progress:
        runtime = placed(runtime, options)
        models = tuple(checkpoints)
        job = RescoringJob(models, runtime, files.batch_tokens, files.alignments, files.output_format, files.normalize)
        names = ("input_format", "output_format", "normalize", "alignments")
        settings = settings_of(runtime, languages) | {flag_name(name): getattr(files, name) for name in names}
        is_written = Run(job, source, files.output, settings, execution, progress, is_resumable).write(text)
    if is_written:
        console.info(
            f"{console.counted(lines, 'line')}, {console.counted(pieces, 'piece')} with EOS, log P {log_prob:,.4f}, "
            f"perplexity {perplexity(-log_prob / max(pieces, 1)):,.4f} per piece"
        )
