"""`nmt trees`: treebanks to parallel text for the parsing model, and what the model writes to trees."""

from collections import Counter
from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmt import console
from nmt.errors import NmtError
from nmt.files import output_file

if TYPE_CHECKING:
    from nmt.text.trees import Word

trees = typer.Typer(
    name="trees",
    help="Turn treebank files into parallel text for the parsing model, and its output into trees.",
    no_args_is_help=True,
)

_PATTERN = "Treebank file, or a pattern of files in quotes: 'wsj/0[2-9]/*.mrg'; plain or .gz. May repeat."


@trees.command(no_args_is_help=True)
def linearize(
    train: Annotated[list[str], typer.Option(metavar="PATTERN", help=_PATTERN)],
    dest: Annotated[str, typer.Option(help="Folder to write; must not exist.")],
    valid: Annotated[list[str], typer.Option(metavar="PATTERN", help="Likewise.")] = [],  # noqa: B006
    test: Annotated[list[str], typer.Option(metavar="PATTERN", help="Likewise.")] = [],  # noqa: B006
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Write words in small letters.")] = False,
    numbers: Annotated[bool, typer.Option("--numbers", help="Write every digit as 0.")] = False,
    rare_below: Annotated[
        int,
        typer.Option(
            min=1,
            max=1_000_000_000,
            help="Write words seen fewer times than this in training as UNK and a few marks; others are symbols.",
        ),
    ] = 1,
    like: Annotated[
        str | None, typer.Option(help="Folder made by this command: write words as there, instead of by the above.")
    ] = None,
    numbered: Annotated[
        bool,
        typer.Option("--numbered", help="Write words as #1, #2, … instead of XX: far easier to learn from few trees."),
    ] = False,
) -> None:
    """Write trees as parallel text: DEST/train.words and DEST/train.trees, and so on.

    A tree becomes the sequence of its brackets, the closing ones labelled, with XX for every word. Function tags and
    indices (NP-SBJ-1), empty elements and nodes they leave empty are removed. The normalised trees lie beside
    (DEST/valid.mrg), to score against, and symbols.txt is for nmt preprocess --symbols.
    """
    from nmt.text.treebank import SourceText, read_treebank, write_treebank

    if like and (lowercase or numbers or rare_below > 1):
        raise NmtError("--like says how words are written; leave out --lowercase, --numbers and --rare-below")
    source = SourceText.load(like) if like else SourceText(lowercase, numbers)
    splits = {"train": train, "valid": valid, "test": test}
    read = {name: read_treebank(patterns) for name, patterns in splits.items() if patterns}
    write_treebank(read, dest, source, rare_below, numbered)
    console.info(f"wrote {dest}: {', '.join(f'{len(found):,} {name} trees' for name, found in read.items())}")


@trees.command(no_args_is_help=True)
def words(
    like: Annotated[str, typer.Option(help="Folder that nmt trees linearize made.")],
    input: Annotated[str, typer.Option(help="Tokenised sentences, one a line; - is stdin.")] = "-",
    output: Annotated[str, typer.Option(help="File to write; - is stdout.")] = "-",
) -> None:
    """Write the words of new sentences as those of training were."""
    from nmt.text.corpus import read_lines
    from nmt.text.treebank import SOURCE, SourceText

    source = SourceText.load(like)
    with output_file(output, [Path(like) / SOURCE, input]) as out:
        for line in source.write(line.split() for line in read_lines(input)):
            out.write(f"{line}\n")


@trees.command(no_args_is_help=True)
def restore(
    sequences: Annotated[str, typer.Option(help="What the model wrote, one sequence a line; - is stdin.")] = "-",
    words: Annotated[str | None, typer.Option(help="The sentences' words, tokenised, one sentence a line.")] = None,
    trees: Annotated[str | None, typer.Option(help="Trees to take words and tags from, instead of --words.")] = None,
    output: Annotated[str, typer.Option(help="File to write, one tree a line; - is stdout.")] = "-",
) -> None:
    """Write trees over exactly the given words, whatever the model wrote; says what had to be repaired.

    Of several hypotheses (nmt generate --n-best 21 --output-format jsonl) the best that needs no repairs is taken.
    Symbols that are no brackets, and words' symbols beyond the last word, are left out; words that are left over join
    the last bracket; brackets that are not closed are closed where one around them is, or at the end; a closing
    bracket that was never opened closes the innermost, or is left out; brackets without words are removed. A sentence
    without words becomes an empty line.
    """
    from nmt.text.corpus import read_lines
    from nmt.text.treebank import counted, parsed, read_treebank
    from nmt.text.trees import first_restored, untagged, words_of, write_tree

    if (words is None) == (trees is None):
        raise NmtError("give one of --words and --trees, not both or neither: the words come from it")
    if words is not None:
        sentences: Iterable[list[Word]] = (untagged(line.split()) for line in read_lines(words))
    else:
        sentences = map(words_of, read_treebank([str(trees)]))
    repairs, done = Counter[str](), 0
    with output_file(output, [sequences, str(words or trees)]) as out:
        for alternatives, sentence in zip_longest(parsed(read_lines(sequences), sequences), sentences):
            if alternatives is None or sentence is None:
                shorter = sequences if alternatives is None else words or trees
                raise NmtError(
                    f"{shorter} ends after {done:,} sentences, but the other file goes on; give those of one run"
                )
            tree, found = first_restored(alternatives, sentence)
            repairs += counted(found)
            done += 1
            out.write(f"{write_tree(tree)}\n")
    console.info(repairs_told(repairs, done))


def repairs_told(repairs: Counter[str], sequences: int) -> str:
    told = "".join(f", {count:,} {name}" for name, count in sorted(repairs.items()) if name != "sequences")
    return f"repaired {repairs['sequences']:,} of {sequences:,} sequences{told}"
