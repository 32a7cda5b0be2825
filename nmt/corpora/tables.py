"""Units of tables and JSON, whose columns or fields have numbers or names."""

import csv
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from typing import Any, NamedTuple

from nmt.config import names_in
from nmt.corpora.units import CorpusFile, Unit
from nmt.errors import NmtError
from nmt.text.corpus import table_lines
from nmt.text.languages import code_named, likeliest

_SHOWN = 20  # so many lines show which character separates cells
_BETWEEN = re.compile(r"[\s,\[\]]*")  # values of JSON
# What a name says if it is no language: a side, that there is text, something else, or nothing known.
_KINDS = ("source", "text", "target", "other", "")
_PAIRS = (("source", "target"), ("src", "tgt"), ("src", "trg"), ("input", "output"), ("original", "translation"))
_SIDES = {word: side for pair in _PAIRS for word, side in zip(pair, _PAIRS[0], strict=True)}
_TEXT = {"text", "texts", "sentence", "sentences", "sent", "segment", "string", "line", "phrase", "content", "column"}
_OTHER = {"id", "lang", "language", "locale", "score", "url", "file", "domain", "type", "key", "index", "label"}
_KNOWN = re.compile(rf"(?<![^\W_])(?:{'|'.join([*_TEXT, *_SIDES, 'language'])})(?![^\W_])", re.IGNORECASE)
_IDENTIFIER = re.compile(r"(?:Unnamed: )?\w*[\d_]\w*")


class _Columns(NamedTuple):
    """The positions of the texts, their languages, the position of the score, and whether the first row names them."""

    texts: Sequence[int]
    codes: tuple[str, ...]
    score: int | None
    has_header: bool


def read_table(corpus: CorpusFile, separators: str = ",;\t") -> Iterator[Unit]:
    """Yields the units of a table whose cells have one of these characters between them.

    Quotes enclose cells. Between tabs, they are text, except in UTF-16.
    """
    table, is_utf_16 = table_lines(corpus.file, corpus.name)
    if separators == "\t" and not is_utf_16:
        yield from _units(enumerate((line.split("\t") for line in table), start=1), corpus)
        return
    lines, before = (f"{line}\n" for line in table), 0
    first = list(islice(lines, _SHOWN))
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
            is_comment = not any(map(str.strip, row)) or row[0].lstrip().startswith("#")
            is_unclear = "" in (_kind(name, corpus.languages, is_field=False) for name in row)
            if is_comment and (is_unclear or not _texts(row, corpus.languages)):
                corpus.left_out["blank or a comment"] += 1
                continue
            columns = _columns(row, corpus, where)
            if columns.has_header:
                continue
        yield from _unit(row, columns, corpus, where)


def read_json(corpus: CorpusFile) -> Iterator[Unit]:
    """Yields the units of objects, on lines or in an array, as data sets of Hugging Face have them."""
    columns_of = dict[tuple[str, ...], _Columns]()  # by the names of the fields
    for line_number, record in _records(corpus):
        where = f"{corpus.name}, line {line_number:,}"
        if not isinstance(record, dict):
            raise NmtError(f"{where} is not an object; write one object on each line, or an array of objects")
        texts = record.get("translation")
        if isinstance(texts, dict) and not corpus.config.columns:
            codes = tuple(code_named(name, corpus.languages) or name for name in texts)
            yield from _unit(list(texts.values()), _Columns(range(len(texts)), codes, None, True), corpus, where)
            continue
        fields = record | texts if isinstance(texts, dict) else record
        names = tuple(fields)
        if names not in columns_of:
            if columns_of and not corpus.config.columns and not _texts(names, corpus.languages, are_fields=True):
                corpus.left_out["without one of the columns"] += 1
                continue
            columns_of[names] = _columns(names, corpus, where, are_fields=True)
        yield from _unit(list(fields.values()), columns_of[names], corpus, where)


def _records(corpus: CorpusFile) -> Iterator[tuple[int, Any]]:
    """Yields the values on lines or in an array, each with the number of the line where it begins."""
    decode, text, begin = json.JSONDecoder().raw_decode, "", 1
    for line_number, line in enumerate(chain(table_lines(corpus.file, corpus.name)[0], [None]), start=1):
        begin = begin if text else line_number
        text, position = f"{text}{line or ''}\n", 0
        while (position := _BETWEEN.match(text, position).end()) < len(text):  # type: ignore[union-attr]
            try:
                value, position = decode(text, position)
            except (ValueError, RecursionError) as error:
                if line is not None and getattr(error, "pos", 0) >= len(text.rstrip()):
                    break  # the value ends on another line
                reason, advice = str(error).partition(":")[0], "write one object on each line, or an array of objects"
                raise NmtError(f"{corpus.name}, line {begin:,} is not JSON ({reason}); {advice}") from error
            yield begin, value
            begin = line_number
        text = text[position:]


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


def _columns(header: Sequence[str], corpus: CorpusFile, where: str, *, are_fields: bool = False) -> _Columns:
    """Returns what the first line of a table, or the names of the fields in JSON, say about the columns."""
    names = [" ".join(name.split()) for name in header]
    kinds = [_kind(name, corpus.languages, is_field=are_fields) for name in names]
    texts = _texts(names, corpus.languages, are_fields=are_fields)
    asked = names_in(corpus.config.columns) if corpus.config.columns else []
    by_number = all(column.isdecimal() for column in asked)
    listed = f"{', '.join(names):.100}"
    if not by_number and (missing := [column for column in asked if column not in names]):
        raise NmtError(f"{where} has no column {missing[0]!r:.40}, but {listed}; check --columns")
    if asked:
        positions = [int(column) - 1 if by_number else names.index(column) for column in asked]
    elif texts or not (are_fields or len(names) > 2 or _is_header(names, kinds)):
        positions = texts or [0, 1]
    else:
        raise NmtError(
            f"{where} has the columns {listed}, which do not say what is the source and what the target; call them "
            f"{' and '.join(corpus.languages[:2])}, or give --columns SOURCE,TARGET of nmt clean or nmt preprocess: "
            f"names, or numbers if this line is text"
        )
    score = positions.pop() if len(asked) > 2 else None
    has_header = bool(texts) or not by_number
    has_header |= score is not None and score < len(names) and _number(names[score]) is None
    codes = [kinds[i] if has_header and i < len(names) and kinds[i] not in _KINDS else "" for i in positions]
    return _Columns(positions, tuple(codes), score, has_header)


def _texts(names: Sequence[str], languages: Sequence[str], *, are_fields: bool = False) -> list[int]:
    """Returns the positions of the columns with the texts; none if their names do not say it.

    A name that only says a language counts more than one with other words. One language decides what the other is.
    """
    for is_whole in (True, False):
        kinds = [_kind(name, languages, is_field=are_fields, is_whole=is_whole) for name in names]
        named = [i for i, kind in enumerate(kinds) if kind not in _KINDS]
        if len({kinds[i].lower() for i in named}) == len(named) > 1:
            return named
        lower = [name.lower() for name in names]
        if pair := next((pair for pair in _PAIRS if set(pair) <= set(lower)), None):
            return [lower.index(side) for side in pair]
    sides = [i for i, kind in enumerate(kinds) if kind in ("source", "target")]
    texts = [i for i, kind in enumerate(kinds) if kind == "text"]
    if len(named) == 1:
        unknown = [i for i, kind in enumerate(kinds) if not kind and len(names) == 2 and not are_fields]
        others = sides or texts or unknown
        return [*named, *others] if len(others) == 1 else []
    both = sides if len(sides) > 1 else sides + texts
    is_clear = not named and sides and len({kinds[i] for i in both}) == len(both) == 2
    return sorted(both, key=lambda i: _KINDS.index(kinds[i])) if is_clear else []


def _kind(name: str, languages: Sequence[str], *, is_field: bool, is_whole: bool = False) -> str:
    """Returns what a name says: the code of a language that is asked for, or one of _KINDS.

    The first line of a table may be text, a field is not. With `is_whole`, no other words count in names of languages.
    """
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.strip("# "))
    words = set(re.findall(r"[^\W_]+", name.lower()))
    bare = name if is_whole else _KNOWN.sub(" ", name).strip(" _.:/()[]-")
    is_identifier = is_field or not re.search(r"\s", name)  # any of its words counts
    parts = [bare, *re.split(r"[\s_.]+", bare)] if is_identifier and not is_whole else [bare]
    codes = [code for part in parts if (code := code_named(part, languages))]
    asked = [code for code in codes if any(likeliest(lang, [code]) for lang in languages)]
    if asked or codes or words & _OTHER or not words:
        return asked[0] if asked else "other"
    sides = {_SIDES[word] for word in words if word in _SIDES}
    if sides and (is_identifier or not bare):
        return sides.pop() if len(sides) == 1 else ""
    return "text" if words <= _TEXT else ""


def _is_header(names: Sequence[str], kinds: Sequence[str]) -> bool:
    """Returns whether the first line of a table cannot be text, although it does not say the sides."""
    are_names = all(kind or _IDENTIFIER.fullmatch(name) for name, kind in zip(names, kinds, strict=True))
    are_different = len({name.lower() for name in names}) > 1
    return (are_names and are_different) or not {"text", "other", ""}.issuperset(kinds)
