"""The lines of a job's input as units of translation."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nmt.errors import NmtError, naming
from nmt.jobs.source import UnitOfRow
from nmt.jobs.stream import Place, Row
from nmt.text.directions import Direction
from nmt.text.icu import parse_icu
from nmt.text.markup_reading import parse
from nmt.text.words import is_blank
from nmt.translate.units import Unit, UnitMaker


class _EarlierLines:
    """Finds the lines before a line, up to a blank one, in rows that are read in order."""

    def __init__(self, most: int) -> None:
        self._most, self._lines, self._last = most, list[str](), Place("", 0)

    def earlier(self, line: str, place: Place) -> tuple[str, ...]:
        if place != self._last._replace(line=self._last.line + 1):
            self._lines = []
        earlier, self._last = tuple(self._lines), place
        self._lines = [] if is_blank(line) else [*self._lines, line][-self._most :]
        return earlier


def text_units(maker: UnitMaker, *, prefixes: bool, constraints: bool, context: int = 0) -> UnitOfRow:
    """Returns what makes units of lines of text, behind which rows may have a prefix and constraints.

    A line without these may be a message of ICU, whose text alone is translated.

    Args:
        context: the number of earlier lines that a line gets as its context, at most.
    """
    lines = _EarlierLines(context) if context else None

    def unit(row: Row, place: Place) -> Unit:
        line, name = row[0], str(place)
        with naming(name):
            phrases = tuple(filter(None, row[-1].split("\t"))) if constraints else ()
            earlier = lines.earlier(line, place) if lines else ()
            unit = Unit(line, row[1] if prefixes else "", phrases, place=name, earlier=earlier)
            message = parse_icu(line) if len(row) == 1 else None
            if message:
                unit = replace(unit, content=message.content(maker.protected), write=message.written)
            return maker.complete(unit)

    return unit


def html_units(maker: UnitMaker) -> UnitOfRow:
    """Returns what makes units of lines of HTML."""

    def unit(row: Row, place: Place) -> Unit:
        with naming(str(place)):
            content = parse(row[0], "html", maker.protected)
            return maker.complete(Unit(row[0], place=str(place), content=content))

    return unit


def json_units(maker: UnitMaker) -> UnitOfRow:
    """Returns what makes units of JSON objects."""

    def unit(row: Row, place: Place) -> Unit:
        name = str(place)
        fields = parsed_object(row[0], name)
        prefix, constraints = fields.get("prefix") or "", fields.get("constraints") or []
        if not isinstance(prefix, str):
            raise NmtError(f'{name}: "prefix" must be text, but is {prefix!r:.40}')
        if not isinstance(constraints, list) or not all(
            isinstance(phrase, str) for c in constraints for phrase in (c if isinstance(c, list) else [c])
        ):
            raise NmtError(f'{name}: "constraints" must be a list of texts or of lists, but is {constraints!r:.40}')
        with naming(name):
            direction = direction_of(fields, maker.direction)
            unit = Unit(fields["source"], prefix, tuple(constraints), direction, name, fields)
            return maker.complete(replace(unit, earlier=earlier_in(fields)))

    return unit


def direction_of(fields: Mapping[str, Any], default: Direction) -> Direction:
    """Returns the direction in the fields of a line; for a language that they do not name, that of `default`.

    Raises:
        NmtError: a field is not text.
    """
    codes = [fields.get(f"{side}_lang") or code for side, code in default._asdict().items()]
    if not all(isinstance(code, str) for code in codes):
        raise NmtError(f'"source_lang" and "target_lang" must be text, but are {codes!r:.80}')
    return Direction(*codes)


def earlier_in(fields: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the lines before a line that its fields have. Raises NmtError if they are not text."""
    earlier = fields.get("context") or []
    if not isinstance(earlier, list) or not all(isinstance(line, str) for line in earlier):
        raise NmtError(f'"context" must be a list of earlier lines, but is {earlier!r:.40}')
    return tuple(earlier)


def parsed_object(line: str, place: str) -> dict[str, Any]:
    """Returns the JSON object of a line, which has a source."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise NmtError(f"{place} is not JSON ({error}); give one object on each line") from error
    if not isinstance(value, dict) or not isinstance(value.get("source"), str):
        raise NmtError(f'{place} has no text as its "source"; give objects such as {{"source": "…"}}')
    return value
