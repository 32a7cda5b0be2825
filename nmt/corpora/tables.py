"""Entries of tables and JSON, whose columns or fields have numbers or names."""

import csv
import json
import re
import string
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice, takewhile
from typing import Any, NamedTuple

from nmt import console
from nmt.config import names_in
from nmt.corpora.entries import CorpusFile, Entry
from nmt.errors import NmtError
from nmt.text.corpus import table_lines
from nmt.text.languages import base_language, code_named, likeliest
from nmt.text.words import has_letters

_SHOWN = 20  # so many lines show which character separates cells
_BETWEEN = re.compile(r"[\s,\[\]]*")  # values of JSON
# What a name says if it is no language. Of several columns that say one side, the first of these words counts.
_WORDS = """
source: source src input original orig 原文 ausgangstext
target: target tgt trg output edit ref translation translated 译文 譯文 訳文 zieltext
text: text sentence sent segment string line phrase content column
other: id no lang language locale score url file domain type key index label category split pos
"""
_SAID = {kind: words.split() for kind, words in re.findall("(.+): (.+)", _WORDS)}
_KNOWN = "|".join([*_SAID["source"], *_SAID["target"], *_SAID["text"], "language"])
_KNOWN = rf"(?<![^\W_])(?:{_KNOWN})s?(?![^\W_])|原文|[译譯訳]文?"
_SHORT_WORD = re.compile(r"[A-Z][a-z]{1,2}")
_IDENTIFIER = re.compile(r"(?:Unnamed: )?\w*[\d_]\w*")
_MARKS = f" {string.punctuation}"  # around a name


class _Columns(NamedTuple):
    """What the first row of a table says.

    Attributes:
        texts: their positions, and `codes`, their languages.
        score: its position.
        languages: the positions of the columns that say the languages of a row, or of one that says both, as en-de.
        has_header: whether the row names the columns.
        width: how many cells a row has, at most.
    """

    texts: Sequence[int]
    codes: tuple[str, ...]
    score: int | None
    has_header: bool
    width: int
    languages: Sequence[int] = ()


def read_table(corpus: CorpusFile, separators: str = "\t;,") -> Iterator[Entry]:
    """Yields the entries of a table with one of these separators. Quotes between tabs are text, except in UTF-16."""
    table, is_utf_16 = table_lines(corpus.file, corpus.name)
    if separators == "\t" and not is_utf_16:
        yield from _entries(enumerate((line.split("\t") for line in table), start=1), corpus)
        return
    lines, before = (f"{line}\n" for line in table), 0
    first = list(islice(lines, _SHOWN))
    if first and (named := re.fullmatch(r'"?sep=(.)"?\n', first[0])):  # which spreadsheets write and read
        separators, before, first = named[1], 1, first[1:]

    def regularity(separator: str) -> tuple[int, int]:
        """Returns how many rows have the usual number of cells, and that number."""
        widths = Counter[int]()
        with suppress(csv.Error):
            widths.update(map(len, csv.reader(first, delimiter=separator, skipinitialspace=separator != "\t")))
        return max(((count, width) for width, count in widths.items() if width > 1), default=(0, 0))

    separator = max(separators, key=regularity)
    # Some programs write a space before the quotes of a cell.
    reader = csv.reader(chain(first, lines), delimiter=separator, skipinitialspace=separator != "\t", strict=True)
    try:
        yield from _entries(((before + reader.line_num, row) for row in reader), corpus)
    except csv.Error as error:
        where = f"{corpus.name}, line {before + reader.line_num:,}"
        raise NmtError(f"{where}: a cell cannot be read ({error}); check whether its quotes are closed") from error


def _entries(rows: Iterator[tuple[int, Sequence[str]]], corpus: CorpusFile) -> Iterator[Entry]:
    """Yields the entries in the rows of a table, each with the number of its line. The names may follow a title."""
    first = list(islice(rows, _SHOWN))
    said = [_texts(row, corpus.languages) for _, row in first]
    are_comments = [not any(map(str.strip, row)) or row[0].lstrip().startswith("#") for _, row in first]

    def is_pair(row: Sequence[str], texts: Sequence[int]) -> bool:
        return all(i < len(row) and has_letters(row[i]) for i in texts)

    def pairs_before(row: int, texts: Sequence[int]) -> int:
        """Returns how many rows before have text in these columns, and are no comments."""
        return sum(is_pair(first[i][1], texts) for i in range(row) if not are_comments[i])

    names = (i for i, (texts, kinds) in enumerate(said) if texts and all(kinds[j] for j in texts))
    begin = next((i for i in names if pairs_before(i, said[i][0]) < 2), None)  # a title may have two cells
    if begin is None:  # a pair may begin with #
        are_comments = [is_comment and not is_pair(first[i][1], (0, 1)) for i, is_comment in enumerate(are_comments)]
        begin = sum(1 for _ in takewhile(bool, are_comments))
    if comments := sum(are_comments[:begin]):
        corpus.left_out["blank or a comment"] += comments
    if begin > comments:
        corpus.left_out["before the names of the columns"] += begin - comments
    columns = header = None
    for line_number, row in chain(first[begin:], rows):
        where = f"{corpus.name}, line {line_number:,}"
        if columns is None:
            columns = _columns(row, corpus, where)
            header = row if columns.has_header else None
            if not header:
                widths = Counter(len(other) for _, other in first[begin:]).most_common(1)
                least = max(columns.texts) + 1
                columns = columns._replace(width=max([least, len(row), *(width for width, _ in widths)]))
        if row != header:  # tables that were joined repeat it
            yield from _entry(row, columns, corpus, where)


def read_json(corpus: CorpusFile) -> Iterator[Entry]:
    """Yields the entries of objects, on lines or in an array, as data sets of Hugging Face have them."""
    columns_of = dict[tuple[str, ...], _Columns]()  # by the names of the fields
    for line_number, record in _records(corpus):
        where = f"{corpus.name}, line {line_number:,}"
        if not isinstance(record, dict):
            raise NmtError(f"{where} is not an object; write one object on each line, or an array of objects")
        texts = record.get("translation")
        if isinstance(texts, dict) and not corpus.config.columns:
            texts = {name: text for name, text in texts.items() if text is not None}
            codes = tuple(code_named(name, corpus.languages) or name for name in texts)
            if corpus.keeps(record.get("score"), where, "--least-score needs the field score"):
                yield from _entry(
                    list(texts.values()), _Columns(range(len(texts)), codes, None, True, len(texts)), corpus, where
                )
            continue
        fields = record | texts if isinstance(texts, dict) else record
        names = tuple(fields)
        is_first = names not in columns_of
        is_asked = corpus.config.columns or not columns_of
        if is_first:
            asked = names_in(corpus.config.columns) if corpus.config.columns and columns_of else []
            has_columns = is_asked or _texts(names, corpus.languages, are_fields=True)[0]
            if not (has_columns and set(asked) <= set(names)):
                corpus.left_out["without one of the columns"] += 1
                continue
            columns_of[names] = _columns(names, corpus, where, are_fields=True)
        yield from _entry(list(fields.values()), columns_of[names], corpus, where)


def _records(corpus: CorpusFile) -> Iterator[tuple[int, Any]]:
    """Yields the values on lines or in an array, each with the number of the line where it begins."""
    decode, text, line_number, tried_length = json.JSONDecoder().raw_decode, "", 1, 0
    for line in chain(table_lines(corpus.file, corpus.name)[0], [None]):
        text += f"{line or ''}\n"  # in place: an f-string of both would copy the text for each line
        if line is not None and len(text) < 2 * tried_length:  # a value of many lines is not decoded at each of them
            continue
        counted = position = tried_length = 0
        while (position := _BETWEEN.match(text, position).end()) < len(text):  # type: ignore[union-attr]
            line_number, counted = line_number + text.count("\n", counted, position), position
            try:
                value, position = decode(text, position)
            except (ValueError, RecursionError) as error:
                if line is not None and getattr(error, "pos", 0) >= len(text.rstrip()):
                    tried_length = len(text) - position
                    break  # the value ends on another line
                problem = f"{corpus.name}, line {line_number:,} is not JSON ({str(error).partition(':')[0]})"
                raise NmtError(f"{problem}; write one object on each line, or an array of objects") from error
            yield line_number, value
        line_number += text.count("\n", counted, position)
        text = text[position:]


def _entry(row: Sequence[Any], columns: _Columns, corpus: CorpusFile, where: str) -> list[Entry]:
    """Returns the entry of a row, or nothing if it lacks a text, has too many cells or too low a score."""
    texts = [row[i] for i in columns.texts if i < len(row) and isinstance(row[i], str)]
    if len(texts) < len(columns.texts):
        corpus.left_out["without one of the columns"] += 1
        return []
    if any(map(str.strip, row[columns.width :])):
        corpus.left_out["with more cells than others"] += 1
        return []
    score = row[columns.score] if columns.score is not None and columns.score < len(row) else ""
    if columns.score is not None and not corpus.keeps(score, where, "check --columns"):
        return []
    cells = [str(row[i]) for i in columns.languages if i < len(row)]
    named = [code.strip() for cell in cells for code in cell.split("-", 2 - len(columns.languages))]
    return [(tuple(named) if len(named) == len(texts) and all(named) else columns.codes, texts)]


def _number(cell: Any) -> float | None:
    with suppress(TypeError, ValueError):
        return float(cell)
    return None


def _columns(header: Sequence[str], corpus: CorpusFile, where: str, *, are_fields: bool = False) -> _Columns:
    """Returns what the first line of a table, or the names of the fields in JSON, say about the columns."""
    names = [" ".join(name.split()) for name in header]
    texts, kinds = _texts(names, corpus.languages, are_fields=are_fields)
    asked = names_in(corpus.config.columns) if corpus.config.columns else []
    by_number = all(column.isdecimal() for column in asked)
    listed, lowered = f"{', '.join(names):.200}", [name.lower() for name in names]
    if not by_number and (missing := [column for column in asked if column not in names]):
        raise NmtError(f"{where} has no column {missing[0]!r:.40}, but {listed}; check --columns")
    # Two columns that are not named may begin with text, which does not look like names.
    are_names = all(kind or _IDENTIFIER.fullmatch(name) for name, kind in zip(names, kinds, strict=True))
    are_names = are_names and len(set(lowered)) > 1
    if not (asked or texts) and (are_fields or len(names) > 2 or are_names or set(kinds) - {"text", "other", ""}):
        problem = f"{where} has the columns {listed}, which do not say what is the source and what the target"
        advice = f"call them {' and '.join(corpus.languages[:2])}, or give --columns SOURCE,TARGET of nmt clean or"
        raise NmtError(f"{problem}; {advice} nmt preprocess: names, or numbers if this line is text")
    positions = [int(column) - 1 if by_number else names.index(column) for column in asked] or texts or [0, 1]
    score = positions.pop() if len(asked) > 2 else lowered.index("score") if not asked and "score" in lowered else None
    if corpus.config.least_score is not None and score is None:
        raise NmtError(f"{where} has no column score for --least-score; give --columns SOURCE,TARGET,SCORE")
    has_header = bool(texts) or not by_number
    has_header |= score is not None and score < len(names) and _number(names[score]) is None
    if has_header and texts and not asked and not all(kinds[i] for i in texts):
        console.info(f"{where} is taken for the names of the columns: {listed}")
    codes = {i: kind for i, kind in enumerate(kinds) if has_header and kind not in (*_SAID, "")}
    if asked and len(corpus.languages) == 2:  # the order of --columns says more than the names
        codes = {}
    sides = ("|".join(_SAID[side]) for side in ("source", "target"))
    wanted = [rf"(?:{side})[ _-]?lang(?:uage)?" for side in sides]
    said = [[i for i, name in enumerate(lowered) if re.fullmatch(pattern, name)] for pattern in (*wanted, "lp")]
    languages = [*said[0][:1], *said[1][:1]] if said[0] and said[1] else said[2][:1]
    languages = languages if has_header and not codes else []
    return _Columns(positions, tuple([codes.get(i, "") for i in positions]), score, has_header, len(header), languages)


def _texts(names: Sequence[str], languages: Sequence[str], *, are_fields: bool = False) -> tuple[list[int], list[str]]:
    """Returns the positions of the columns with the texts, if the names say it, and what each of them says."""
    said = [_kind(name, languages, is_field=are_fields) for name in names]
    kinds = [kind for kind, _ in said]
    # "Hi" and "He" are codes of languages, but rather words at the beginning of a table without names.
    if len(names) == 2 and not are_fields and "" in kinds and any(map(_SHORT_WORD.fullmatch, names)):
        return [], ["", ""]
    best = dict[str, int]()  # the column that says it most clearly, if there is one
    for kind in dict.fromkeys(kinds):
        ranked = sorted((rank, i) for i, (other, rank) in enumerate(said) if other == kind)
        if len(ranked) == 1 or ranked[0][0] < ranked[1][0]:
            best[kind] = ranked[0][1]
    codes = [kind for kind in best if kind not in (*_SAID, "")]
    others = [kind for kind in kinds if kind in ("source", "target", "text", "")]
    texts = list[str]()
    if len(codes) > 1 and len([lang for lang in languages if likeliest(lang, codes)]) > 1:
        texts = codes
    elif len(codes) == len(others) == 1 and (others[0] or (len(names) == 2 and not are_fields)):
        # One language decides what the other is, but "de" and "it" may be the first words of a dictionary, too.
        is_word = not others[0] and re.fullmatch("[a-z]{2,3}", names[kinds.index(codes[0])])
        texts = [] if is_word else [*codes, *others]
    elif set(kinds) <= {*_SAID, ""} and "target" in best:
        texts = next(([side, "target"] for side in ("source", "text") if side in best), [])
    return [best[kind] for kind in texts], kinds


def _kind(name: str, languages: Sequence[str], *, is_field: bool) -> tuple[str, int]:
    """Returns what a name says, and its rank among names that say the same, of which the lowest counts.

    It says the code of a language that is asked for, a key of _SAID, or nothing. The name may be text.
    """
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).strip(_MARKS)
    words = [word.removesuffix("s") for word in re.findall(r"[^\W_]+", name.lower())]
    bare = re.sub(_KNOWN, " ", name, flags=re.IGNORECASE).strip(_MARKS)
    is_identifier = is_field or not re.search(r"\s", name)  # any of its words counts
    parts = [name, bare, *re.split(r"[\s_./:|]+" if is_identifier else " [-/:|] ", bare)]
    codes = [code for part in parts if (code := code_named(part, languages))]
    for code in codes:
        if any(likeliest(lang, [code]) for lang in languages):
            language, *subtags = re.split("[-_]", code)
            rank = 2 if name.lower() in _SAID["other"] else int(code_named(name, languages) != code)
            return "-".join([base_language(language), *subtags]), rank
    if codes or not words or not set(words).isdisjoint(_SAID["other"]):
        return "other", 0
    both = ("source", "target")
    sides = {side: _SAID[side].index(word) for side in both for word in words if word in _SAID[side]}
    if len(sides) == 1 and (is_identifier or not bare):
        return next((side, 2 * index + (len(words) > 1)) for side, index in sides.items())
    return "text" if set(words) <= set(_SAID["text"]) else "", 0
