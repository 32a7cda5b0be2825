"""`nmt generate` translates raw text line by line."""

import json
import sys
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from nmt import console
from nmt.cli.flags import flags
from nmt.config import RuntimeConfig, SearchConfig
from nmt.files import output_file

if TYPE_CHECKING:
    from nmt.decoding.translator import Hypothesis


@flags(search=SearchConfig, runtime=RuntimeConfig)
def generate(
    checkpoints: Annotated[
        list[str], typer.Argument(metavar="CHECKPOINT...", help="Checkpoint files; several form an ensemble.")
    ],
    search: SearchConfig,
    runtime: RuntimeConfig,
    input: Annotated[str, typer.Option(help="Raw text to translate; - is standard input.")] = "-",
    output: Annotated[str, typer.Option(help="File to write; - is standard output.")] = "-",
    output_format: Annotated[
        Literal["text", "jsonl"], typer.Option(help="text, or jsonl, which adds source, scores and pieces.")
    ] = "text",
    workers: Annotated[
        int,
        typer.Option(
            min=1,
            max=1024,
            help="Number of processes that translate; each has its own GPU or a share of the cores.",
        ),
    ] = 1,
) -> None:
    """Translate raw text with beam search: one output line for every input line, in order."""
    from nmt.decoding.workers import TranslationJob
    from nmt.text.corpus import STDIN, read_lines

    job = TranslationJob(tuple(checkpoints), search, runtime)
    if input == STDIN and sys.stdin.isatty():
        console.info("type or paste one sentence per line; Ctrl-D ends the input and starts the translation")
    bar = not (output == "-" and sys.stdout.isatty())  # a bar would mix with the translations
    with (
        output_file(output, [*checkpoints, input]) as out,
        console.Progress("translate", None, "sentences", bar=bar) as progress,
    ):
        for source, hypotheses in job.stream(read_lines(input), workers, progress.advance):
            out.write(_formatted(source, hypotheses, search.n_best, output_format))
        out.flush()


def _formatted(source: str, hypotheses: "list[Hypothesis]", n_best: int, output_format: str) -> str:
    """Returns the output for a sentence: one JSON line, or `n_best` lines of text, blank for missing hypotheses."""
    if output_format == "jsonl":
        found = [{"text": h.text, "score": h.score, "log_prob": h.log_prob, "pieces": h.pieces} for h in hypotheses]
        return json.dumps({"source": source, "hypotheses": found}, ensure_ascii=False) + "\n"
    texts = [h.text for h in hypotheses]
    return "".join(text + "\n" for text in texts + [""] * (n_best - len(texts)))
