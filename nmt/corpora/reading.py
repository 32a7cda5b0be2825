"""Reads corpus files of all kinds as sentence pairs."""

import os
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nmt.config import CorpusConfig
from nmt.corpora.tables import read_csv, read_json_lines, read_tsv
from nmt.corpora.units import Directions, Unit, choose
from nmt.corpora.xml import read_xml
from nmt.errors import NmtError
from nmt.text.corpus import COMPRESSED, has_side, opened, parallel_paths, read_rows

# What reads the units of a file, by the end of its name before .gz and the like.
_READERS: dict[str, Callable[..., Iterator[Unit]]] = {
    ".tmx": read_xml,
    ".tsv": read_tsv,
    ".txt": read_tsv,
    ".csv": read_csv,
    ".json": read_json_lines,
    ".jsonl": read_json_lines,
}
_LAYOUT = re.compile(r" *[\t\r\n][ \t\r\n]*")


def is_corpus_file(prefix: str) -> bool:
    """Returns whether what a user gives as the PREFIX of a corpus is the name of one file with all of it."""
    return kind_of(prefix) in _READERS or os.path.isfile(prefix)


def kind_of(path: str) -> str:
    """Returns the end of a file's name in lower case, such as `.tmx`, without that of a compressed file."""
    name = Path(path)
    return Path(name.stem if name.suffix.lower() in COMPRESSED else name).suffix.lower()


def read_pairs(
    path: str, source_lang: str, target_lang: str, config: CorpusConfig, left_out: Counter[str]
) -> Iterator[tuple[str, str]]:
    """Yields the sentence pairs of a corpus, a file or the PREFIX of two, in one direction.

    Args:
        left_out: counts by reason, such as `without text`, what else the corpus has. It is complete at the end.

    Raises:
        NmtError: the corpus cannot be read. The message names file and line.
    """
    if has_side(path, source_lang) and has_side(path, target_lang):
        rows = read_rows(*parallel_paths(path, source_lang, target_lang))
        yield from ((source, target) for source, target in rows)
    else:
        yield from (pair for _, pair in read_directions(path, ((source_lang, target_lang),), config, left_out))


def read_directions(
    path: str, directions: Directions, config: CorpusConfig, left_out: Counter[str]
) -> Iterator[tuple[int, tuple[str, str]]]:
    """Yields the sentence pairs of a corpus file, each with the number of its direction. See `read_pairs`."""
    for unit in _units(path, directions, config, left_out):
        if len(directions) > 1 and not all(unit.codes):
            raise NmtError(f"{path} does not say the languages of its texts; name one direction")
        choice = choose(directions, unit.codes)
        if choice.others:
            left_out["other variants of a language"] += choice.others
        if not choice.pairs:
            left_out[f"only in {', '.join(unit.codes) or 'no language':.40}"] += 1
        for number, source, target in choice.pairs:
            pair = _line(unit.texts[source]), _line(unit.texts[target])
            if all(pair):
                yield number, pair
            else:
                left_out["without text"] += 1


def _units(path: str, directions: Directions, config: CorpusConfig, left_out: Counter[str]) -> Iterator[Unit]:
    languages = list(dict.fromkeys(lang for direction in directions for lang in direction))
    with opened(path) as file:
        yield from _READERS[kind_of(path)](file, path, config, left_out, languages)


def _line(text: str) -> str:
    """Returns text on one line."""
    if "\n" in text or "\t" in text or "\r" in text:
        text = _LAYOUT.sub(" ", text)
    return text.strip()
