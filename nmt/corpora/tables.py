"""Units of tables and JSON lines, whose columns or fields have numbers or names."""

import csv
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from typing import Any, NamedTuple

from nmt.corpora.units import CorpusFile, Unit
from nmt.errors import NmtError
from nmt.text.corpus import decoded_lines
from nmt.text.languages import english_name, likeliest

_SHOWN = 20  # so many lines show which character separates cells
_SIDES = (["source", "target"], ["src", "tgt"])


class _Columns(NamedTuple):
    """The positions of the texts, their languages, the position of the score, and whether the first row names them."""

    texts: Sequence[int]
    codes: tuple[str, ...]
    score: int | None
    has_header: bool


def read_tsv(corpus: CorpusFile) -> Iterator[Unit]:
    """Yields the units of a table with tabs between cells. Quotes are text."""
    rows = (line.split("\t") for line in decoded_lines(corpus.file, corpus.name))
    yield from _units(enumerate(rows, start=1), corpus)


def read_csv(corpus: CorpusFile) -> Iterator[Unit]:
    """Yields the units of a table with commas, semicolons or tabs between cells. Quotes enclose cells."""
    lines = (f"{line}\n" for line in decoded_lines(corpus.file, corpus.name))
    first = list(islice(lines, _SHOWN))
    separators, before = ",;\t", 0
    if first and (named := re.fullmatch(r'"?sep=(.)"?\r?\n', first[0])):  # which spreadsheets write and read
        separators, before, first = named[1], 1, first[1:]

    def regularity(separator: str) -> tuple[int, int]:
        """Returns how many rows have the usual number of cells, and that number."""
        widths = Counter[int]()
        with suppress(csv.Error):
            widths.update(len(row) for row in csv.reader(first, delimiter=separator) if len(row) > 1)
        return max(((count, width) for width, count in widths.items()), default=(0, 0))

    reader = csv.reader(chain(first, lines), delimiter=max(separators, key=regularity), strict=True)
    try:
        yield from _units(((before + reader.line_num, row) for row in reader), corpus)
    except csv.Error as error:
        where = f"{corpus.name}, line {before + reader.line_num:,}"
        raise NmtError(f"{where}: a cell cannot be read ({error}); check whether its quotes are closed") from error


def _units(rows: Iterable[tuple[int, Sequence[str]]], corpus: CorpusFile) -> Iterator[Unit]:
    """Yields the units in the rows of a table, each with the number of its line."""
    columns = None
    for line_number, row in rows:
        where = f"{corpus.name}, line {line_number:,}"
        if columns is None:
            columns = _columns(row, corpus, where)
            if columns.has_header:
                continue
        yield from _unit(row, columns, corpus, where)


def read_json_lines(corpus: CorpusFile) -> Iterator[Unit]:
    """Yields the units of a file with an object on each line, as data sets of Hugging Face have them."""
    columns_of = dict[tuple[str, ...], _Columns]()  # by the names of the fields
    for line_number, line in enumerate(decoded_lines(corpus.file, corpus.name), start=1):
        where = f"{corpus.name}, line {line_number:,}"
        try:
            record = json.loads(line or "{}")
        except (ValueError, RecursionError) as error:
            raise NmtError(f"{where} is not JSON ({error}); write one object on each line") from error
        if not isinstance(record, dict):
            raise NmtError(f"{where} is not an object; write one object on each line, such as with jq -c '.[]'")
        texts = record.get("translation")
        if isinstance(texts, dict) and not corpus.config.columns:
            yield from _unit(list(texts.values()), _Columns(range(len(texts)), tuple(texts), None, True), corpus, where)
            continue
        fields = record | texts if isinstance(texts, dict) else record
        names = tuple(fields)
        if names not in columns_of:
            columns_of[names] = _columns(names, corpus, where)
        yield from _unit(list(fields.values()), columns_of[names], corpus, where)


def _unit(row: Sequence[Any], columns: _Columns, corpus: CorpusFile, where: str) -> list[Unit]:
    """Returns the unit of a row, or nothing if it lacks a text or has too low a score."""
    texts = [row[i] for i in columns.texts if i < len(row) and isinstance(row[i], str)]
    least = corpus.config.least_score
    if len(texts) < len(columns.texts):
        corpus.left_out["without one of the columns"] += 1
        return []
    if least is not None and columns.score is not None:
        cell = row[columns.score] if columns.score < len(row) else ""
        score = _number(cell)
        if score is None:
            raise NmtError(f"{where} has the score {cell!r:.40}, which is not a number; check --columns")
        if not score >= least:
            corpus.left_out[f"with a score below {least}"] += 1
            return []
    return [(columns.codes, texts)]


def _number(cell: Any) -> float | None:
    try:
        return float(cell)
    except (TypeError, ValueError):
        return None


def _columns(header: Sequence[str], corpus: CorpusFile, where: str) -> _Columns:
    """Returns what the first line of a table, or the names of the fields in JSON, say about the columns."""
    names = [" ".join(name.split()) for name in header]
    lower, codes = [name.lower() for name in names], [_language(name, corpus.languages) for name in names]
    sides = next((pair for pair in _SIDES if set(pair) <= set(lower)), [])
    asked = corpus.config.columns.split(",") if corpus.config.columns else []
    by_number = all(column.isdecimal() for column in asked)
    listed = f"{', '.join(names):.100}"
    if not by_number and (missing := [column for column in asked if column not in names]):
        raise NmtError(f"{where} has no column {missing[0]!r:.40}, but {listed}; check --columns")
    if asked:
        positions = [int(column) - 1 if by_number else names.index(column) for column in asked]
    elif len(set(filter(None, codes))) > 1:
        positions = [i for i, code in enumerate(codes) if code]
    elif sides or len(names) <= 2:
        positions = [lower.index(side) for side in sides] or [0, 1]
    else:
        raise NmtError(
            f"{where} has {len(names)} columns, {listed}; say with --columns SOURCE,TARGET of nmt clean or nmt "
            f"preprocess which ones to read, or name two of them as their languages"
        )
    score = positions.pop() if len(asked) > 2 else None
    of_texts = tuple(codes[i] if i < len(codes) else "" for i in positions)
    has_header = bool(sides) or all(of_texts) or not by_number
    has_header |= score is not None and score < len(names) and _number(names[score]) is None
    return _Columns(positions, of_texts if has_header else ("",) * len(positions), score, has_header)


def _language(name: str, languages: Sequence[str]) -> str:
    """Returns the code of a column's language, or an empty text if its name is none of these languages."""
    named = (lang for lang in languages if name.lower() == english_name(lang).lower())
    return next(named, name if any(likeliest(lang, [name]) for lang in languages) else "")
