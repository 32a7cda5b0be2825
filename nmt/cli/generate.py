"""`nmt generate` translates raw text line by line."""

import sys
from functools import partial
from typing import Annotated

import typer

from nmt import console
from nmt.cli.flags import flags
from nmt.config import EngineConfig, RuntimeConfig, SearchConfig, TranslationFiles


@flags(files=TranslationFiles, search=SearchConfig, runtime=RuntimeConfig, engine=EngineConfig)
def generate(
    checkpoints: Annotated[
        list[str], typer.Argument(metavar="CHECKPOINT...", help="Checkpoint files; several form an ensemble.")
    ],
    files: TranslationFiles,
    search: SearchConfig,
    runtime: RuntimeConfig,
    engine: EngineConfig,
) -> None:
    """Translate raw text: one output line for every input line, in order.

    A file that is translated into a file is resumed by the same command if it was interrupted. Lines that arrive slowly
    through a pipe are answered at once.
    """
    from nmt.decoding.lines import as_json, as_text, read_requests
    from nmt.decoding.output import JobOutput, settings_of
    from nmt.decoding.translation import TranslationJob

    beside = {"--prefixes": files.prefixes, "--constraints": files.constraints}
    inputs = {"--input": files.input} | {flag: path for flag, path in beside.items() if path}
    if files.input == "-" and sys.stdin.isatty():
        console.info("type or paste sentences, one on each line; Ctrl-D ends the input")
    to_terminal = files.output == "-" and sys.stdout.isatty()  # a bar would mix with the translations
    engines = [engine] if engine.engine != "pytorch" else []  # jobs of earlier versions have no engine
    formats = {"--input-format": files.input_format, "--output-format": files.output_format}
    with console.Progress("translate", None, "sentence", bar=not to_terminal) as progress:
        JobOutput(
            job=TranslationJob(tuple(checkpoints), search, runtime, engine, files.output_format == "jsonl"),
            records=read_requests(files),
            form=as_json if files.output_format == "jsonl" else partial(as_text, outputs=search.outputs),
            inputs=inputs | {f"checkpoint {i}": path for i, path in enumerate(checkpoints, start=1)},
            output=files.output,
            settings=settings_of(runtime, search, *engines) | formats,
            workers=files.workers,
            progress=progress,
        ).write()
