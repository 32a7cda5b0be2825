"""How an option is declared, checked, and named as a flag: what the configurations are made with."""

import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, asdict, field, fields
from reprlib import repr as shortened
from textwrap import shorten
from types import NoneType, UnionType
from typing import Any, Literal, Self, get_args, get_origin

from nmt.errors import NmtError

# More processes than any machine runs.
MOST_PROCESSES = 1024
_LARGEST = 2**31 - 1  # the largest integer that every library below accepts
_LONGEST_LIST = 500  # characters in a message
# For each declared type, which types a value may have, and how a message calls them.
_KINDS: dict[type, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    float: ((float, int), "a number"),
    str: ((str,), "text"),
}


def option(
    default: Any = MISSING,
    *,
    help: str,
    panel: str,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
) -> Any:
    """A dataclass field that carries its flag's help text, help panel and range."""
    bounds = {"at least": at_least, "above": above, "at most": at_most, "below": below}
    limits = {name: bound for name, bound in bounds.items() if bound is not None}
    return field(default=default, metadata={"help": help, "panel": panel, "limits": limits})


def flag_name(field_name: str) -> str:
    """`d_ff` -> `--d-ff`."""
    return "--" + field_name.replace("_", "-")


def _satisfies(value: float, relation: str, bound: float) -> bool:
    return {
        "at least": value >= bound,
        "above": value > bound,
        "at most": value <= bound,
        "below": value < bound,
    }[relation]


def check_field(declared: Field[Any], value: Any) -> None:
    """Raises NmtError, naming the flag, if `value`, or an item of it, is not of the field's type, choices or range."""
    check_type(declared, value)
    flag, limits = flag_name(declared.name), declared.metadata["limits"]
    for item in value if isinstance(value, tuple) else (value,):
        _check_range(flag, item, limits)


def check_type(declared: Field[Any], value: Any) -> None:
    """Raises NmtError, naming the flag, if `value` is not of the field's type or choices."""
    kinds = get_args(declared.type) if isinstance(declared.type, UnionType) else (declared.type,)
    if value is None and NoneType in kinds:
        return
    flag, kind = flag_name(declared.name), kinds[0]
    if get_origin(kind) is not tuple:
        _check_item_type(flag, kind, value)
        return
    if not isinstance(value, tuple):
        raise NmtError(f"{flag} must be a tuple, but is {shortened(value)}")
    for item in value:
        _check_item_type(flag, get_args(kind)[0], item)


def _check_item_type(flag: str, kind: Any, value: Any) -> None:
    if get_origin(kind) is Literal:
        if not isinstance(value, str) or value not in get_args(kind):
            raise NmtError(f"{flag} must be one of {', '.join(get_args(kind))}, but is {shortened(value)}")
        return
    accepted, name = _KINDS[kind]
    if type(value) not in accepted:
        raise NmtError(f"{flag} must be {name}, but is {shortened(value)}")
    if isinstance(value, str) and "\0" in value:
        raise NmtError(f"{flag} must not contain a NUL character, but is {shortened(value)}")


def _check_range(flag: str, value: Any, limits: Mapping[str, float]) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise NmtError(f"{flag} must be a finite number, but is {value}")
    if isinstance(value, int) and value > _LARGEST:
        raise NmtError(f"{flag} must be at most {_LARGEST}, but is {shortened(value)}")
    if value is None or all(_satisfies(value, *limit) for limit in limits.items()):
        return
    wanted = " and ".join(f"{relation} {bound}" for relation, bound in limits.items())
    raise NmtError(f"{flag} must be {wanted}, but is {shortened(value)}")


class Config:
    """What all configurations share: checked when made, and to and from plain data."""

    def __post_init__(self) -> None:
        for declared in fields(self):  # type: ignore[arg-type]
            check_field(declared, getattr(self, declared.name))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)  # type: ignore[call-overload]

    def changed_from(self, then: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
        """Name, value then and value now of every field whose value was another in `then`, what `to_dict` gave."""
        now = self.to_dict()
        return [(name, then[name], now[name]) for name in now if name in then and then[name] != now[name]]

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], origin: str) -> Self:
        """The inverse of `to_dict`.

        Raises:
            NmtError: a field is missing, unknown or has a wrong value; names it and `origin`, the file it is from.
        """
        declared = {f.name: f for f in fields(cls)}  # type: ignore[arg-type]
        missing = [n for n, f in declared.items() if n not in values and f.default is MISSING]
        unknown = [n for n in values if n not in declared]
        if missing or unknown:
            found = [f"{n} missing" for n in missing] + [f"{n!r:.40} unknown" for n in unknown]
            raise NmtError(
                f"{origin} was written by another version of nmt "
                f"({cls.__name__}: {shorten(', '.join(found), _LONGEST_LIST, placeholder=' …')}); "
                f"read it with that version or make it anew"
            )
        try:
            return cls(**values)
        except NmtError as error:
            raise NmtError(f"{origin} cannot be used: {error}") from error
