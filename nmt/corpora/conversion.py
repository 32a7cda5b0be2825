"""Turns corpus files into plain text, one file for each language, which commands read like any other corpus."""

import os
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, TypeVar

from nmt import console
from nmt.cache import cached_folder
from nmt.config import CleanConfig, CorpusConfig, DataConfig, flag_name
from nmt.corpora.reading import VERSION, is_known, read_directions, reasons
from nmt.corpora.units import Direction
from nmt.errors import NmtError
from nmt.files import digest_of
from nmt.text.corpus import COMPRESSED, has_side

_Config = TypeVar("_Config", CleanConfig, DataConfig)
_SUMMARY = "summary.txt"


def with_plain_text(
    config: _Config, fields: Sequence[str], directions: Sequence[Direction], files: CorpusConfig
) -> _Config:
    """Returns a configuration whose corpus files are replaced by the PREFIX of their text.

    Args:
        fields: those that name corpora, such as `train`.
        directions: source and target language of all directions that are needed.
        files: how corpus files are read.
    """
    plain = partial(plain_prefix, directions=directions, config=files)
    given = {field: getattr(config, field) for field in fields}
    values = {
        name: plain(value) if isinstance(value, str) else tuple(map(plain, value)) for name, value in given.items()
    }
    if files.variants() and values == given:
        raise NmtError(f"{flag_name(min(files.variants()))} is for corpus files, but there is none; leave it out")
    return replace(config, **values)  # type: ignore[arg-type]


def plain_prefix(prefix: str, directions: Sequence[Direction], config: CorpusConfig) -> str:
    """Returns the PREFIX of the text of a corpus file, or what is the PREFIX of files of text already."""
    stems = [stem for a, b in directions for stem in (f"{prefix}.{a}-{b}", f"{prefix}.{b}-{a}", prefix)]
    is_plain = any(has_side(stem, lang) for stem in stems for direction in directions for lang in direction)
    is_file = not is_plain and (is_known(prefix) or os.path.isfile(prefix))
    return corpus_prefix(prefix, directions, config) if is_file else prefix


def corpus_prefix(path: str, directions: Sequence[Direction], config: CorpusConfig) -> str:
    """Returns the PREFIX of the text of a corpus file, which is written to the user's cache the first time.

    With one pair of languages, the files are PREFIX.en and PREFIX.de; with several, PREFIX.en-de.en and so on.

    Raises:
        NmtError: the file cannot be read, or has no pair.
    """
    pairs = tuple(pair for i, pair in enumerate(directions) if pair[::-1] not in directions[:i])
    file = Path(path)
    name = Path(file.stem).stem if file.suffix in COMPRESSED else file.stem
    languages = " and ".join(dict.fromkeys(lang for pair in pairs for lang in pair))

    open_text = partial(open, mode="w", encoding="utf-8", errors="replace", newline="\n")

    def write(folder: Path) -> None:
        count, left_out = 0, Counter[str]()
        text_files = dict[Direction, list[IO[str]]]()
        with ExitStack() as open_files, console.Progress(f"Reading {path}", None, "pair", summary=False) as progress:
            for pair, texts in read_directions(path, pairs, config, left_out):
                if pair not in text_files:
                    stem = name if len(pairs) == 1 else f"{name}.{'-'.join(pair)}"
                    sides = [open_text(folder / f"{stem}.{lang}") for lang in pair]
                    text_files[pair] = [open_files.enter_context(side) for side in sides]
                for side, text in zip(text_files[pair], texts, strict=True):
                    side.write(f"{text}\n")
                count += 1
                if not count % 1000:
                    progress.advance(1000)
        summary = f"{console.counted(count, 'pair')} of {languages}{reasons(left_out)}"
        (folder / _SUMMARY).write_text(summary, encoding="utf-8")

    key = [VERSION, file.name, digest_of(path), pairs, config.to_dict()]
    folder = cached_folder("corpora", key, write)
    summary = (folder / _SUMMARY).read_text(encoding="utf-8")
    console.info(f"{path}: {summary}; the text is in {folder / name}.*")
    return str(folder / name)
