"""`nmt generate` translates raw text line by line."""

import sys
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Annotated

import typer

from nmt import console
from nmt.cli.flags import flags
from nmt.config import EngineConfig, JobConfig, RuntimeConfig, SearchConfig, TranslationFiles
from nmt.config.options import flag_name
from nmt.errors import NmtError
from nmt.text.glossary import Glossary

if TYPE_CHECKING:
    from nmt.jobs.run import LineJob


@flags(files=TranslationFiles, search=SearchConfig, options=JobConfig, runtime=RuntimeConfig, engine=EngineConfig)
def generate(
    checkpoints: Annotated[
        list[str], typer.Argument(metavar="CHECKPOINT", help="Checkpoint files; several form an ensemble.")
    ],
    files: TranslationFiles,
    search: SearchConfig,
    options: JobConfig,
    runtime: RuntimeConfig,
    engine: EngineConfig,
) -> None:
    """Translate raw text line by line, in order; by default, each input line gives one output line.

    A file that is translated into a file is resumed by the same command if it was interrupted. Lines that arrive slowly
    through a pipe are answered at once.
    """
    from nmt.jobs.ray import connected
    from nmt.translate.job import JobOutput, check_files, placed, settings_of, settings_of_files

    engine.check_phrases(search, {"--glossary": files.glossary, "--constraints": files.constraints})
    if files.input == ("-",) and sys.stdin.isatty():
        console.info("type or paste sentences, one on each line; Ctrl-D ends the input")
    to_terminal = files.output == "-" and sys.stdout.isatty()  # a bar would mix with the translations
    forms = {flag_name(name): getattr(files, name) for name in ("input_format", "output_format", "html")}
    settings = settings_of_files(engine, files.glossary, files.output, options) | forms
    check_files([*chain.from_iterable(files.segments), *checkpoints], files.output, options)
    with connected(options), console.Progress("translate", None, "sentence", bar=not to_terminal) as progress:
        runtime = placed(runtime, options, engine.engine)
        totals = JobOutput(
            job=_job(tuple(checkpoints), files, search, runtime, engine),
            segments=files.segments,
            flags=("--input", *files.by_flag),
            output=files.output,
            settings=settings_of(search, runtime, engine) | settings,
            options=options,
            workers=files.workers,
            progress=progress,
        ).write()
    if totals:
        console.warn(
            f"the translations of {console.counted(totals['unmet'], 'line')} lack constraints or terms (the first is "
            f"{totals['first unmet']}); raise --max-length-offset or leave some out"
        )


def _job(
    models: tuple[str, ...], files: TranslationFiles, search: SearchConfig, runtime: RuntimeConfig, engine: EngineConfig
) -> "LineJob":
    from nmt.translate.formats import LineFormat
    from nmt.translate.job import HtmlJob, TranslationJob

    glossary = None if files.glossary is None else Glossary.read(files.glossary)
    if files.html:
        if search.outputs > 1 or search.alignments:
            flag = "--alignments" if search.alignments else "--samples" if search.sample else "--n-best"
            raise NmtError(f"{flag} does not work with --html, which writes one plain translation; leave it out")
        return HtmlJob(models, runtime, replace(search, alignments=True), engine, glossary)
    lines = LineFormat(files.input_format, files.output_format, bool(files.prefixes), bool(files.constraints))
    return TranslationJob(models, runtime, search, engine, lines, glossary)
