"""`nmt generate` translates raw text line by line."""

import sys
from itertools import chain
from typing import Annotated, Any

import typer

from nmt import console
from nmt.cli.flags import flags
from nmt.config import EngineConfig, JobConfig, RuntimeConfig, SearchConfig, TranslationFiles
from nmt.errors import NmtError


@flags(files=TranslationFiles, search=SearchConfig, options=JobConfig, runtime=RuntimeConfig, engine=EngineConfig)
def generate(
    checkpoints: Annotated[
        list[str], typer.Argument(metavar="CHECKPOINT...", help="Checkpoint files; several form an ensemble.")
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
    from nmt.text.glossary import Glossary
    from nmt.translate.formats import LineFormat
    from nmt.translate.job import JobOutput, TranslationJob, check_files, placed, settings_of, shard_rows

    if files.input == ("-",) and sys.stdin.isatty():
        console.info("type or paste sentences, one on each line; Ctrl-D ends the input")
    to_terminal = files.output == "-" and sys.stdout.isatty()  # a bar would mix with the translations
    lines = LineFormat(files.input_format, files.output_format, bool(files.prefixes), bool(files.constraints))
    formats = {"--input-format": files.input_format, "--output-format": files.output_format}
    contents = _vocabulary_map(engine, files, options) | _content("--glossary", files.glossary, files)
    glossary = None if files.glossary is None else Glossary.read(files.glossary)
    check_files([*chain.from_iterable(files.segments), *checkpoints], files.output, options)
    with connected(options), console.Progress("translate", None, "sentence", bar=not to_terminal) as progress:
        runtime = placed(runtime, options, engine.engine)
        totals = JobOutput(
            job=TranslationJob(tuple(checkpoints), runtime, search, engine, lines, glossary),
            segments=files.segments,
            flags=("--input", *files.by_flag),
            output=files.output,
            settings=settings_of(search, runtime, engine) | formats | contents,
            shard_rows=shard_rows(checkpoints, runtime),
            options=options,
            workers=files.workers,
            progress=progress,
        ).write()
    if totals:
        _warn_of_unmet(totals)


def _warn_of_unmet(totals: dict[str, Any]) -> None:
    console.warn(
        f"constraints or terms are missing in the translations of {console.counted(totals['unmet'], 'line')}, first in "
        f"that of {totals['first unmet']}; raise --max-length-offset or leave some out"
    )


def _vocabulary_map(engine: EngineConfig, files: TranslationFiles, options: JobConfig) -> dict[str, str]:
    """Returns the setting of --vocabulary-map, so that a job is resumed only with a map of the same content."""
    if engine.vocabulary_map is not None and options.cluster:
        raise NmtError("--vocabulary-map does not work with --cluster: other machines lack the file; leave out one")
    return _content("--vocabulary-map", engine.vocabulary_map, files)


def _content(flag: str, path: str | None, files: TranslationFiles) -> dict[str, str]:
    """Returns the setting of a flag that names a file. A job is resumed only with a file of the same content."""
    from nmt.files import digest_of, refuse_inputs

    if path is None:
        return {}
    refuse_inputs(files.output, [path], f"--output {files.output}")
    return {flag: f"SHA-256 {digest_of(path)[:16]}…"}
