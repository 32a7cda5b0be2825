"""`nmt generate` translates raw text line by line."""

import sys
from collections import Counter
from dataclasses import replace
from typing import Any

from nmt import console
from nmt.cli.flags import Checkpoints, flags
from nmt.config import (
    DirectionConfig,
    EngineConfig,
    JobConfig,
    RuntimeConfig,
    SearchConfig,
    TranslationFiles,
    flag_name,
)
from nmt.errors import NmtError, importing
from nmt.text.glossary import Glossary

# Options that say what lines are, and so change the output.
_FORMS = "input_format", "output_format", "html", "split_sentences"


@flags()
def generate(
    checkpoints: Checkpoints,
    files: TranslationFiles,
    languages: DirectionConfig,
    search: SearchConfig,
    options: JobConfig,
    runtime: RuntimeConfig,
    engine: EngineConfig,
) -> None:
    """Translate raw text: line n of the output is the translation of line n of the input, unless --n-best is given.

    If a job from --input to --output is interrupted, the same command resumes it. Lines that arrive slowly through a
    pipe are translated at once.
    """
    from nmt.jobs.ray import connected
    from nmt.jobs.run import Run, check_files
    from nmt.jobs.source import Files
    from nmt.memories.files import open_memories
    from nmt.translate.job import TranslatedLine, TranslationJob, direction_of, placed, settings_of, settings_of_files

    if files.html and search.alignments:
        raise NmtError("--alignments does not work with --html, which writes one plain translation; leave it out")
    if (files.html or files.split_sentences) and search.outputs > 1:
        flag, other = "--samples" if search.sample else "--n-best", "--html" if files.html else "--split-sentences"
        raise NmtError(f"{flag} does not work with {other}, which writes one translation; leave it out")
    if files.split_sentences:
        with importing("sentencex", "--split-sentences", extra="documents"):
            import sentencex  # noqa: F401
    if files.input == ("-",) and sys.stdin.isatty():
        console.info("type or paste sentences, one on each line; Ctrl-D ends the input")
    to_terminal = files.output == "-" and sys.stdout.isatty()  # a bar would mix with the translations
    source = Files([[path, *files.by_flag.values()] for path in files.input], ("--input", *files.by_flag))
    memories = open_memories(files.memory, checkpoints[0], direction_of({}, languages), files.output)
    contents = settings_of_files(engine, files.glossary, memories, files.output, options)
    is_resumable = check_files([*source.paths, *checkpoints], files.output, options)
    unmet: list[str] = []  # the lines whose translations lack something
    origins = Counter[str]()
    with (
        connected(options, files.workers) as execution,
        console.Progress("translate", None, "sentence", bar=not to_terminal) as progress,
    ):
        runtime = placed(runtime, options, engine.engine)
        forms = {flag_name(name): getattr(files, name) for name in _FORMS}
        settings = settings_of(search, runtime, engine, languages) | contents | forms
        job = TranslationJob(
            tuple(checkpoints),
            runtime,
            replace(search, alignments=True) if files.html else search,
            engine,
            languages,
            None if files.glossary is None else Glossary.read(files.glossary),
            input="html" if files.html else files.input_format,
            output=files.output_format,
            prefixes=bool(files.prefixes),
            constraints=bool(files.constraints),
            split_sentences=files.split_sentences,
            memories=memories,
            offers=files.output_format == "jsonl",
        )

        def text(record: Any) -> str:
            line = TranslatedLine.of(record)
            is_from_memory = any(translation.is_from_memory for translation in line.translations)
            origins["memory" if is_from_memory else "model"] += 1
            if any(translation.unmet for translation in line.translations) and not is_from_memory:
                unmet.append(line.place)
            return job.text(line)

        Run(job, source, files.output, settings, execution, progress, is_resumable).write(text)
    if files.memory:
        whole = console.counted(origins.total(), "line")
        console.info(f"{origins['memory']:,} of {whole} came from the memory")
    if unmet:
        console.warn(
            f"the translations of {console.counted(len(unmet), 'line')} lack constraints or terms (the first is "
            f"{unmet[0]}); raise --max-length-offset or leave some out"
        )
