"""Converts treebank files to parallel text for the parsing model, and reads the model's output.

The source text has the words of the sentences. The target text has their trees as sequences of brackets.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from glob import glob
from itertools import accumulate
from pathlib import Path
from typing import IO, Self

from nmt.config.options import Config
from nmt.errors import NmtError
from nmt.files import new_folder
from nmt.parsing.sequences import are_sequences, first_restored, linearized
from nmt.parsing.trees import TOP, Node, escaped, normalized, read_trees, tagged_as, words_of, write_tree
from nmt.text.corpus import name_of, read_lines

# Suffixes of the files of a split. The first two are the "languages" of the parallel text.
WORDS = "words"
TREES = "trees"
TREEBANK = "mrg"
# Names of the other files.
SYMBOLS = "symbols.txt"
SOURCE = "source.json"

_WORD_ENDINGS = ("ing", "ion", "ity", "est", "ed", "er", "ly", "al", "s", "y")
# The beginning of every line of `nmt generate --output-format jsonl`. No tree and no sequence begins like this.
_JSON = '{"'


@dataclass(frozen=True)
class SourceText(Config):
    """The form in which the words of a sentence are written for the model.

    Attributes:
        lowercase: whether all letters become lowercase.
        numbers: whether every digit becomes 0.
        known: the words that are not rare, in the form that the options above produce. All other words become UNK
            and marks of their spelling. None if all words are known.
    """

    lowercase: bool
    numbers: bool
    known: tuple[str, ...] | None = None

    def write(self, words: Iterable[str]) -> str:
        """Returns the line of a sentence."""
        forms = ((word, self._normalized(word)) for word in words)
        return " ".join(form if self.known is None or form in self._known else _unknown(word) for word, form in forms)

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.known or ())

    def with_known(self, sentences: Iterable[Sequence[str]], rare_below: int) -> Self:
        """Returns a copy that knows only the words that occur at least `rare_below` times in `sentences`."""
        counts = Counter(self._normalized(word) for words in sentences for word in words)
        # A configuration refuses a NUL character, which options must not have.
        known = tuple(sorted(word for word, count in counts.items() if count >= rare_below and "\0" not in word))
        return type(self)(self.lowercase, self.numbers, known)

    def _normalized(self, word: str) -> str:
        word = escaped(word)
        word = word.lower() if self.lowercase else word
        return re.sub(r"\d", "0", word) if self.numbers else word

    @classmethod
    def load(cls, folder: str) -> Self:
        """Reads the form that `write_treebank` used for a folder."""
        path = Path(folder) / SOURCE
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise NmtError(f"{path} cannot be read ({error}); give a folder that nmt trees linearize made") from error
        return cls.from_dict(values, str(path))


def _unknown(word: str) -> str:
    """Returns UNK with marks of a rare word's spelling: UNK-C-ing for Outsourcing."""
    word = escaped(word)
    marks = {"C": word[:1].isupper(), "N": any(map(str.isdigit, word)), "H": "-" in word}
    ending = next((e for e in _WORD_ENDINGS if word.lower().endswith(e) and len(word) > len(e) + 2), "")
    return "-".join(["UNK", *(mark for mark, has in marks.items() if has), *([ending] if ending else [])])


def treebank_files(patterns: Sequence[str]) -> list[str]:
    """Returns the paths of all files that match the patterns, such as wsj/0[2-9]/*.mrg, each once."""
    paths: list[str] = []
    for pattern in patterns:
        matches = [pattern] if Path(pattern).is_file() else glob(pattern, recursive=True)
        files = sorted(path for path in matches if Path(path).is_file())
        if not files:
            raise NmtError(f"{pattern} matches no file; check the path, and quote a pattern")
        paths += files
    return list(dict.fromkeys(paths))


def read_treebank(paths: Iterable[str]) -> Iterator[Node]:
    """Yields the normalised trees of files, plain or compressed."""
    for path in paths:
        for line, tree in _raw_trees(path):
            yield _normalized(path, line, tree)


def _raw_trees(path: str) -> Iterator[tuple[int, Node]]:
    """Yields the trees of a file without any change, each with the line where it begins."""
    numbered = None
    for numbered in read_trees(read_lines(path), name_of(path)):
        yield numbered
    if numbered is None:
        raise NmtError(f"{name_of(path)} has no trees; give a treebank file")


def _normalized(path: str, line: int, tree: Node) -> Node:
    normal = normalized(tree)
    if normal is None:
        raise NmtError(f"{path}, line {line}: a tree has no words; remove it")
    return normal


def read_hypotheses(lines: Iterable[str], origin: str) -> Iterator[list[list[str]]]:
    """Yields the sequences that the model wrote for each sentence, best first, as lists of symbols."""
    for line_number, line in enumerate(lines, start=1):
        if not line.startswith(_JSON):
            yield [line.split()]
            continue
        try:
            hypotheses = json.loads(line)["hypotheses"]
            yield [hypotheses[0]["text"].split(), *(hypothesis["text"].split() for hypothesis in hypotheses[1:])]
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            problem = f"{origin}, line {line_number}, is not a line of nmt generate --output-format jsonl ({error!r})"
            raise NmtError(f"{problem}; give the output of that command") from error


def read_parses(reference: str, hypothesis: str) -> tuple[list[tuple[Node, Node | None]], Counter[str] | None]:
    """Returns pairs of a gold tree and a tree to score, and the repairs of sequences; None if the parser wrote trees.

    The tree to score is None if its brackets are not balanced.

    Args:
        reference: a treebank file.
        hypothesis: a file with a parser's output, which has one line for each gold tree.

    A line of output is a tree, a sequence, or several sequences as JSON. Trees are compared without any change.
    Sequences are restored over the gold words, and the gold trees are normalised. A word with the tag XX gets its
    gold tag.
    """
    gold, lines = list(_raw_trees(reference)), list(read_lines(hypothesis))
    reference, hypothesis = name_of(reference), name_of(hypothesis)
    if len(lines) != len(gold):
        raise NmtError(f"{hypothesis} has {len(lines):,} lines, but {reference} {len(gold):,} trees; give one each")
    pairs = list[tuple[Node, Node | None]]()
    if any(line.startswith(_JSON) for line in lines) or are_sequences(lines):
        normal = [_normalized(reference, line_number, tree) for line_number, tree in gold]
        repairs = Counter[str]()
        for gold_tree, alternatives in zip(normal, read_hypotheses(lines, hypothesis), strict=True):
            tree, repairs_of_tree = first_restored(alternatives, words_of(gold_tree))
            pairs.append((gold_tree, tree))
            repairs += repairs_of_tree
        return pairs, repairs
    for line_number, ((_, gold_tree), line) in enumerate(zip(gold, lines, strict=True), start=1):
        depths = list(accumulate(({"(": 1, ")": -1}.get(character, 0) for character in line), initial=0))
        if min(depths) < 0 or depths[-1]:
            pairs.append((gold_tree, None))
            continue
        # All brackets of the line count, as in EVALB, which skips a line without words. TOP itself does not count.
        ((_, tree),) = read_trees([f"({TOP} {line})"], hypothesis, line_number, keeps_empty=True)
        pairs.append((gold_tree, tagged_as(gold_tree, tree)))
    return pairs, None


def write_treebank(
    splits: dict[str, list[str]], dest: str, source: SourceText, rare_below: int, numbered: bool = False
) -> dict[str, int]:
    """Writes the folder `dest`: NAME.words, NAME.trees and NAME.mrg (normalised trees) of every split, and symbols.txt.

    The split `train` decides which words are rare. Its symbols go to symbols.txt: those of its sequences, and its
    words if any words are rare. Returns the number of trees of each split.
    """
    if rare_below > 1:
        source = source.with_known(map(_texts, read_treebank(splits["train"])), rare_below)
    trees, symbols = Counter[str](), set[str]()
    with new_folder(dest, "--dest") as folder:
        for name, paths in splits.items():
            with (
                _new_file(folder / f"{name}.{WORDS}") as words,
                _new_file(folder / f"{name}.{TREES}") as sequences,
                _new_file(folder / f"{name}.{TREEBANK}") as bank,
            ):
                for tree in read_treebank(paths):
                    text, sequence = source.write(_texts(tree)), linearized(tree, numbered)
                    print(text, file=words)
                    print(*sequence, file=sequences)
                    print(write_tree(tree), file=bank)
                    trees[name] += 1
                    if name == "train":
                        symbols.update(sequence, () if source.known is None else text.split())
        with _new_file(folder / SYMBOLS) as file:
            print(*sorted(symbols), sep="\n", file=file)
        with _new_file(folder / SOURCE) as file:
            print(json.dumps(source.to_dict(), ensure_ascii=False), file=file)
    return trees


def _texts(tree: Node) -> list[str]:
    return [word.text for word in words_of(tree)]


def _new_file(path: Path) -> IO[str]:
    return path.open("w", encoding="utf-8", newline="\n")
