"""Units of tables and JSON lines, whose columns or fields have numbers or names."""

import csv
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import IO, Any, NamedTuple

from nmt.config import CorpusConfig
from nmt.corpora.units import Unit
from nmt.errors import NmtError
from nmt.text.corpus import decoded_lines
from nmt.text.languages import english_name, likeliest

_SHOWN = 20  # so many lines show which character separates cells
_SIDES = (["source", "target"], ["src", "tgt"])


class _Columns(NamedTuple):
    """Which columns are read: the positions of the texts, their languages, and the position of the score."""

    texts: list[int]
    codes: tuple[str, ...]
    score: int | None
    has_header: bool


def read_tsv(
    file: IO[bytes], name: str, config: CorpusConfig, left_out: Counter[str], languages: Sequence[str]
) -> Iterator[Unit]:
    """Yields the units of a table with tabs between cells. Quotes are text."""
    rows = ((number, line.split("\t")) for number, line in enumerate(decoded_lines(file, name), start=1))
    return _units(rows, name, config, left_out, languages)


def read_csv(
    file: IO[bytes], name: str, config: CorpusConfig, left_out: Counter[str], languages: Sequence[str]
) -> Iterator[Unit]:
    """Yields the units of a table with commas, semicolons or tabs between cells. Quotes enclose cells."""
    lines = (f"{line}\n" for line in decoded_lines(file, name))
    first = list(islice(lines, _SHOWN))

    def regularity(separator: str) -> tuple[int, int]:
        """Returns how many rows have the usual number of cells, and that number."""
        widths = Counter(len(row) for row in csv.reader(first, delimiter=separator) if len(row) > 1)
        (width, count), *_ = widths.most_common(1) or [(0, 0)]
        return count, width

    reader = csv.reader(chain(first, lines), delimiter=max(",;\t", key=regularity))

    def rows() -> Iterator[tuple[int, list[str]]]:
        number = 1
        try:
            for row in reader:
                yield number, row
                number = reader.line_num + 1
        except csv.Error as error:
            raise NmtError(
                f"{name}, line {number:,}: a cell cannot be read ({error}); check whether its quotes are closed"
            ) from error

    return _units(rows(), name, config, left_out, languages)


def _units(
    rows: Iterator[tuple[int, list[str]]],
    name: str,
    config: CorpusConfig,
    left_out: Counter[str],
    languages: Sequence[str],
) -> Iterator[Unit]:
    first = next(rows, (1, []))
    columns = _columns(first[1], config, languages, f"{name}, line {first[0]:,}")
    for number, row in rows if columns.has_header else chain([first], rows):
        yield from _unit(row, columns, config, left_out, f"{name}, line {number:,}")


def read_json_lines(
    file: IO[bytes], name: str, config: CorpusConfig, left_out: Counter[str], languages: Sequence[str]
) -> Iterator[Unit]:
    """Yields the units of a file with an object on each line, as data sets of Hugging Face have them."""
    columns_of = dict[tuple[str, ...], _Columns]()
    for number, line in enumerate(decoded_lines(file, name), start=1):
        where = f"{name}, line {number:,}"
        try:
            record = json.loads(line or "{}")
        except (ValueError, RecursionError) as error:
            raise NmtError(f"{where} is not JSON ({error}); write one object on each line") from error
        if not isinstance(record, dict):
            raise NmtError(f"{where} is not an object; write one object on each line, such as with jq -c '.[]'")
        texts = record.get("translation")
        fields = record | texts if isinstance(texts, dict) and config.columns else texts or record
        names = tuple(fields)
        if not (fields is texts or names in columns_of):
            columns_of[names] = _columns(names, config, languages, where)
        columns = columns_of.get(names) or _Columns(list(range(len(names))), names, None, True)
        yield from _unit(list(fields.values()), columns, config, left_out, where)


def _unit(
    row: Sequence[Any], columns: _Columns, config: CorpusConfig, left_out: Counter[str], where: str
) -> list[Unit]:
    """Returns the unit of a row, or nothing if it has no text or too low a score."""
    texts = [row[place] for place in columns.texts if place < len(row)]
    if len(texts) < len(columns.texts) or not all(isinstance(text, str) for text in texts):
        left_out["with too few columns"] += 1
        return []
    if config.least_score is not None:
        cell = row[columns.score] if columns.score is not None and columns.score < len(row) else ""
        score = _number(cell)
        if score is None:
            raise NmtError(f"{where} has the score {cell!r:.40}, which is not a number; check --columns")
        if score < config.least_score:
            left_out[f"with a score below {config.least_score}"] += 1
            return []
    return [(columns.codes, texts)]


def _number(cell: Any) -> float | None:
    try:
        return float(cell)
    except (TypeError, ValueError):
        return None


def _columns(header: Sequence[str], config: CorpusConfig, languages: Sequence[str], where: str) -> _Columns:
    """Returns what the first line of a table, or the names of the fields in JSON, say about the columns."""
    names = [name.strip() for name in header]
    lower, codes = [name.lower() for name in names], [_language(name, languages) for name in names]
    sides = next((pair for pair in _SIDES if set(pair) <= set(lower)), [])
    named = config.columns.split(",") if config.columns else []
    by_number = all(column.isdecimal() for column in named)
    if named and by_number:
        places = [int(column) - 1 for column in named]
    elif missing := [column for column in named if column not in names]:
        raise NmtError(f"{where} has no column {missing[0]!r:.40}, but {_listed(names)}; check --columns")
    elif named:
        places = [names.index(column) for column in named]
    elif len(set(filter(None, codes))) > 1:
        places = [place for place, code in enumerate(codes) if code]
    elif sides or len(names) <= 2:
        places = [lower.index(side) for side in sides] or [0, 1]
    else:
        raise NmtError(
            f"{where} has {len(names)} columns, {_listed(names)}; say with --columns SOURCE,TARGET which ones to read"
        )
    texts, score = (places[:2], [*places, None][2]) if named else (places, None)
    of_texts = tuple(codes[place] if place < len(codes) else "" for place in texts)
    has_header = not by_number or bool(sides) or all(of_texts)
    has_header |= score is not None and score < len(names) and _number(names[score]) is None
    return _Columns(texts, of_texts if has_header else ("",) * len(texts), score, has_header)


def _language(name: str, languages: Sequence[str]) -> str:
    """Returns the code of a column's language, or an empty text if its name is none of these languages."""
    named = (lang for lang in languages if name.lower() == english_name(lang).lower())
    return next(named, name if any(likeliest(lang, [name]) for lang in languages) else "")


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names):.100}" or "no names"
