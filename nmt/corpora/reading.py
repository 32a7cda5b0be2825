"""Reads corpus files of all kinds as sentence pairs, and writes these as plain text, a file for each language."""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from functools import lru_cache, partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import IO, TypeVar
from zipfile import ZipFile

from nmt import console
from nmt.cache import cached_folder
from nmt.config import CleanConfig, CorpusConfig, DataConfig, flag_name
from nmt.corpora.entries import FORBIDDEN, CorpusFile, Entry, Languages, choose
from nmt.corpora.tables import read_json, read_table
from nmt.corpora.xml import read_xml
from nmt.errors import NmtError
from nmt.files import digest_of, open_text
from nmt.text.corpus import COMPRESSED, decoded_lines, has_side, opened, parallel_paths, read_rows, reading
from nmt.text.languages import likeliest


def _read_po(corpus: CorpusFile) -> Iterator[Entry]:
    from nmt.documents.po import finished  # most corpora have no use for what reads documents

    language, pairs, others, damaged = finished(corpus.file.read(), corpus.name)
    corpus.left_out.update({"not translated, or fuzzy": others, "damaged": damaged})
    yield from ((("", language), pair) for pair in pairs)


VERSION = 6  # of the pairs that are read from a file; a new one reads it again
# What reads the entries of a file, by the end of its name before .gz and the like.
_READERS: dict[str, Callable[[CorpusFile], Iterator[Entry]]] = {
    **dict.fromkeys([".tmx", ".xlf", ".xliff", ".sdlxliff", ".mxliff"], read_xml),
    **dict.fromkeys([".tsv", ".txt"], partial(read_table, separators="\t")),
    ".csv": read_table,
    **dict.fromkeys([".jsonl", ".json"], read_json),
    ".po": _read_po,
}
_ADVICE = {
    **dict.fromkeys([".xlsx", ".xls", ".ods"], "save it as CSV"),
    ".parquet": "write it as JSON lines, such as with to_json of Hugging Face's datasets",
    ".sdltm": "export it as TMX",
}
# What archives have beside corpora: texts such as README.txt, and metadata.
_NOT_IN_ARCHIVES = (".txt", ".json")
_WITHOUT_SCORES = (".xlf", ".xliff", ".sdlxliff", ".mxliff", ".po")
_LAYOUT = re.compile(r"(?<! ) *[\t\r\n][ \t\r\n]*")


def kind_of(path: str) -> str:
    """Returns the end of a file's name in lower case, such as `.tmx`, without that of a compressed file."""
    return _uncompressed(path).suffix.lower()


def _uncompressed(path: str) -> Path:
    """Returns the name that a file has when it is not compressed."""
    file = Path(path)
    return file.with_suffix("") if file.suffix in COMPRESSED else file


def read_pairs(
    path: str, directions: Sequence[Languages], config: CorpusConfig, left_out: Counter[str]
) -> Iterator[tuple[Languages, tuple[str, str]]]:
    """Yields the sentence pairs of a corpus, a file or the PREFIX of two, each with its direction.

    Counts in `left_out`, by reason such as `without text`, what else the corpus has.

    Raises:
        NmtError: the corpus cannot be read, or has no pair. The message names file and line.
    """
    chosen, is_empty = lru_cache(10_000)(partial(choose, directions)), True
    languages = tuple(dict.fromkeys(chain.from_iterable(directions)))
    for codes, texts in _entries(path, languages, config, left_out):
        if len(directions) > 1 and not all(codes):
            raise NmtError(f"{path} does not say the languages of its texts; name one direction")
        pairs, others = chosen(codes)
        if others:
            left_out["in other variants of a language"] += others
        if not pairs:
            left_out[f"only in {' and '.join(filter(None, codes)) or 'no language':.40}"] += 1
        for direction, (source_position, target_position) in pairs.items():
            source, target = _line(texts[source_position]), _line(texts[target_position])
            if not (source and target):
                left_out["without text"] += 1
            elif FORBIDDEN in source or FORBIDDEN in target:
                left_out["with characters or entities that XML does not have"] += 1
            else:
                is_empty = False
                yield direction, (source, target)
    if is_empty:
        are_cells_wrong = {"without one of the columns", "with more cells than others"} & left_out.keys()
        are_others = any(reason.startswith("only in") for reason in left_out)
        checked = "the separators and --columns" if are_cells_wrong else "the languages" if are_others else "the file"
        problem = f"{path} has no pairs of {' and '.join(languages)}{reasons(left_out)}"
        raise NmtError(f"{problem}; check {checked}")


def reasons(left_out: Mapping[str, int]) -> str:
    """Returns the most frequent reasons for which something was left out."""
    reasons = [f"{count:,} {reason}" for reason, count in (+Counter(left_out)).most_common(8)]
    return f" (left out: {', '.join(reasons)})" if reasons else ""


def _entries(path: str, languages: tuple[str, ...], config: CorpusConfig, left_out: Counter[str]) -> Iterator[Entry]:
    kind = kind_of(path)
    if all(has_side(path, lang) for lang in languages):
        yield from ((languages, row) for row in read_rows(*parallel_paths(path, *languages)))
    elif kind == ".zip":
        yield from _entries_in_archive(path, languages, config, left_out)
    elif kind in _READERS:
        with opened(path) as file:
            yield from _read(kind, CorpusFile(file, path, config, languages, left_out))
    else:
        kinds = "such as .tmx, .tsv, .csv, .jsonl, .xliff, .po or .zip"
        advice = _ADVICE.get(kind, f"give a file {kinds}, or the PREFIX of two files of text")
        stem, _, lang = path.rpartition(".")
        if lang in languages:
            advice = f"give {stem}, the PREFIX of this file and the one in the other language"
        raise NmtError(f"{path} is not a corpus file that can be read; {advice}")


def _read(kind: str, corpus: CorpusFile) -> Iterator[Entry]:
    if kind in _WITHOUT_SCORES:
        corpus.keeps(None, corpus.name, "leave out --least-score for such files")
    yield from _READERS[kind](corpus)


def _entries_in_archive(
    path: str, languages: tuple[str, ...], config: CorpusConfig, left_out: Counter[str]
) -> Iterator[Entry]:
    """Yields the entries of all corpus files in an archive, or of files of text such as x.de-en.de and x.de-en.en."""
    try:
        with reading(path), ZipFile(path) as archive, ExitStack() as files:
            # The Finder of macOS adds files such as __MACOSX/._x.tmx, which have no text.
            members = [name for name in archive.namelist() if not Path(name).name.startswith(".")]
            sides = dict[str, dict[str, str]]()
            for name in members:
                stem, _, code = name.rpartition(".")
                if any(likeliest(lang, [code]) for lang in languages):
                    sides.setdefault(stem, {})[code] = name
            known = [name for name in members if kind_of(name) in _READERS.keys() - _NOT_IN_ARCHIVES]
            for name in known:
                with archive.open(name) as member, COMPRESSED.get(Path(name).suffix, nullcontext)(member) as file:
                    corpus = CorpusFile(file, f"{path}: {name}", config, languages, left_out)
                    yield from _read(kind_of(name), corpus)
            stems = [stem for stem, names in sides.items() if len(names) > 1]
            if not (known or stems):
                raise NmtError(f"{path} has {console.listed(members)}, which cannot be read in an archive; unpack it")
            if len(joined := known or stems) > 1 and len(languages) == 2:
                console.info(f"{path}: {console.listed(joined)} are read as one corpus; unpack it to use them apart")
            if known and stems:
                console.warn(f"{path}: {console.listed(stems)} not read, because it has other corpora; unpack it")
            for stem, names in () if known else sides.items():
                if config.least_score is not None:
                    raise NmtError(f"{path} has text without scores; leave out --least-score")
                lines = [decoded_lines(files.enter_context(archive.open(n)), f"{path}: {n}") for n in names.values()]
                for texts in zip_longest(*lines):
                    if None in texts:
                        raise NmtError(f"the files {stem}.* in {path} have unequal numbers of lines; get it again")
                    yield tuple(names), texts
    except (RuntimeError, NotImplementedError, ValueError) as error:  # such as a password, or another compression
        raise NmtError(f"{path} cannot be unpacked here ({error!s:.100}); unpack it yourself") from error


def _line(text: str) -> str:
    """Returns text on one line."""
    if "\n" in text or "\t" in text or "\r" in text:
        text = _LAYOUT.sub(" ", text)
    return text.strip()


# Conversion to plain text

_Config = TypeVar("_Config", CleanConfig, DataConfig)
_SUMMARY = "summary.txt"


def with_plain_text(
    config: _Config, fields: Sequence[str], directions: Sequence[Languages], files: CorpusConfig
) -> _Config:
    """Returns a configuration whose corpus files are replaced by the PREFIX of their text.

    Args:
        fields: those that name corpora, such as `train`.
        directions: source and target language of all directions that are needed.
        files: how corpus files are read.
    """
    plain = partial(plain_prefix, directions=directions, config=files)
    given = {name: getattr(config, name) for name in fields}
    values = {name: plain(v) if isinstance(v, str) else tuple(map(plain, v)) for name, v in given.items()}
    if values == given:
        refuse_options(files)
    return replace(config, **values)  # type: ignore[arg-type]


def refuse_options(files: CorpusConfig) -> None:
    """Raises NmtError if options for corpus files were given. It is called where there is no such file."""
    if given := files.variants():
        raise NmtError(f"{flag_name(min(given))} is for corpus files, but there is none; leave it out")


def plain_prefix(prefix: str, directions: Sequence[Languages], config: CorpusConfig) -> str:
    """Returns the PREFIX of the text of a corpus file, or what is the PREFIX of files of text already."""
    stems = [stem for a, b in directions for stem in (f"{prefix}.{a}-{b}", f"{prefix}.{b}-{a}", prefix)]
    is_plain = any(has_side(stem, lang) for stem in stems for direction in directions for lang in direction)
    is_file = not is_plain and (kind_of(prefix) in {".zip", *_READERS} or os.path.isfile(prefix))
    return corpus_prefix(prefix, directions, config) if is_file else prefix


def is_corpus_file(path: str) -> bool:
    """Returns whether a file, by its name, has more than the lines of one text."""
    return kind_of(path) in {".zip", *_READERS} - {".txt"}


def target_text(path: str, source_lang: str | None, target_lang: str | None, config: CorpusConfig) -> str:
    """Returns the file of the target text of a corpus file such as a table; other paths as they are."""
    if not is_corpus_file(path):
        return path
    if source_lang is None or target_lang is None:
        raise NmtError(f"{path} has two languages; give --source-lang and --target-lang, or a file of text")
    return f"{corpus_prefix(path, [(source_lang, target_lang)], config)}.{target_lang}"


def corpus_prefix(path: str, directions: Sequence[Languages], config: CorpusConfig) -> str:
    """Returns the PREFIX of the text of a corpus file, which is written to the user's cache the first time.

    With one pair of languages, the files are PREFIX.en and PREFIX.de; with several, PREFIX.en-de.en and so on.

    Raises:
        NmtError: the file cannot be read, or has no pair.
    """
    pairs = tuple(pair for i, pair in enumerate(directions) if pair[::-1] not in directions[:i])
    file = Path(path)
    name = _uncompressed(path).stem
    languages = " and ".join(dict.fromkeys(chain.from_iterable(pairs)))

    def write(folder: Path) -> None:
        count, left_out = 0, Counter[str]()
        text_files = dict[Languages, list[IO[str]]]()
        counter = console.Progress(f"Reading {path}", None, "pair", summary=False)
        with ExitStack() as open_files, counter as progress:
            for pair, texts in read_pairs(path, pairs, config, left_out):
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
