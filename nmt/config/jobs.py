"""The files and processes of the commands that work on lines of text."""

from dataclasses import dataclass
from typing import Literal

from nmt.errors import NmtError
from nmt.options import MOST_PROCESSES, Config, option

_PANEL = "Input and output"


@dataclass(frozen=True, kw_only=True)
class TranslationFiles(Config):
    """What `nmt generate` reads and writes."""

    input: str = option("-", help="Raw text to translate; - is standard input.", panel=_PANEL)
    output: str = option("-", help="File to write; - is standard output.", panel=_PANEL)
    input_format: Literal["text", "jsonl"] = option(
        "text", help="text, or jsonl: objects with source, and perhaps prefix and constraints.", panel=_PANEL
    )
    output_format: Literal["text", "jsonl"] = option(
        "text", help="text, or jsonl, which adds source, scores, pieces and their log P.", panel=_PANEL
    )
    prefixes: str | None = option(
        None, help="File with the beginning of each line's translation, which is completed.", panel=_PANEL
    )
    constraints: str | None = option(
        None, help="File with phrases that each line's translation must contain, separated by tabs.", panel=_PANEL
    )
    workers: int = option(
        1,
        help="Number of processes that translate. Each has its own GPU or a share of the cores.",
        panel=_PANEL,
        at_least=1,
        at_most=MOST_PROCESSES,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.input_format == "jsonl" and (self.prefixes or self.constraints):
            raise NmtError(
                "--prefixes and --constraints go with text, but --input-format is jsonl; put them into the objects"
            )


@dataclass(frozen=True, kw_only=True)
class RescoringFiles(Config):
    """What `nmt rescore` reads and writes."""

    source: str | None = option(None, help="Raw source text; - is standard input.", panel=_PANEL)
    target: str | None = option(None, help="Raw translations, line by line; - is standard input.", panel=_PANEL)
    input: str = option("-", help="Pairs, instead of --source and --target; - is standard input.", panel=_PANEL)
    input_format: Literal["tsv", "jsonl"] = option(
        "tsv", help="tsv: source, a tab, target; jsonl: objects with source, and target or hypotheses.", panel=_PANEL
    )
    output: str = option("-", help="File to write; - is standard output.", panel=_PANEL)
    output_format: Literal["text", "jsonl"] = option(
        "text", help="text: log P; jsonl: also pieces and their log P.", panel=_PANEL
    )
    normalize: bool = option(
        False, help="In text, print log P divided by the number of pieces, EOS included.", panel=_PANEL
    )
    alignments: bool = option(
        False, help="Also link the source words to the words of each translation: 0-0 1-2 …", panel=_PANEL
    )
    batch_tokens: int | None = option(
        None, help="Padded source and target tokens scored at once.", panel=_PANEL, at_least=1
    )
    workers: int = option(
        1,
        help="Number of processes that score. Each has its own GPU or a share of the cores.",
        panel=_PANEL,
        at_least=1,
        at_most=MOST_PROCESSES,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.source is None) != (self.target is None):
            missing = "--source" if self.source is None else "--target"
            raise NmtError(f"{missing} is missing; give both --source and --target, or pairs by --input")
        if self.source is not None and (self.input_format == "jsonl" or self.input != "-"):
            raise NmtError("--source and --target were given together with --input; give one or the other")
        if self.source == self.target == "-":
            raise NmtError("--source and --target are both standard input; give one as a file, or pairs by --input")
