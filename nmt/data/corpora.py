"""Reads the text to preprocess: counts and checks corpora, and cuts them into chunks of bounded size."""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from nmt import console
from nmt.config import DataConfig
from nmt.data.store import TRAIN
from nmt.errors import NmtError
from nmt.text.corpus import parallel_paths, read_pairs
from nmt.text.languages import look_swapped

CHUNK_PAIRS = 2000
_CHUNK_CHARACTERS = 1 << 20  # bounds the memory of chunks whose lines are as long as books


@dataclass(frozen=True)
class Corpus:
    """The two files of one corpus, and the number of lines in each."""

    source: Path
    target: Path
    pairs: int


class Chunk(NamedTuple):
    """The raw lines of some sentence pairs."""

    source: list[str]
    target: list[str]


def split_prefixes(config: DataConfig) -> dict[str, tuple[str, ...]]:
    """Returns the prefixes of the corpora of every split. The test splits are called test, test1, test2, …"""
    tests = {f"test{i or ''}": (prefix,) for i, prefix in enumerate(config.test)}
    return {TRAIN: config.train, "valid": (config.valid,), **tests}


def count(config: DataConfig) -> dict[str, list[Corpus]]:
    """Returns the corpora of every split. A training corpus appears as often as --copies says.

    Reads all text once, so that an error in the last line is found before hours of work.

    Raises:
        NmtError: a file is missing, empty or not UTF-8, or the two files of a corpus have different numbers of lines.
    """
    langs = config.source_lang, config.target_lang
    prefixes_by_split = split_prefixes(config)
    paths = {
        name: [parallel_paths(prefix, *langs) for prefix in prefixes] for name, prefixes in prefixes_by_split.items()
    }
    with console.Progress("Checking", None, "pairs") as progress:
        splits = {name: [_count(*pair, langs, progress) for pair in pairs] for name, pairs in paths.items()}
    copies = config.copies or (1,) * len(config.train)
    splits[TRAIN] = [corpus for corpus, times in zip(splits[TRAIN], copies, strict=True) for _ in range(times)]
    return splits


def _count(source: Path, target: Path, langs: tuple[str, str], progress: console.Progress) -> Corpus:
    pairs = 0
    identical = True
    for chunk in chunked(read_pairs(source, target)):
        if not pairs and look_swapped(*chunk, *langs):
            console.warn(
                f"{source} looks like {langs[1]}, and {target} looks like {langs[0]}; check whether --source-lang and "
                f"--target-lang are swapped"
            )
        pairs += len(chunk.source)
        identical = identical and chunk.source == chunk.target
        progress.advance(len(chunk.source))
    if not pairs:
        raise NmtError(f"{source} and {target} have no lines; leave out this corpus or check how it was made")
    if identical:
        console.warn(f"{source} and {target} contain the same text; check whether one is in the wrong language")
    return Corpus(source, target, pairs)


def read_corpora(corpora: Iterable[Corpus]) -> Iterator[tuple[str, str]]:
    """Yields the sentence pairs of all corpora in order."""
    for corpus in corpora:
        yield from read_pairs(corpus.source, corpus.target)


def chunked(pairs: Iterable[tuple[str, str]]) -> Iterator[Chunk]:
    """Yields the pairs in chunks. A chunk ends when it reaches a number of pairs or of characters."""
    chunk, characters = Chunk([], []), 0
    for source, target in pairs:
        chunk.source.append(source)
        chunk.target.append(target)
        characters += len(source) + len(target)
        if len(chunk.source) >= CHUNK_PAIRS or characters >= _CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = Chunk([], []), 0
    if chunk.source:
        yield chunk


def sample(pairs: Iterable[tuple[str, str]], total: int, wanted: int, seed: int) -> Iterator[tuple[str, str]]:
    """Yields a uniform sample of `wanted` of the `total` pairs, in order (Knuth, TAOCP 2, §3.4.2, algorithm S)."""
    draw = random.Random(seed)
    for seen, pair in enumerate(islice(pairs, total)):
        if (total - seen) * draw.random() < wanted:
            wanted -= 1
            yield pair
