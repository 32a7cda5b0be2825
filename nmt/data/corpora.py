"""Reads the text to preprocess: checks corpora, and cuts them into chunks of bounded size."""

import random
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice, repeat
from pathlib import Path
from typing import NamedTuple, TypeVar

from nmt import console
from nmt.config import DataConfig
from nmt.data.names import TRAIN
from nmt.errors import NmtError
from nmt.jobs.plan import File, Plan, make_plan
from nmt.text.corpus import parallel_paths, read_lines, read_pairs, read_rows
from nmt.text.moses import look_swapped
from nmt.text.words import parse_links

_Pair = TypeVar("_Pair")
CHUNK_PAIRS = 2000
_CHUNK_CHARACTERS = 1 << 20  # bounds the memory of chunks whose lines are as long as books


@dataclass(frozen=True)
class Corpus:
    """The two files of one corpus, and the number of lines in each.

    Attributes:
        links: the file of the word alignments, if there is one.
        tag: what is put before each source line, if it is not empty.
    """

    source: Path
    target: Path
    pairs: int
    links: Path | None = None
    tag: str = ""


class Chunk(NamedTuple):
    """The raw lines of some sentence pairs.

    Attributes:
        links: the word alignments of the pairs; blank lines if they have none.
        tags: the tag of each source line; empty if it has none.
        first: the number of the first pair in the text, from 0.
    """

    source: list[str]
    target: list[str]
    links: list[str]
    tags: list[str]
    first: int = 0


def split_prefixes(config: DataConfig) -> dict[str, tuple[str, ...]]:
    """Returns the prefixes of the corpora of every split. The test splits are called test, test1, test2, …"""
    tests = {f"test{i or ''}": (prefix,) for i, prefix in enumerate(config.test)}
    return {TRAIN: config.train, "valid": (config.valid,), **tests}


def check(config: DataConfig, plan: Plan) -> dict[str, list[Corpus]]:
    """Returns the corpora of every split.

    Reads the text that `plan` does not cover, so that an error in the last line is found before hours of work.

    Args:
        plan: the training text.

    Raises:
        NmtError: a file is missing, empty or not UTF-8, or the two files of a corpus have different numbers of lines.
    """
    langs = config.source_lang, config.target_lang
    if config.valid in config.train:
        console.warn(f"--valid {config.valid} is also --train; so validation is no measure of quality")
    others = {name: prefixes for name, prefixes in split_prefixes(config).items() if name != TRAIN}
    files = {
        name: make_plan([list(map(str, parallel_paths(prefix, *langs))) for prefix in prefixes], sys.maxsize).segments
        for name, prefixes in others.items()
    }
    splits = {
        name: [_checked(source, target, langs) for source, target, *_ in segments]
        for name, segments in ({TRAIN: plan.segments} | files).items()
    }
    if config.alignments:
        splits[TRAIN] = [
            replace(corpus, links=_checked_links(corpus, Path(path)))
            for corpus, path in zip(splits[TRAIN], config.alignments, strict=True)
        ]
    splits[TRAIN] = [
        replace(corpus, tag=tag) for corpus, tag in zip(splits[TRAIN], config.tag or repeat(""), strict=False)
    ]
    return splits


def _checked(source: File, target: File, langs: tuple[str, str]) -> Corpus:
    """Returns the corpus of two files. Warns if they look swapped or hold the same text."""
    if not source.lines:
        raise NmtError(f"{source.path} and {target.path} have no lines; give another corpus or check how it was made")
    corpus = Corpus(Path(source.path), Path(target.path), source.lines)
    first = next(chunked(read_corpora([corpus])))
    if look_swapped(first.source, first.target, *langs):
        console.warn(
            f"{source.path} looks like {langs[1]}, and {target.path} looks like {langs[0]}; check whether "
            f"--source-lang and --target-lang are swapped"
        )
    if source.digest == target.digest:
        console.warn(
            f"{source.path} and {target.path} contain the same text; check whether one is in the wrong language"
        )
    return corpus


def _checked_links(corpus: Corpus, path: Path) -> Path:
    """Returns the path of a corpus's alignments after checking each line of the file."""
    for number, (source, target, line) in enumerate(read_rows(corpus.source, corpus.target, path), start=1):
        try:
            links = parse_links(line)
        except ValueError as error:
            raise NmtError(f"{path}, line {number}: {error}; give links such as 0-0 1-2") from error
        words = [len(text.split()) for text in (source, target)]
        for link in links:
            if link[0] >= words[0] or link[1] >= words[1]:
                raise NmtError(
                    f"{path}, line {number} links word {link[0]} to word {link[1]}, but the sentences have {words[0]} "
                    f"and {words[1]} words, counted from 0 and separated by spaces; align the raw text"
                )
    return path


def read_corpora(corpora: Iterable[Corpus]) -> Iterator[tuple[str, str, str, str]]:
    """Yields the sentence pairs of all corpora in order, each with its word alignment and its tag."""
    for corpus in corpora:
        links = repeat("") if corpus.links is None else read_lines(corpus.links)
        for (source, target), linked in zip(read_pairs(corpus.source, corpus.target), links, strict=False):
            yield source, target, linked, corpus.tag


def chunked(pairs: Iterable[tuple[str, str, str, str]], first: int = 0) -> Iterator[Chunk]:
    """Yields the pairs in chunks. A chunk ends when it reaches a number of pairs or of characters.

    Args:
        first: the number of the first pair.
    """
    chunk, characters = Chunk([], [], [], [], first), 0
    for source, target, links, tag in pairs:
        chunk.source.append(source)
        chunk.target.append(target)
        chunk.links.append(links)
        chunk.tags.append(tag)
        characters += len(source) + len(target)
        if len(chunk.source) >= CHUNK_PAIRS or characters >= _CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = Chunk([], [], [], [], chunk.first + len(chunk.source)), 0
    if chunk.source:
        yield chunk


def sample(pairs: Iterable[_Pair], total: int, wanted: int, seed: int) -> Iterator[_Pair]:
    """Yields a uniform sample of `wanted` of the `total` pairs, in order (Knuth, TAOCP 2, §3.4.2, algorithm S)."""
    draw = random.Random(seed)
    for seen, pair in enumerate(islice(pairs, total)):
        if (total - seen) * draw.random() < wanted:
            wanted -= 1
            yield pair
