"""How an option is declared, checked, and named as a flag: what the configurations are made with."""

import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, asdict, field, fields
from typing import Any, Literal, Self, get_args, get_origin

from nmt.errors import NmtError

_LARGEST = 2**31 - 1  # what any library below takes for an integer


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
    """Raises NmtError, naming the flag, if `value` is outside the field's range or choices."""
    flag = flag_name(declared.name)
    if get_origin(declared.type) is Literal and value not in get_args(declared.type):
        raise NmtError(f"{flag} must be one of {', '.join(get_args(declared.type))}, but is {value!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise NmtError(f"{flag} must be a finite number, but is {value}")
    if isinstance(value, int) and value > _LARGEST:
        raise NmtError(f"{flag} must be at most {_LARGEST}, but is {value}")
    limits: dict[str, float] = declared.metadata["limits"]
    if value is None or all(_satisfies(value, *limit) for limit in limits.items()):
        return
    wanted = " and ".join(f"{relation} {bound:g}" for relation, bound in limits.items())
    raise NmtError(f"{flag} must be {wanted}, but is {value}")


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
            NmtError: a field is missing or unknown; names the fields and `origin`, the file they were read from.
        """
        declared = {f.name: f for f in fields(cls)}  # type: ignore[arg-type]
        missing = [n for n, f in declared.items() if n not in values and f.default is MISSING]
        unknown = [n for n in values if n not in declared]
        if missing or unknown:
            found = [f"{n} missing" for n in missing] + [f"{n} unknown" for n in unknown]
            raise NmtError(
                f"{origin} was written by another version of nmt ({cls.__name__}: {', '.join(found)}); "
                f"read it with that version or make it anew"
            )
        return cls(**values)
