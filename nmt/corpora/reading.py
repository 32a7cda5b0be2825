"""Reads corpus files of all kinds as sentence pairs."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from functools import lru_cache, partial
from itertools import chain, zip_longest
from pathlib import Path
from zipfile import ZipFile

from nmt.config import CorpusConfig
from nmt.corpora.tables import read_json, read_table
from nmt.corpora.units import FORBIDDEN, CorpusFile, Direction, Unit, choose
from nmt.corpora.xml import read_xml
from nmt.documents.po import finished
from nmt.errors import NmtError
from nmt.text.corpus import COMPRESSED, decoded_lines, has_side, opened, parallel_paths, read_rows, reading
from nmt.text.languages import likeliest


def _read_po(corpus: CorpusFile) -> Iterator[Unit]:
    language, pairs, others = finished(corpus.file.read(), corpus.name)
    if others:
        corpus.left_out["not translated, or fuzzy"] += others
    yield from ((("", language), pair) for pair in pairs)


VERSION = 4  # of the pairs that are read from a file; a new one reads it again
# What reads the units of a file, by the end of its name before .gz and the like.
_READERS: dict[str, Callable[[CorpusFile], Iterator[Unit]]] = {
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
_LAYOUT = re.compile(r" *[\t\r\n][ \t\r\n]*")


def kind_of(path: str) -> str:
    """Returns the end of a file's name in lower case, such as `.tmx`, without that of a compressed file."""
    name = Path(path)
    return Path(name.stem if name.suffix in COMPRESSED else name).suffix.lower()


def is_known(path: str) -> bool:
    """Returns whether a file has the name of a corpus file that can be read."""
    return kind_of(path) in {".zip", *_READERS}


def read_pairs(
    path: str, source_lang: str, target_lang: str, config: CorpusConfig, left_out: Counter[str]
) -> Iterator[tuple[str, str]]:
    """Yields the sentence pairs of a corpus, a file or the PREFIX of two, in one direction.

    Args:
        left_out: counts by reason, such as `without text`, what else the corpus has. It is complete at the end.

    Raises:
        NmtError: the corpus cannot be read, or has no pair. The message names file and line.
    """
    yield from (pair for _, pair in read_directions(path, [(source_lang, target_lang)], config, left_out))


def read_directions(
    path: str, directions: Sequence[Direction], config: CorpusConfig, left_out: Counter[str]
) -> Iterator[tuple[Direction, tuple[str, str]]]:
    """Yields the sentence pairs of a corpus, each with its direction. See `read_pairs`."""
    chosen, is_empty = lru_cache(10_000)(partial(choose, directions)), True
    for codes, texts in _units(path, directions, config, left_out):
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
        languages = " and ".join(dict.fromkeys(chain.from_iterable(directions)))
        checked = "separators and --columns" if "without one of the columns" in left_out else "languages"
        raise NmtError(f"{path} has no pairs of {languages}{reasons(left_out)}; check the {checked}")


def _advice(path: str, languages: Sequence[str]) -> str:
    stem, _, lang = path.rpartition(".")
    if lang in languages:
        return f"give {stem}, the PREFIX of this file and the one in the other language"
    kinds = "such as .tmx, .tsv, .csv, .jsonl, .xliff, .po or .zip"
    return _ADVICE.get(kind_of(path), f"give a file {kinds}, or the PREFIX of two files of text")


def reasons(left_out: Mapping[str, int]) -> str:
    """Returns the most frequent reasons for which something was left out."""
    reasons = [f"{count:,} {reason}" for reason, count in Counter(left_out).most_common(8)]
    return f" (left out: {', '.join(reasons)})" if reasons else ""


def _units(path: str, directions: Sequence[Direction], config: CorpusConfig, left_out: Counter[str]) -> Iterator[Unit]:
    languages = tuple(dict.fromkeys(chain.from_iterable(directions)))
    if all(has_side(path, lang) for lang in languages):
        yield from ((languages, row) for row in read_rows(*parallel_paths(path, *languages)))
    elif kind_of(path) == ".zip":
        yield from _units_in_archive(path, config, languages, left_out)
    elif not is_known(path):
        raise NmtError(f"{path} is not a corpus file that can be read; {_advice(path, languages)}")
    else:
        with opened(path) as file:
            yield from _READERS[kind_of(path)](CorpusFile(file, path, config, languages, left_out))


def _units_in_archive(
    path: str, config: CorpusConfig, languages: Sequence[str], left_out: Counter[str]
) -> Iterator[Unit]:
    """Yields the units of files of known kinds in an archive, or of files of text such as x.de-en.de and x.de-en.en."""
    try:
        with reading(path), ZipFile(path) as archive, ExitStack() as files:
            members, sides = archive.namelist(), dict[str, dict[str, str]]()
            for name in members:
                stem, _, code = name.rpartition(".")
                if any(likeliest(lang, [code]) for lang in languages):
                    sides.setdefault(stem, {})[code] = name
            known = [name for name in members if kind_of(name) in _READERS.keys() - _NOT_IN_ARCHIVES]
            for name in known:
                with archive.open(name) as member, COMPRESSED.get(Path(name).suffix, nullcontext)(member) as file:
                    corpus = CorpusFile(file, f"{path}: {name}", config, languages, left_out)
                    yield from _READERS[kind_of(name)](corpus)
            for stem, names in () if known else sides.items():
                lines = [decoded_lines(files.enter_context(archive.open(name)), name) for name in names.values()]
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
