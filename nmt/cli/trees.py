"""`nmt trees` turns treebanks into parallel text for the parsing model, and the model's output into trees."""

import json
from collections import Counter
from itertools import zip_longest
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from nmt import console
from nmt.errors import NmtError
from nmt.files import STDIO, output_file

trees = typer.Typer(
    name="trees",
    help="Turn treebank files into parallel text for the parsing model, and its output into trees.",
    no_args_is_help=True,
)

_PATTERN = (
    "trees: a treebank file, also compressed, or a quoted file pattern such as 'wsj/0[2-9]/*.mrg'. "
    "May be given several times."
)


@trees.command(no_args_is_help=True)
def linearize(
    train: Annotated[list[str], Option(metavar="PATTERN", help=f"Training {_PATTERN}")],
    dest: Annotated[str, Option(help="Folder to write; must not exist.")],
    valid: Annotated[list[str], Option(metavar="PATTERN", help=f"Validation {_PATTERN}")] = [],  # noqa: B006
    test: Annotated[list[str], Option(metavar="PATTERN", help=f"Test {_PATTERN}")] = [],  # noqa: B006
    lowercase: Annotated[bool, Option("--lowercase", help="Lowercase all words.")] = False,
    numbers: Annotated[bool, Option("--numbers", help="Replace every digit by 0.")] = False,
    rare_below: Annotated[
        int, Option(min=1, max=1_000_000_000, help="Replace words rarer than this in training by marks like UNK-ing.")
    ] = 1,
    like: Annotated[
        str | None, Option(help="Folder that this command made. Words are written in the same way as there.")
    ] = None,
    numbered: Annotated[
        bool,
        Option("--numbered", help="Write words as #1, #2, … instead of XX, which is easier to learn from few trees."),
    ] = False,
) -> None:
    """Write trees as parallel text: DEST/train.words and DEST/train.trees, and the same for the other splits.

    A tree becomes the sequence of its brackets. Closing brackets carry labels too, and XX stands for every word.
    Function tags and indices (NP-SBJ-1), empty elements, and nodes that contain nothing else are removed.

    DEST/train.mrg, and the same for the other splits, holds the normalised trees, which nmt score needs.
    DEST/symbols.txt is for nmt preprocess --symbols.
    """
    from nmt.parsing.treebank import SourceText, treebank_files, write_treebank

    if like and (lowercase or numbers or rare_below > 1):
        raise NmtError(
            "--like already decides how words are written; leave out --lowercase, --numbers and --rare-below"
        )
    source = SourceText.load(like) if like else SourceText(lowercase, numbers)
    splits = {"train": train, "valid": valid, "test": test}
    files = {name: treebank_files(patterns) for name, patterns in splits.items() if patterns}
    written = write_treebank(files, dest, source, rare_below, numbered)
    counts = ", ".join(console.counted(trees, f"{name} tree") for name, trees in written.items())
    console.info(f"wrote {dest}: {counts}")


@trees.command(no_args_is_help=True)
def words(
    like: Annotated[str, Option(help="Folder that nmt trees linearize made.")],
    input: Annotated[str, Option(help="Tokenised sentences, one per line; - is standard input.")] = "-",
    output: Annotated[str, Option(help="File to write; - is standard output.")] = "-",
) -> None:
    """Write the words of new sentences in the same form as the training words."""
    from nmt.parsing.treebank import SOURCE, SourceText
    from nmt.text.corpus import read_lines
    from nmt.text.words import RAW_WORD

    source = SourceText.load(like)
    with output_file(output, [Path(like) / SOURCE, input]) as out:
        for line in read_lines(input):
            out.write(f"{source.write(RAW_WORD.findall(line))}\n")


@trees.command(no_args_is_help=True)
def restore(
    sequences: Annotated[str, Option(help="Output of the model, one sequence per line; - is standard input.")] = "-",
    words: Annotated[str | None, Option(help="Tokenised words, one sentence per line.")] = None,
    trees: Annotated[str | None, Option(help="Treebank file that supplies words and tags, instead of --words.")] = None,
    output: Annotated[str, Option(help="File to write, one tree per line; - is standard output.")] = "-",
) -> None:
    """Turn the model's output into trees over exactly the given words, and report the repairs.

    If a line holds several hypotheses (nmt generate --n-best 4 --output-format jsonl), the best one that needs no
    repair is used.

    Unknown symbols are dropped, and so are symbols for words beyond the last one. If numbers (nmt trees linearize
    --numbered) skip words, these are added before the next numbered word. Words that remain at the end join the
    innermost open bracket, or the last one if none is open. An unclosed bracket is closed where a bracket around
    it closes, or at the end. A closing bracket that matches none closes the innermost bracket, or is dropped.
    Brackets without words are removed. A sentence without words becomes an empty line.
    """
    from nmt.parsing.sequences import first_restored
    from nmt.parsing.treebank import read_hypotheses, read_treebank, treebank_files
    from nmt.parsing.trees import untagged, words_of, write_tree
    from nmt.text.corpus import name_of, read_lines
    from nmt.text.words import RAW_WORD

    if (words is None) == (trees is None):
        raise NmtError("give either --words or --trees, which supplies the words of the sentences")
    if sequences == words == STDIO:
        raise NmtError("--sequences and --words are both standard input; give one of them as a file")
    if words is not None:
        files, given = [words], map(untagged, map(RAW_WORD.findall, read_lines(words)))
    else:
        files = treebank_files([str(trees)])
        given = map(words_of, read_treebank(files))
    words_from, repairs, done = str(trees if words is None else words), Counter[str](), 0
    with output_file(output, [sequences, *files]) as out:
        for alternatives, sentence in zip_longest(read_hypotheses(read_lines(sequences), name_of(sequences)), given):
            if alternatives is None or sentence is None:
                shorter = name_of(sequences if alternatives is None else words_from)
                raise NmtError(
                    f"{shorter} ends after {done:,} sentences, but the other file has more; give files of the same text"
                )
            tree, repairs_of_tree = first_restored(alternatives, sentence)
            repairs += repairs_of_tree
            done += 1
            out.write(f"{write_tree(tree)}\n")
    console.info(_repair_summary(repairs, done))


def score_trees(reference: str, hypothesis: str, as_json: bool) -> None:
    """Prints the scores of trees or sequences of brackets against a treebank file, for nmt score --metric evalb."""
    from nmt.parsing.evalb import SHORT, evalb
    from nmt.parsing.treebank import read_parses

    pairs, repairs = read_parses(reference, hypothesis)
    if repairs is not None:
        console.info(_repair_summary(repairs, len(pairs)))
    everything, short = evalb(pairs)
    if as_json:
        print(json.dumps({"evalb": {"all": everything.summary(), f"up_to_{SHORT}_words": short.summary()}}))
        return
    for name, counts in (("all lengths", everything), (f"at most {SHORT} words", short)):
        figures = [f"{key.replace('_', ' ')} {value}" for key, value in counts.summary().items() if key != "f1"]
        print(f"EVALB F1 {counts.f1:.2f} ({', '.join(figures)}) {name}")


def _repair_summary(repairs: Counter[str], sequences: int) -> str:
    """Returns a line that says how many sequences were repaired, and how often each repair was made."""
    details = "".join(f", {count:,} {name}" for name, count in sorted(repairs.items()) if name != "sequences")
    return f"repaired {repairs['sequences']:,} of {sequences:,} sequences{details}"
