"""Treebank files to parallel text for the parsing model: words on one side, sequences of brackets on the other."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from glob import glob
from pathlib import Path
from typing import Self

from nmt.errors import NmtError
from nmt.files import new_folder, writing
from nmt.parsing.trees import (
    REPLACED,
    TOP,
    WORD,
    Node,
    Word,
    are_sequences,
    escaped,
    first_restored,
    linearized,
    normalized,
    read_trees,
    rebuilt,
    words_of,
    write_tree,
)
from nmt.text.corpus import read_lines

# Suffixes of the parallel text, which are its "languages", and of the normalised trees beside it.
WORDS, TREES, TREEBANK = "words", "trees", "mrg"
SYMBOLS, SOURCE = "symbols.txt", "source.json"
_UNKNOWN = "UNK"
_JSON = '{"'
_SUFFIXES = ("ing", "ion", "ity", "est", "ed", "er", "ly", "al", "s", "y")


@dataclass(frozen=True)
class SourceText:
    """How the words of a sentence are written for the model.

    Attributes:
        lowercase: all in small letters.
        numbers: every digit as 0.
        known: the words that are not rare, as they are written by the above; any other becomes UNK and what its
            spelling says of it. None: all are known.
    """

    lowercase: bool = False
    numbers: bool = False
    known: tuple[str, ...] | None = None

    def write(self, sentences: Iterable[Sequence[str]]) -> list[str]:
        """One line for each sentence."""
        known = None if self.known is None else set(self.known)

        def written(word: str) -> str:
            shape = self._shape(word)
            return shape if known is None or shape in known else _unknown(escaped(word))

        return [" ".join(map(written, words)) for words in sentences]

    def with_known(self, sentences: Iterable[Sequence[str]], rare_below: int) -> Self:
        """The same, with the words that are in `sentences` at least `rare_below` times as the known ones."""
        counts = Counter(self._shape(word) for words in sentences for word in words)
        known = tuple(sorted(word for word, count in counts.items() if count >= rare_below))
        return type(self)(self.lowercase, self.numbers, known)

    def _shape(self, word: str) -> str:
        word = escaped(word)
        word = word.lower() if self.lowercase else word
        return re.sub(r"\d", "0", word) if self.numbers else word

    @classmethod
    def load(cls, folder: str) -> Self:
        """Of a folder that `write_treebank` made.

        Raises:
            NmtError: it is no such folder.
        """
        path = Path(folder) / SOURCE
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            match values:
                case {"lowercase": bool(lowercase), "numbers": bool(numbers), "known": None}:
                    return cls(lowercase, numbers)
                case {"lowercase": bool(lowercase), "numbers": bool(numbers), "known": [*known]}:
                    if all(isinstance(word, str) for word in known):
                        return cls(lowercase, numbers, tuple(known))
            raise ValueError("a value is missing or of another type")
        except (OSError, ValueError, RecursionError) as error:
            raise NmtError(f"{path} cannot be read ({error}); give a folder that nmt trees linearize made") from error


def _unknown(word: str) -> str:
    """UNK for a rare word, and whether it begins with a capital (C), has digits (N) or a hyphen (H), and how it ends.

    So Outsourcing is UNK-C-ing.
    """
    marks = {"C": word[:1].isupper(), "N": any(map(str.isdigit, word)), "H": "-" in word}
    suffix = next((s for s in _SUFFIXES if word.lower().endswith(s) and len(word) > len(s) + 2), "")
    return "-".join([_UNKNOWN, *(mark for mark, has in marks.items() if has), *([suffix] if suffix else [])])


def read_treebank(patterns: Sequence[str]) -> list[Node]:
    """The normalised trees of all files, plain or .gz, that the patterns (wsj/0[2-9]/*.mrg) stand for, in order.

    Raises:
        NmtError: a pattern stands for no file, a file is no treebank, or a tree has no words.
    """
    trees = []
    for pattern in patterns:
        found = [pattern] if Path(pattern).is_file() else glob(pattern, recursive=True)
        paths = sorted(path for path in found if Path(path).is_file())
        if not paths:
            raise NmtError(f"{pattern} is no file and stands for none; check the path (a pattern needs quotes)")
        for path in paths:
            trees += [_normalized(path, line, tree) for line, tree in read_file(path)]
    return trees


def read_file(path: str) -> list[tuple[int, Node]]:
    """The trees of a file as they stand there, each with the line it begins in.

    Raises:
        NmtError: it is no treebank.
    """
    found = list(read_trees(read_lines(path), path))
    if not found:
        raise NmtError(f"{path} has no trees; check the file")
    return found


def _normalized(path: str, line: int, tree: Node) -> Node:
    made = normalized(tree)
    if made is None:
        raise NmtError(f"{path}, line {line}: a tree has no words; remove it")
    return made


@dataclass(frozen=True)
class Parses:
    """Gold trees with those to score; if these were made of sequences, how often which repair was needed."""

    pairs: list[tuple[Node, Node]]
    repairs: Counter[str] | None


def parsed(lines: Iterable[str], origin: str) -> Iterator[list[list[str]]]:
    """The sequences that the model wrote for each sentence, best first, from text or, with --n-best, from jsonl.

    Raises:
        NmtError: a line begins like JSON but is not what generate writes; names it.
    """
    for number, line in enumerate(lines, start=1):
        if not line.startswith(_JSON):
            yield [line.split()]
            continue
        try:
            hypotheses = json.loads(line)["hypotheses"]
            yield [hypotheses[0]["text"].split(), *(hypothesis["text"].split() for hypothesis in hypotheses[1:])]
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise NmtError(
                f"{origin}, line {number}, is not of nmt generate --output-format jsonl ({error!r}); give its output"
            ) from error


def read_parses(reference: str, hypothesis: str) -> Parses:
    """A treebank file, and what a parser made of its sentences: a tree, a sequence, or several as JSON, a line each.

    Trees are taken as they stand in both files. Sequences are restored over the gold words, and the gold trees are
    normalised. A word tagged XX, whose tag is unknown, gets its gold tag.

    Raises:
        NmtError: there are not as many lines as gold trees, or a line is not one tree; names the file and the line.
    """
    gold, lines = read_file(reference), list(read_lines(hypothesis))
    if len(lines) != len(gold):
        raise NmtError(
            f"{hypothesis} has {len(lines):,} lines, but {reference} has {len(gold):,} trees; give one for each"
        )
    nbest = any(line.startswith(_JSON) for line in lines)
    if not nbest and not are_sequences(lines):
        trees = [_one_tree(hypothesis, number, line) for number, line in enumerate(lines, start=1)]
        return Parses([(like, _tagged_as(like, tree)) for (_, like), tree in zip(gold, trees, strict=True)], None)
    pairs, repairs = [], Counter[str]()
    for (number, tree), alternatives in zip(gold, parsed(lines, hypothesis), strict=True):
        like = _normalized(reference, number, tree)
        made, found = first_restored(alternatives, words_of(like))
        pairs.append((like, made))
        repairs += counted(found)
    return Parses(pairs, repairs)


def counted(repairs: Counter[str]) -> Counter[str]:
    """The repairs of a sequence, and itself if it needed any."""
    return repairs + Counter({"sequences": 1}) if repairs.keys() - {REPLACED} else repairs


def _one_tree(origin: str, number: int, line: str) -> Node:
    try:
        found = [tree for _, tree in read_trees([line], origin)]
    except NmtError as error:
        raise NmtError(f"{origin}, line {number}, is not one tree: {error}") from error
    if len(found) > 1:
        raise NmtError(f"{origin}, line {number}, has {len(found)} trees; give one a line")
    return found[0] if found else Node(TOP, ())


def _tagged_as(gold: Node, tree: Node) -> Node:
    """The tree with the gold tags instead of XX, if it has the gold words."""
    words = words_of(gold)
    if [word.text for word in words] != [word.text for word in words_of(tree)]:
        return tree
    following = iter(words)
    return rebuilt(tree, lambda word: _tagged(word, next(following)), str) or tree


def _tagged(word: Word, like: Word) -> Word:
    return like if word.tag == WORD else word


def write_treebank(
    splits: dict[str, list[Node]], dest: str, source: SourceText, rare_below: int, numbered: bool = False
) -> None:
    """Makes the folder `dest`: NAME.words, NAME.trees and NAME.mrg (normalised trees) of every split, and symbols.txt.

    Which words are rare, and which symbols there are, is what the split called train says. Symbols are what the
    sequences are made of, and the words that are not rare.

    Args:
        numbered: the symbols of words are their numbers, not XX.

    Raises:
        NmtError: the folder exists or cannot be written.
    """
    sentences = {name: [[word.text for word in words_of(tree)] for tree in trees] for name, trees in splits.items()}
    if rare_below > 1:
        source = source.with_known(sentences["train"], rare_below)
    with new_folder(dest, "--dest") as folder, writing(f"--dest {dest}", "make room or choose another --dest"):
        for name, trees in splits.items():
            sequences = [" ".join(linearized(tree, numbered)) for tree in trees]
            text = source.write(sentences[name])
            _write_lines(folder / f"{name}.{WORDS}", text)
            _write_lines(folder / f"{name}.{TREES}", sequences)
            _write_lines(folder / f"{name}.{TREEBANK}", map(write_tree, trees))
            if name == "train":
                symbols = {symbol for line in sequences for symbol in line.split()}
                if source.known is not None:
                    symbols |= {word for line in text for word in line.split()}
                _write_lines(folder / SYMBOLS, sorted(symbols))
        (folder / SOURCE).write_text(json.dumps(asdict(source), ensure_ascii=False) + "\n", encoding="utf-8")


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
