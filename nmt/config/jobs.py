"""The files and processes of the commands that work on lines of text."""

import re
from dataclasses import dataclass
from functools import partial
from typing import Literal

from nmt.config.options import Config, Count, Processes, flag_name, option
from nmt.errors import NmtError

# More shards than this make the folder of a job slow. Shards of a larger input have more lines.
MOST_SHARDS = 10_000
workers_option = partial(
    option,
    help="Number of processes. Several can share a GPU, and on a CPU, each has a share of the cores. By default 1, and "
    "with --cluster as many as fit.",
)
glossary_option = partial(
    option,
    help="File of terms that translations get, one a line: source term, tab, target term. Other forms of the "
    "target term follow after tabs; any of them will do. With --glossary-mode learnt, the model reads the first one.",
)
memory_option = partial(
    option,
    help="File of earlier translations; a sentence that it has is not translated by the model. May be given several "
    "times; the first file that has a sentence counts. Needs the extra memory.",
)


@dataclass(frozen=True, kw_only=True)
class JobConfig(Config, panel="Large jobs"):
    """How a long job from files to files is cut into shards, and where these are done."""

    shard_lines: Count | None = option(
        None,
        "Lines in a shard: a part of a job that is kept when it is done, even if the job is interrupted. By default, "
        "a shard usually takes under a minute.",
    )
    cluster: str | None = option(
        None,
        "Address of a Ray cluster to work on: HOST:PORT of its head. auto uses the cluster that this machine "
        "belongs to, or starts one on this machine. Needs the extra ray.",
        excludes="shard merge",
    )
    worker_cores: Processes = option(
        1,
        "With --cluster, cores for each worker. A worker with a model also gets a GPU if the cluster has any, unless "
        "--device is cpu.",
        needs="cluster",
    )
    shard: str | None = option(
        None,
        "Do only part I of N of the shards, given as I/N, for example in a job array. Then use --merge.",
        excludes="merge",
    )
    merge: bool = option(
        False, "Write the output from shards that were done with --shard, after a check that all are there."
    )

    def _check(self) -> None:
        part, count = self.part
        if not 0 <= part < count:
            raise NmtError(f"--shard must be I/N with I from 1 to N, such as 3/8, but is {self.shard!r:.40}")

    @property
    def part(self) -> tuple[int, int]:
        """Which part of the shards is done, counted from 0, and the number of parts; (0, 0) for a wrong --shard."""
        match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", "1/1" if self.shard is None else self.shard, re.ASCII)
        return (int(match[1]) - 1, int(match[2])) if match else (0, 0)

    @property
    def needs_shards(self) -> str | None:
        """The first given flag that works only in a job with shards; None if there is none."""
        given = [flag_name(name) for name in ("cluster", "shard", "merge", "shard_lines") if getattr(self, name)]
        return given[0] if given else None


@dataclass(frozen=True, kw_only=True)
class TranslationFiles(Config, panel="Input and output"):
    """What `nmt generate` reads and writes."""

    input: tuple[str, ...] = option(("-",), "Raw text to translate; - is standard input. May be given several times.")
    output: str = option("-", "File to write; - is standard output.")
    input_format: Literal["text", "jsonl"] = option(
        "text", "text, or jsonl: objects with source, and perhaps prefix, constraints and context, a list of lines."
    )
    output_format: Literal["text", "tsv", "jsonl"] = option(
        "text",
        "text: only the translations. tsv: for each translation, a line with its confidence, the source and the text. "
        "jsonl: an object for each line, with the source, and with text, score, pieces and their log P of each "
        "translation.",
    )
    prefixes: str | None = option(
        None,
        "File with the beginning of each line's translation, line by line. The model completes it.",
        excludes="input_format",
    )
    constraints: str | None = option(
        None,
        "File with phrases that each line's translation must contain, separated by tabs.",
        excludes="input_format engine sample beam_groups",
    )
    html: bool = option(
        False,
        "Lines are HTML. Tags are put around the translations of the words they enclose.",
        excludes="prefixes constraints input_format output_format alignments n_best samples",
    )
    split_sentences: bool = option(
        False,
        "Split lines into sentences, and translate these one by one; for lines that are paragraphs.",
        excludes="prefixes constraints input_format n_best samples",
    )
    context: bool = option(
        False,
        "Translate each line in the context of the lines before it, with a model that was trained with preprocess "
        "--context. Blank lines are between documents.",
        excludes="html input_format prefixes constraints",
    )
    glossary: str | None = glossary_option(None)
    memory: tuple[str, ...] = memory_option(())
    workers: Processes | None = workers_option(None)

    def _check(self) -> None:
        if len(self.input) > 1 and "-" in self.input:
            raise NmtError("--input is given several times and once as -, standard input; give files only")
        if [*self.input, *self.by_flag.values()].count("-") > 1:
            raise NmtError("standard input can be only one of --input, --prefixes and --constraints; give files")
        if "" in self.input:
            raise NmtError("--input is empty; give the name of a file")
        if len(self.input) > 1 and self.by_flag:
            raise NmtError(
                f"--prefixes and --constraints go with one --input, but {len(self.input)} were given; join the files"
            )

    @property
    def by_flag(self) -> dict[str, str]:
        """The files beside the input, by flag."""
        beside = {"--prefixes": self.prefixes, "--constraints": self.constraints}
        return {flag: path for flag, path in beside.items() if path is not None}


@dataclass(frozen=True, kw_only=True)
class DocumentFiles(Config, panel="Input and output"):
    """The model of `nmt translate-file`, what it writes, and how it reads documents."""

    model: tuple[str, ...] = option(
        help="Checkpoint file, or name of a published model. Given several times, they form an ensemble.",
        checkpoint=True,
    )
    output: str | None = option(
        None,
        "File to write, or folder if several documents are given; a name with / at the end is a folder, and - is "
        "standard output. By default, report.html becomes report.de.html if the target language is de.",
    )
    format: str | None = option(
        None, "Format of the documents, such as html, if their names do not end in it. Standard input needs it."
    )
    all: bool = option(False, "Also translate what is marked as translated already, in PO and XLIFF.")
    keys: str | None = option(
        None,
        "Keys whose values are translated in JSON, such as title,body.* or, to leave some out, '!author,!tags'. By "
        "default, all but id and type with one word, and keys that begin with @ or $.",
    )
    doubtful: float = option(
        0.0,
        "Mark sentences whose confidence is lower than this, such as 0.5, or that lack terms or numbers, are much "
        "shorter, or are doubtful for another reason: with a background in DOCX and HTML, as fuzzy "
        "in PO, and for review in XLIFF, where others then count as translated. A table lists them in the end. The "
        "model must be calibrated; see nmt calibrate.",
        at_least=0,
        at_most=1,
    )
    doubtful_stays: bool = option(False, "Also leave these sentences in the source language.", needs="doubtful")
    glossary: str | None = glossary_option(None)
    memory: tuple[str, ...] = memory_option(())
    workers: Processes | None = workers_option(None)


@dataclass(frozen=True, kw_only=True)
class RescoringFiles(Config, panel="Input and output"):
    """What `nmt rescore` reads and writes."""

    source: str | None = option(
        None, "Raw source text; - is standard input.", needs="target", excludes="input input_format"
    )
    target: str | None = option(None, "Raw translations, line by line; - is standard input.", needs="source")
    input: str = option("-", "Pairs, instead of --source and --target; - is standard input.")
    input_format: Literal["tsv", "jsonl"] = option(
        "tsv", "tsv: source, a tab, target; jsonl: objects with source, and target or hypotheses."
    )
    output: str = option("-", "File to write; - is standard output.")
    output_format: Literal["text", "jsonl"] = option("text", "text: log P; jsonl: also pieces and their log P.")
    normalize: bool = option(
        False, "In text, print log P divided by the number of pieces, EOS included.", excludes="output_format"
    )
    alignments: bool = option(False, "Also align the source words with the words of each translation: 0-0 1-2 …")
    batch_tokens: Count | None = option(
        None,
        "Source and target tokens to score at once, padding included. By default, 4096 on a CPU and 32768 on a GPU.",
    )
    workers: Processes | None = workers_option(None)

    @property
    def by_flag(self) -> dict[str, str]:
        """The input files by flag."""
        if self.source is not None and self.target is not None:
            return {"--source": self.source, "--target": self.target}
        return {"--input": self.input}

    def _check(self) -> None:
        if self.source == self.target == "-":
            raise NmtError("--source and --target are both standard input; give one as a file, or pairs by --input")
