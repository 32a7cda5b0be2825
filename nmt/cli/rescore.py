"""`nmt rescore` computes log P of given translations."""

import json
import math
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from nmt import console
from nmt.cli.flags import flags
from nmt.config import RuntimeConfig
from nmt.errors import NmtError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nmt.decoding.pairs import Pair
    from nmt.decoding.rescoring import Rescored


@flags(runtime=RuntimeConfig)
def rescore(
    checkpoints: Annotated[
        list[str], typer.Argument(metavar="CHECKPOINT...", help="Checkpoint files; several form an ensemble.")
    ],
    runtime: RuntimeConfig,
    source: Annotated[str | None, typer.Option(help="Raw source text; - is standard input.")] = None,
    target: Annotated[str | None, typer.Option(help="Raw translations, line by line; - is standard input.")] = None,
    input: Annotated[
        str, typer.Option(help="Pairs, if --source and --target are not given; - is standard input.")
    ] = "-",
    input_format: Annotated[
        Literal["tsv", "jsonl"],
        typer.Option(help="tsv: source, a tab, target; jsonl: objects with source, and target or hypotheses."),
    ] = "tsv",
    output: Annotated[str, typer.Option(help="File to write; - is standard output.")] = "-",
    output_format: Annotated[
        Literal["text", "jsonl"], typer.Option(help="text: log P; jsonl: also pieces and their log P.")
    ] = "text",
    normalize: Annotated[bool, typer.Option(help="Print log P divided by the number of pieces, EOS included.")] = False,
    alignments: Annotated[
        bool, typer.Option(help="Also link the source words to the words of each translation: 0-0 1-2 …")
    ] = False,
    batch_tokens: Annotated[
        int | None, typer.Option(min=1, help="Padded source and target tokens scored at once.")
    ] = None,
    workers: Annotated[
        int, typer.Option(min=1, max=1024, help="Number of processes that score; each has its own GPU or some cores.")
    ] = 1,
) -> None:
    """Print the log probability of given translations, one line for every pair, and the perplexity of all.

    A job from file to file is resumed by the same command if it was interrupted.
    """
    from nmt.decoding.output import settings_of, write_output
    from nmt.decoding.rescoring import RescoringJob

    inputs, pairs = _inputs(source, target, input, input_format)
    inputs |= {f"checkpoint {i}": path for i, path in enumerate(checkpoints, start=1)}
    settings = {"--output-format": output_format, "--input-format": input_format, "--normalize": normalize}
    settings["--alignments"] = alignments
    totals = _Totals(output_format, normalize)
    with console.Progress("rescore", None, "lines") as progress:
        write_output(
            RescoringJob(tuple(checkpoints), runtime, batch_tokens, alignments),
            pairs,
            totals.kept,
            finish=totals.finished,
            inputs=inputs,
            output=output,
            settings=settings_of(runtime) | settings | {"--batch-tokens": batch_tokens},
            workers=workers,
            progress=progress,
        )
    totals.show()


def _inputs(
    source: str | None, target: str | None, input: str, input_format: str
) -> "tuple[dict[str, str], Iterator[Pair]]":
    from nmt.decoding.pairs import read_jsonl, read_tsv, read_two_files

    if source is None and target is None:
        return {"--input": input}, read_jsonl(input) if input_format == "jsonl" else read_tsv(input)
    if source is None or target is None:
        missing = "--source" if source is None else "--target"
        raise NmtError(f"{missing} is missing; give both --source and --target, or pairs by --input")
    if input_format == "jsonl" or input != "-":
        raise NmtError("--source and --target were given together with --input; give one or the other")
    if source == target == "-":
        raise NmtError("--source and --target are both standard input; give one as a file, or pairs by --input -")
    return {"--source": source, "--target": target}, read_two_files(source, target)


class _Totals:
    """Formats lines, and sums log P and pieces over them."""

    def __init__(self, output_format: str, normalize: bool) -> None:
        self._json, self._normalize = output_format == "jsonl", normalize
        self.log_prob, self.pieces, self.lines = 0.0, 0, 0

    def kept(self, pair: "Pair", found: "Rescored") -> str:
        """Returns what an unfinished job keeps of a line: log P, pieces and output."""
        from nmt.decoding.pairs import as_json, as_text

        text = as_json(pair, *found) if self._json else as_text(found.log_probs, found.alignments, self._normalize)
        return json.dumps([sum(map(sum, found.log_probs)), sum(map(len, found.log_probs)), text], ensure_ascii=False)

    def finished(self, kept: str) -> str:
        """Counts a line and returns its output."""
        log_prob, pieces, text = json.loads(kept)
        self.log_prob += log_prob
        self.pieces += pieces
        self.lines += 1
        return str(text)

    def show(self) -> None:
        """Prints the sums."""
        perplexity = math.exp(min(-self.log_prob / max(self.pieces, 1), 700))
        console.info(
            f"{self.lines:,} lines, {self.pieces:,} pieces with EOS, log P {self.log_prob:,.4f}, "
            f"perplexity {perplexity:,.4f} per piece"
        )
