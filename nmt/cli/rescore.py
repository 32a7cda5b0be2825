"""`nmt rescore` computes log P of given translations."""

import json
import math
from typing import TYPE_CHECKING, Annotated

import typer

from nmt import console
from nmt.cli.flags import flags
from nmt.config import RescoringFiles, RuntimeConfig
from nmt.options import flag_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nmt.decoding.pairs import Pair
    from nmt.decoding.rescoring import Rescored


@flags(files=RescoringFiles, runtime=RuntimeConfig)
def rescore(
    checkpoints: Annotated[
        list[str], typer.Argument(metavar="CHECKPOINT...", help="Checkpoint files; several form an ensemble.")
    ],
    files: RescoringFiles,
    runtime: RuntimeConfig,
) -> None:
    """Print the log probability of given translations, one line for every pair, and the perplexity of all.

    A job from file to file is resumed by the same command if it was interrupted.
    """
    from nmt.decoding.output import JobOutput, settings_of
    from nmt.decoding.rescoring import RescoringJob

    inputs, pairs = _inputs(files)
    names = ("input_format", "output_format", "normalize", "alignments", "batch_tokens")
    totals = _Totals(files.output_format, files.normalize)
    with console.Progress("rescore", None, "line") as progress:
        JobOutput(
            job=RescoringJob(tuple(checkpoints), runtime, files.batch_tokens, files.alignments),
            records=pairs,
            form=totals.kept,
            finish=totals.finished,
            inputs=inputs | {f"checkpoint {i}": path for i, path in enumerate(checkpoints, start=1)},
            output=files.output,
            settings=settings_of(runtime) | {flag_name(name): getattr(files, name) for name in names},
            workers=files.workers,
            progress=progress,
        ).write()
    totals.show()


def _inputs(files: RescoringFiles) -> "tuple[dict[str, str], Iterator[Pair]]":
    from nmt.decoding.pairs import read_jsonl, read_tsv, read_two_files

    if files.source is not None and files.target is not None:
        return {"--source": files.source, "--target": files.target}, read_two_files(files.source, files.target)
    return {"--input": files.input}, (read_jsonl if files.input_format == "jsonl" else read_tsv)(files.input)


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
