"""Declares options as dataclass fields, checks their values, and names their flags. `nmt.config` has the options."""

import math
import operator
from collections.abc import Mapping
from dataclasses import MISSING, Field, asdict, field, fields
from functools import partial
from reprlib import repr as shortened
from textwrap import shorten
from types import NoneType, UnionType
from typing import Any, Literal, Self, get_args, get_origin

from nmt.errors import NmtError

# The section of a help page that is shown first.
MAIN_PANEL = "Options"
# More processes than any machine can run.
MOST_PROCESSES = 1024
_LARGEST = 2**31 - 1  # the largest integer that all libraries accept
_LONGEST_LIST = 500  # characters in a message
_RELATIONS = {"at least": operator.ge, "above": operator.gt, "at most": operator.le, "below": operator.lt}
# For each declared type: the types that a value may have, and their description in messages.
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
    """Returns a dataclass field that declares an option."""
    bounds = {"at least": at_least, "above": above, "at most": at_most, "below": below}
    limits = {name: bound for name, bound in bounds.items() if bound is not None}
    return field(default=default, metadata={"help": help, "panel": panel, "limits": limits})


# Options of several modules, in one section of the help page.
hardware_option = partial(option, panel="Hardware")


def flag_name(field_name: str) -> str:
    """Returns the flag of a field: `d_ff` becomes `--d-ff`."""
    return "--" + field_name.replace("_", "-")


def check_field(declared: Field[Any], value: Any) -> None:
    """Raises an error if a field may not have this value. If the value is a tuple, each item is checked."""
    check_type(declared, value)
    flag, limits = flag_name(declared.name), declared.metadata.get("limits", {})
    for item in value if isinstance(value, tuple) else (value,):
        _check_range(flag, item, limits)


def check_type(declared: Field[Any], value: Any) -> None:
    """Raises an error if the type of a field's value is wrong, or if the value is not one of the field's choices."""
    kinds = get_args(declared.type) if isinstance(declared.type, UnionType) else (declared.type,)
    if value is None and NoneType in kinds:
        return
    flag = flag_name(declared.name)
    kind = kinds[0]
    if get_origin(kind) is not tuple:
        _check_item_type(flag, kind, value)
        return
    if not isinstance(value, tuple):
        raise NmtError(f"{flag} must be a list in brackets, but is {shortened(value)}")
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
    if value is None or all(_RELATIONS[name](value, bound) for name, bound in limits.items()):
        return
    allowed = " and ".join(f"{relation} {bound}" for relation, bound in limits.items())
    raise NmtError(f"{flag} must be {allowed}, but is {shortened(value)}")


class Config:
    """The base class of all configurations. It checks the fields and converts them to and from plain data."""

    def __post_init__(self) -> None:
        for declared in fields(self):  # type: ignore[arg-type]
            check_field(declared, getattr(self, declared.name))

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as plain data."""
        return asdict(self)  # type: ignore[call-overload]

    def changed_from(self, other: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
        """Returns the fields that differ from an earlier configuration: name, earlier value, present value.

        Args:
            other: the `to_dict` of the earlier configuration. Fields that it does not have had their default then.
                Lists, which come from JSON, stand for tuples.
        """
        present = self.to_dict()
        other = {name: tuple(value) if isinstance(value, list) else value for name, value in other.items()}
        defaults = {f.name: f.default for f in fields(self) if f.default is not MISSING}  # type: ignore[arg-type]
        earlier = defaults | {name: other[name] for name in present if name in other}
        return [(name, earlier[name], present[name]) for name in earlier if earlier[name] != present[name]]

    @classmethod
    def from_dict(cls, values: Any, origin: str) -> Self:
        """Returns the configuration for what `to_dict` returned. The values are not trusted; lists stand for tuples.

        Raises:
            NmtError: a field is missing, unknown or has a wrong value. The message names the field and `origin`.
        """
        declared = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
        given = values if isinstance(values, Mapping) else {}
        values = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
        missing = [name for name, field in declared.items() if name not in values and field.default is MISSING]
        unknown = [name for name in values if name not in declared]
        if missing or unknown:
            found = [f"{name} missing" for name in missing] + [f"{name!r:.40} unknown" for name in unknown]
            raise NmtError(
                f"{origin} was written by another version of nmt "
                f"({cls.__name__}: {shorten(', '.join(found), _LONGEST_LIST, placeholder=' …')}); "
                f"read it with that version or make it again"
            )
        try:
            return cls(**values)
        except NmtError as error:
            raise NmtError(f"{origin} cannot be used: {error}") from error
