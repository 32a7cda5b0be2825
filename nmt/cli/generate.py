"""`nmt generate` translates raw text line by line."""

import sys
from collections import Counter
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
from nmt.files import refuse_inputs

# Options that say what lines are, and so change the output.
_FORMS = "input_format", "output_format", "html", "split_sentences", "context"


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
    """Translate raw text: line n of the output is the translation of line n of the input.

    With --n-best or --samples, each line has several translations.

    If a job from --input to --output is interrupted, the same command resumes it. Lines that arrive slowly through
    a pipe are translated at once.
    """
    from nmt.jobs.run import Run, can_resume, check_inputs, executing
    from nmt.jobs.source import Files
    from nmt.memories.files import with_memories
    from nmt.translate.confidence import how_to_calibrate
    from nmt.translate.setup import Setup, placed
    from nmt.translate.sources import html_units, json_units, text_units

    if files.split_sentences:
        with importing("sentencex", "--split-sentences", extra="documents"):
            import sentencex  # noqa: F401
    to_terminal = files.output == "-" and sys.stdout.isatty()  # a bar would mix with the translations
    if files.output_format == "tsv" and search.alignments:
        raise NmtError("--output-format tsv has no column for --alignments; give text or jsonl")
    check_inputs([*files.input, *files.by_flag.values()])
    is_resumable = can_resume([*files.input, *files.by_flag.values(), *checkpoints], files.output, options)
    doubtful: list[str] = []  # the lines whose translations lack something, or that terms make doubtful
    origins = Counter[str]()
    with (
        executing(options, files.workers) as execution,
        console.Progress("translate", None, "line", bar=not to_terminal) as progress,
    ):
        runtime = placed(runtime, options, engine.engine)
        setup = Setup(tuple(checkpoints), search, runtime, engine, languages, files.glossary, files.memory)
        refuse_inputs(files.output, setup.files, f"--output {files.output}")
        setup = with_memories(setup)
        maker = setup.maker("sentence" if files.split_sentences else "unit", offers=files.output_format == "jsonl")
        context = maker.text.context if files.context else 0
        if files.context and not context:
            raise NmtError(f"{checkpoints[0]} has not learnt to read --context; train it with nmt preprocess --context")
        if options.shard_lines and options.shard_lines < context:
            raise NmtError(f"--shard-lines must be at least {context} with --context, but is {options.shard_lines}")
        if files.html:
            units = html_units(maker)
        elif files.input_format == "jsonl":
            units = json_units(maker)
        else:
            prefixes, constraints = bool(files.prefixes), bool(files.constraints)
            units = text_units(maker, prefixes=prefixes, constraints=constraints, context=context)
        columns = [[path, *files.by_flag.values()] for path in files.input]
        source = Files(columns, ("--input", *files.by_flag), units, context)
        job = setup.job(files.output_format, offers=maker.offers, alignments=files.html)
        if all(setup.direction) or files.input_format != "jsonl":
            is_calibrated = str(setup.text.resolved(setup.direction)) in job.calibrations
        else:  # lines may name their directions
            is_calibrated = bool(job.calibrations)
        if files.output_format != "text" and not is_calibrated:
            console.info(f"translations have no confidence: {how_to_calibrate(job.models)}")
        settings = setup.settings | {flag_name(name): getattr(files, name) for name in _FORMS}

        def text(record: Any) -> str:
            is_from_memory = any(translation.origin == "memory" for translation in record.translations)
            origins["memory" if is_from_memory else "model"] += 1
            if any(each.unmet or "terms" in each.doubts for each in record.translations) and not is_from_memory:
                doubtful.append(record.place)
            return job.text(record)

        is_written = Run(job, source, files.output, settings, execution, progress, is_resumable).write(text)
    if files.memory and is_written:
        whole = console.counted(origins.total(), "line")
        console.info(f"{origins['memory']:,} of {whole} came from the memory")
    if doubtful:
        console.warn(
            f"check the translations of {console.counted(len(doubtful), 'line')}, of which the first is {doubtful[0]}: "
            f"they lack constraints or terms, or are much less probable with them; --output-format jsonl says which"
        )
