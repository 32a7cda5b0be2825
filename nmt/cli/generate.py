"""`nmt generate` translates raw text line by line."""

import sys
from functools import partial
from typing import Annotated, Literal

import typer

from nmt import console
from nmt.cli.flags import flags
from nmt.config import RuntimeConfig, SearchConfig
from nmt.errors import NmtError


@flags(search=SearchConfig, runtime=RuntimeConfig)
def generate(
    checkpoints: Annotated[
        list[str], typer.Argument(metavar="CHECKPOINT...", help="Checkpoint files; several form an ensemble.")
    ],
    search: SearchConfig,
    runtime: RuntimeConfig,
    input: Annotated[str, typer.Option(help="Raw text to translate; - is standard input.")] = "-",
    output: Annotated[str, typer.Option(help="File to write; - is standard output.")] = "-",
    input_format: Annotated[
        Literal["text", "jsonl"],
        typer.Option(help="text, or jsonl: objects with source, and perhaps prefix and constraints."),
    ] = "text",
    output_format: Annotated[
        Literal["text", "jsonl"], typer.Option(help="text, or jsonl, which adds source, scores and pieces.")
    ] = "text",
    prefixes: Annotated[
        str | None, typer.Option(help="File with the beginning of each line's translation, which is completed.")
    ] = None,
    constraints: Annotated[
        str | None, typer.Option(help="File with phrases that each line's translation must have, separated by tabs.")
    ] = None,
    workers: Annotated[
        int,
        typer.Option(
            min=1,
            max=1024,
            help="Number of processes that translate; each has its own GPU or a share of the cores.",
        ),
    ] = 1,
) -> None:
    """Translate raw text: one output line for every input line, in order.

    A file that is translated into a file is resumed by the same command if it was interrupted. Lines that arrive slowly
    through a pipe are answered at once.
    """
    from nmt.decoding.lines import as_json, as_text, read_requests
    from nmt.decoding.output import settings_of, write_output
    from nmt.decoding.translation import TranslationJob

    if input_format == "jsonl" and (prefixes or constraints):
        raise NmtError("--prefixes and --constraints go with text; put them into the objects of --input-format jsonl")
    beside = {"--prefixes": prefixes, "--constraints": constraints}
    inputs = {"--input": input} | {flag: path for flag, path in beside.items() if path}
    inputs |= {f"checkpoint {i}": path for i, path in enumerate(checkpoints, start=1)}
    to_terminal = output == "-" and sys.stdout.isatty()  # a bar would mix with the translations
    if input == "-" and sys.stdin.isatty():
        console.info("type or paste sentences, one on each line; Ctrl-D ends the input")
    with console.Progress("translate", None, "sentences", bar=not to_terminal) as progress:
        write_output(
            TranslationJob(tuple(checkpoints), search, runtime),
            read_requests(input, input_format, prefixes, constraints),
            as_json if output_format == "jsonl" else partial(as_text, outputs=search.outputs),
            inputs=inputs,
            output=output,
            settings=settings_of(runtime, search) | {"--input-format": input_format, "--output-format": output_format},
            workers=workers,
            progress=progress,
        )
