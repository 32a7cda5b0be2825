"""The raw pairs of corpora: their files, checks of their text, and what preprocessing changes in them."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from nmt import console
from nmt.config import DataConfig
from nmt.data.augmentation import augmented
from nmt.errors import NmtError
from nmt.jobs.source import File, Plan, make_plan
from nmt.jobs.stream import Batch, Result, Row
from nmt.text.corpus import has_side, parallel_paths, read_rows
from nmt.text.directions import Direction
from nmt.text.languages import look_swapped
from nmt.text.text_config import TextConfig
from nmt.text.words import RAW_WORD, parse_pharaoh

_Row = TypeVar("_Row", bound=tuple[Any, ...])
CHUNK_PAIRS = 2000


class Corpus(NamedTuple):
    """The files beside a PREFIX in one direction.

    Attributes:
        prefix: what the user gave.
        prefix_index: of the prefix among those of its flag, from 0.
        direction: the languages as the model calls them; of copies, the same on both sides.
        paths: of the source and the target file.
    """

    prefix: str
    prefix_index: int
    direction: Direction
    paths: tuple[str, str]


def corpora_of(config: DataConfig, text: TextConfig, flag: str, prefixes: Sequence[str]) -> list[Corpus]:
    """Returns the corpora of a flag, such as --train: for each prefix and each direction that has files, one.

    Raises:
        NmtError: a file is missing, or with --languages a prefix has no two files that are asked for.
    """
    corpora: list[Corpus] = []
    for index, prefix in enumerate(prefixes):
        count = len(corpora)
        for source, target in config.pairs:
            stems = [prefix]
            if config.languages is not None:
                own = f"{prefix}.{source}-{target}", f"{prefix}.{target}-{source}"
                stems = [stem for stem in (*own, prefix) if has_side(stem, source) and has_side(stem, target)]
                for stem in own:  # whose names have both languages
                    if stem not in stems and (alone := [each for each in (source, target) if has_side(stem, each)]):
                        other = f"{stem}.{target if alone == [source] else source}"
                        raise NmtError(f"{flag}: there is {stem}.{alone[0]}, but no {other}; check the names")
                if flag != "--train":  # a test set may have a text of its own for each direction
                    stems = stems[:1]
            for stem in stems:
                paths = parallel_paths(stem, source, target)
                files = str(paths[0]), str(paths[1])
                corpora.append(Corpus(prefix, index, text.direction(source, target), files))
        if len(corpora) == count:
            names = ", ".join(f"{source}-{target}" for source, target in config.pairs)
            languages = dict.fromkeys(language for pair in config.pairs for language in pair)
            (present, *_) = [f"only {prefix}.{each}, and " for each in languages if has_side(prefix, each)] or [""]
            examples = f"{prefix}.{source} and {prefix}.{target}, or {own[0]}.{source} and {own[0]}.{target}"
            problem = f"{flag} {prefix} has {present}no two files for any of {names:.200}"
            raise NmtError(f"{problem}; such files are {examples}, so check the prefix and the languages")
    return corpora


def copies_of(corpora: Sequence[Corpus]) -> list[Corpus]:
    """Returns the text of each target language as a corpus of copies."""
    copies = [each._replace(direction=Direction(*[each.direction.target] * 2), paths=(each.paths[1],) * 2)
              for each in corpora]  # fmt: skip
    return list({each.paths: each for each in copies}.values())  # several directions may have a file


class RawPairs(NamedTuple):
    """The raw lines of some sentence pairs.

    Attributes:
        alignments: the word alignments of the pairs; blank lines if they have none.
        first: the number of the first pair in the text, from 0.
        direction: the languages, for a model of several.
        tag: of the source lines; empty if they have none.
        earlier: the source lines before the first pair, for --context.
    """

    source: list[str]
    target: list[str]
    alignments: list[str]
    first: int = 0
    direction: Direction | None = None
    tag: str = ""
    earlier: Sequence[str] = ()

    @property
    def is_copy(self) -> bool:
        """Whether the source is a copy of the target."""
        return self.direction is not None and self.direction.is_copy


def check_pairs(config: DataConfig, plan: Plan, train: Sequence[Corpus], splits: Sequence[Sequence[Corpus]]) -> None:
    """Checks the text of all splits: the files that the plan lists, and the corpora of the other splits."""
    others = [corpus for split_corpora in splits for corpus in split_corpora]
    other_segments = make_plan([corpus.paths for corpus in others], sys.maxsize).segments
    valid = [[file.digest for file in files] for files in other_segments[: len(splits[0])]]
    train_segments = zip(train, plan.segments, strict=True)
    same = [each.prefix for each, files in train_segments if [file.digest for file in files[:2]] in valid]
    for prefix in dict.fromkeys(same):
        console.warn(f"--valid {config.valid} has the same text as --train {prefix}, so it measures no quality")
    flags, checked = "the files" if config.languages else "--source-lang and --target-lang", set[frozenset[str]]()
    for corpus, (source, target, *_) in zip((*train, *others), (*plan.segments, *other_segments), strict=True):
        if not source.lines:
            raise NmtError(f"{source.path} and {target.path} have no lines; check how the corpus was made")
        files = frozenset((source.path, target.path))
        # The other direction has the same files.
        if not corpus.direction.is_copy and (not config.languages or files not in checked):
            warn_of_text(source, target, corpus.direction, flags)
        checked.add(files)
    for paths in plan.paths if config.alignments else ():
        _check_alignments(*paths)


def warn_of_text(
    source: File, target: File, langs: Sequence[str], flags: str = "--source-lang and --target-lang"
) -> None:
    """Warns if two files, which have lines, look swapped or hold the same text."""
    source_lines, target_lines = zip(*next(in_chunks(read_rows(source.path, target.path))), strict=True)
    if look_swapped(source_lines, target_lines, *langs):
        looks = f"{source.path} looks like {langs[1]}, and {target.path} looks like {langs[0]}"
        console.warn(f"{looks}; check whether {flags} are swapped")
    if source.digest == target.digest:
        console.warn(f"{source.path} and {target.path} have the same text; check whether one is in a wrong language")


def _check_alignments(source_path: str, target_path: str, path: str) -> None:
    """Checks each line of a file with the word alignments of a corpus."""
    for line_number, (source, target, line) in enumerate(read_rows(source_path, target_path, path), start=1):
        try:
            alignments = parse_pharaoh(line)
        except ValueError as error:
            raise NmtError(f"{path}, line {line_number}: {error}; give links such as 0-0 1-2") from error
        source_words, target_words = len(RAW_WORD.findall(source)), len(RAW_WORD.findall(target))
        for i, j in alignments:
            if i >= source_words or j >= target_words:
                words = f"{source_words} and {target_words} words, counted from 0 and separated by spaces"
                problem = f"{path}, line {line_number} links word {i} to word {j}, but the sentences have {words}"
                raise NmtError(f"{problem}; align the raw text")


def in_chunks(rows: Iterable[_Row]) -> Iterator[list[_Row]]:
    """Yields the rows in chunks. A chunk ends at a number of rows, or of characters if lines are as long as books."""
    chunk, characters = list[_Row](), 0
    for row in rows:
        chunk.append(row)
        characters += sum(map(len, row))
        if len(chunk) >= CHUNK_PAIRS or characters >= 1 << 20:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def joined(done: Iterable[tuple[Batch, Result]]) -> tuple[list[Batch], list[Any], dict[str, np.ndarray]]:
    """Returns the batches of a chunk in order, the values of their results, and their arrays end to end."""
    batches, results = zip(*sorted(done, key=lambda each: each[0].unit_numbers[0]), strict=True)
    arrays = {name: np.concatenate([result.arrays[name] for result in results]) for name in results[0].arrays}
    return list(batches), [result.values for result in results], arrays


def raw_pairs(
    rows: Iterable[Row], first: int = 0, direction: Direction | None = None, tag: str = "", context: int = 0
) -> Iterator[RawPairs]:
    """Yields pairs, perhaps with alignments, in chunks. The first pair has the number `first`."""
    earlier: list[str] = []
    for chunk in in_chunks(rows):
        source, target, *others = map(list, zip(*chunk, strict=True))
        alignments = others[0] if others else [""] * len(chunk)
        yield RawPairs(source, target, alignments, first, direction, tag, earlier)
        first += len(chunk)
        earlier = [*earlier, *source][-context:] if context else []


def augmented_pairs(pairs: RawPairs, seed: int, text: TextConfig) -> RawPairs:
    """Returns pairs after --augment. Tags stay. A pair whose words get other numbers loses its alignment."""
    tags, lines = zip(*map(text.split_tags, pairs.source), strict=True)
    old = list(zip(lines, pairs.target, strict=True))
    langs = pairs.direction or (text.source_lang, text.target_lang)
    new = [augmented(pair, seed, position, langs) for position, pair in enumerate(old, pairs.first)]
    # Both sides become equal only if noise replaces them.
    alignments = [
        alignment if alignment and (pair[0] != pair[1] or pair == was) and all(map(_keeps_words, was, pair)) else ""
        for alignment, was, pair in zip(pairs.alignments, old, new, strict=True)
    ]
    source = [" ".join([*line_tags, pair[0]]) for line_tags, pair in zip(tags, new, strict=True)]
    return pairs._replace(source=source, target=[target for _, target in new], alignments=alignments)


def cased_targets(pairs: RawPairs, text: TextConfig) -> list[str]:
    """Returns the target lines as the model gets them, in lower case if --lower-capitals says so."""
    return [text.cased_for(*pair, pairs.direction) for pair in zip(pairs.source, pairs.target, strict=True)]


def _keeps_words(line: str, changed: str) -> bool:
    """Returns whether a changed line has as many words as the line, or is its beginning."""
    return line.startswith(changed) or len(RAW_WORD.findall(line)) == len(RAW_WORD.findall(changed))


def useful_workers(workers: int, pairs: int) -> int:
    """Returns at most one worker for each chunk, because starting a process takes longer than encoding a chunk."""
    return max(1, min(workers, -(-pairs // CHUNK_PAIRS)))
