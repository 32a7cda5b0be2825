"""Turns corpus files into plain text, one file for each language, which commands read like any other corpus."""

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import IO, TypeVar

from nmt import console
from nmt.config import CleanConfig, CorpusConfig, DataConfig, flag_name
from nmt.corpora.reading import is_known, kind_of, read_directions
from nmt.errors import NmtError
from nmt.files import cached_folder, digest_of
from nmt.text.corpus import COMPRESSED, has_side

_Config = TypeVar("_Config", CleanConfig, DataConfig)
_COUNTS = "counts.json"
_VERSION = 1  # of what is made from a file; a new one makes it again
_ADVICE = {
    **dict.fromkeys([".xlsx", ".xls", ".ods"], "save it as CSV"),
    ".parquet": "write it as JSON lines, such as with to_json of Hugging Face's datasets",
    ".sdltm": "export it as TMX",
}


def with_plain_text(
    config: _Config, fields: Sequence[str], directions: Sequence[tuple[str, str]], files: CorpusConfig
) -> _Config:
    """Returns a configuration whose corpus files are replaced by the PREFIX of their text.

    Args:
        fields: those that name corpora, such as `train`.
        directions: source and target language of all directions that are needed.
        files: how corpus files are read.
    """
    given = {field: getattr(config, field) for field in fields}
    values = {
        field: plain_prefix(value, directions, files, flag_name(field))
        if isinstance(value, str)
        else tuple(plain_prefix(prefix, directions, files, flag_name(field)) for prefix in value)
        for field, value in given.items()
    }
    if files.variants() and values == given:
        raise NmtError(f"{flag_name(min(files.variants()))} is for corpus files, but there is none; leave it out")
    return replace(config, **values)  # type: ignore[arg-type]


def plain_prefix(prefix: str, directions: Sequence[tuple[str, str]], config: CorpusConfig, flag: str = "") -> str:
    """Returns the PREFIX of the text of a corpus file, or what is the PREFIX of files of text already."""
    stems = [stem for a, b in directions for stem in (f"{prefix}.{a}-{b}", f"{prefix}.{b}-{a}", prefix)]
    is_plain = any(has_side(stem, lang) for stem in stems for direction in directions for lang in direction)
    is_file = not is_plain and (is_known(prefix) or os.path.isfile(prefix))
    return corpus_prefix(prefix, directions, config, flag) if is_file else prefix


def corpus_prefix(path: str, directions: Sequence[tuple[str, str]], config: CorpusConfig, flag: str = "") -> str:
    """Returns the PREFIX of the text of a corpus file, which is written to the user's cache the first time.

    With one pair of languages, the files are PREFIX.en and PREFIX.de; with several, PREFIX.en-de.en and so on.

    Raises:
        NmtError: the file cannot be read, or has no pair.
    """
    pairs = tuple(pair for number, pair in enumerate(directions) if pair[::-1] not in directions[:number])
    named = f"{flag} {path}".strip()
    if not is_known(path):
        raise NmtError(f"{named} is not a corpus file that can be read; {advice(path, pairs)}")
    file = Path(path)
    name = Path(file.stem).stem if file.suffix in COMPRESSED else file.stem
    languages = " and ".join(dict.fromkeys(lang for pair in pairs for lang in pair))
    stems = [name] if len(pairs) == 1 else [f"{name}.{source}-{target}" for source, target in pairs]

    def write(folder: Path) -> None:
        counts, left_out = [0] * len(pairs), Counter[str]()
        paths = [[folder / f"{stem}.{lang}" for lang in pair] for stem, pair in zip(stems, pairs, strict=True)]
        with ExitStack() as files, console.Progress(f"Reading {path}", None, "pair", summary=False) as progress:
            writers = [[files.enter_context(_text_file(side)).write for side in sides] for sides in paths]
            for number, (source, target) in read_directions(path, pairs, config, left_out):
                write_source, write_target = writers[number]
                write_source(f"{source}\n")
                write_target(f"{target}\n")
                counts[number] += 1
                if not counts[number] % 1000:
                    progress.advance(1000)
        if not any(counts):
            raise NmtError(f"{named} has no pairs of {languages}{reasons(left_out)}; check the languages")
        for side in chain.from_iterable(sides for sides, count in zip(paths, counts, strict=True) if not count):
            side.unlink()
        (folder / _COUNTS).write_text(json.dumps([sum(counts), +left_out]), encoding="utf-8")

    key = [_VERSION, file.name, digest_of(path), pairs, config.to_dict()]
    folder = cached_folder("corpora", key, write)
    count, left_out = json.loads((folder / _COUNTS).read_text(encoding="utf-8"))
    console.info(
        f"{path}: {console.counted(count, 'pair')} of {languages}{reasons(left_out)}; the text is in {folder / name}.*"
    )
    return str(folder / name)


def _text_file(path: Path) -> IO[str]:
    return open(path, "w", encoding="utf-8", errors="replace", newline="\n")


def advice(path: str, pairs: Sequence[tuple[str, str]]) -> str:
    stem, _, lang = path.rpartition(".")
    if any(lang in pair and all(has_side(stem, each) for each in pair) for pair in pairs):
        return f"give {stem}, the PREFIX of this file and the one in the other language"
    kinds = "such as .tmx, .tsv, .csv, .jsonl, .xliff, .po or .zip"
    return _ADVICE.get(kind_of(path), f"give a file {kinds}, or the PREFIX of two files of text")


def reasons(left_out: Mapping[str, int]) -> str:
    """Returns the most frequent reasons for which something was left out."""
    reasons = [f"{count:,} {reason}" for reason, count in Counter(left_out).most_common(8)]
    return f" (left out: {', '.join(reasons)})" if reasons else ""
