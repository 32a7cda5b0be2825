"""Declares options as dataclass fields, checks their values, and names their flags. `nmt.config` has the options."""

import math
import operator
from collections.abc import Mapping
from dataclasses import MISSING, Field, asdict, field, fields
from reprlib import repr as shortened
from types import UnionType
from typing import Annotated, Any, Literal, Self, Union, get_args, get_origin

from nmt.errors import NmtError, OptionError

# More processes than any machine can run.
MOST_PROCESSES = 1024
# The largest numbers that all libraries accept.
_LARGEST = {int: 2**31 - 1, float: 1e30}
_RELATIONS = {"at_least": operator.ge, "above": operator.gt, "at_most": operator.le, "below": operator.lt}
# The names of types in messages.
_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
# Types of fields with limits, in the form of those of `option`.
Natural = Annotated[int, ("at_least", 0)]
Count = Annotated[int, ("at_least", 1)]
Processes = Annotated[int, ("at_least", 1), ("at_most", MOST_PROCESSES)]
Positive = Annotated[float, ("above", 0)]
Share = Annotated[float, ("at_least", 0), ("at_most", 1)]
Probability = Annotated[float, ("at_least", 0), ("below", 1)]


def option(
    default: Any = MISSING,
    help: str = "",
    *,
    panel: str = "",
    off: str = "",
    needs: str = "",
    excludes: str = "",
    checkpoint: bool = False,
    **limits: float,
) -> Any:
    """Returns a dataclass field that declares an option.

    Args:
        panel: the section of the help page that lists the option; by default, that of the class.
        off: the flag for false; by default, `--no-` and the name.
        needs: options, separated by spaces, of which one must be given if this one is: names of fields, which are
            given if they differ from their defaults, or a name with a value, such as `tokenizer=moses`.
        excludes: options, in the same form, of which none may be given if this one is.
        checkpoint: whether the values are checkpoints, in place of which names of published models may stand.
        limits: the smallest and the largest value of a number, by `at_least` or `above`, and `at_most` or `below`,
            besides those of the type.
    """
    relations = {"needs": needs.split(), "excludes": excludes.split()}
    details = {"help": help, "panel": panel, "off": off, "checkpoint": checkpoint, "limits": limits}
    return field(default=default, metadata=details | relations)


def _plain_type(kind: Any) -> tuple[Any, dict[str, float]]:
    """Returns the type of a field without its limits, and these: `int | None` for `Count | None`."""
    inner = get_args(kind)[0] if get_origin(kind) is Union else kind
    if get_origin(inner) is not Annotated:
        return kind, {}
    plain = get_args(inner)[0]
    return plain if inner is kind else plain | None, dict(inner.__metadata__)


def flag_name(field_name: str) -> str:
    """Returns the flag of a field: `d_ff` becomes `--d-ff`."""
    return "--" + field_name.replace("_", "-")


def check_field(declared: Field[Any], value: Any) -> None:
    """Raises an error if a field may not have this value. If its type is a tuple, each item is checked."""
    flag, limits = flag_name(declared.name), declared.metadata.get("limits", {})
    kind, *optional = get_args(declared.type) if isinstance(declared.type, UnionType) else (declared.type,)
    if value is None and optional:
        return
    if value == "" or (value == () and declared.default != ()):
        raise NmtError(f"{flag} is empty; give a value" + ("" if declared.default is MISSING else " or leave it out"))
    items = (value,)
    if get_origin(kind) is tuple:
        if not isinstance(value, tuple):
            raise NmtError(f"{flag} must be a list in brackets, but is {shortened(value)}")
        kind, items = get_args(kind)[0], value
    for item in items:
        if get_origin(kind) is Literal:
            if item not in get_args(kind):
                raise NmtError(f"{flag} must be one of {', '.join(get_args(kind))}, but is {shortened(item)}")
        elif type(item) is not kind and not (kind is float and type(item) is int):
            raise NmtError(f"{flag} must be {_NAMES[kind]}, but is {shortened(item)}")
        elif kind is str and "\0" in item:
            raise NmtError(f"{flag} must not contain a NUL character, but is {shortened(item)}")
        elif type(item) is float and not math.isfinite(item):
            raise NmtError(f"{flag} must be a finite number, but is {item}")
        elif not all(_RELATIONS[name](item, bound) for name, bound in limits.items()):
            allowed = " and ".join(f"{name.replace('_', ' ')} {bound}" for name, bound in limits.items())
            raise NmtError(f"{flag} must be {allowed}, but is {shortened(item)}")
        elif kind in _LARGEST and item > _LARGEST[kind]:
            raise NmtError(f"{flag} must be at most {_LARGEST[kind]}, but is {shortened(item)}")


def check_relations(*configs: "Config") -> None:
    """Raises an error if an option was given without another one that it needs, or with one that it excludes.

    Relations to options that none of the `configs` has are ignored.
    """
    options = [
        (declared, getattr(config, declared.name))
        for config in configs
        for declared in fields(config)  # type: ignore[arg-type]
        if declared.metadata  # fields of the text processing are not options
    ]
    given: dict[str, str] = {}  # as in `needs` and `excludes`, and as on the command line
    for declared, value in options:
        flag, items = flag_name(declared.name), value if isinstance(value, tuple) else (value,)
        given |= {f"{declared.name}={item}": f"{flag} {item}" for item in items}
        if value is False:
            flag = declared.metadata["off"] or flag_name(f"no_{declared.name}")
        if value != declared.default:
            given[declared.name] = flag if isinstance(value, bool) else f"{flag} {items[0]!s:.80}"
    known = {declared.name for declared, _ in options}
    for name, relations in ((declared.name, declared.metadata) for declared, _ in options if declared.name in given):
        needed = [other for other in relations["needs"] if other.partition("=")[0] in known]
        if needed and not given.keys() & needed:
            others = " or ".join(flag_name(other.replace("=", " ")) for other in needed)
            advice = f"add {'it' if len(needed) == 1 else 'one of them'}, or leave out {flag_name(name)}"
            raise NmtError(f"{given[name]} needs {others}; {advice}")
        if other := next((given[other] for other in relations["excludes"] if other in given), None):
            raise NmtError(f"{given[name]} does not work with {other}; leave out one of them")


def with_tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of fields. Lists, which come from JSON, become tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def names_in(value: str) -> list[str]:
    """Returns the names in an option that separates them with commas, perhaps with spaces beside them."""
    return [name.strip() for name in value.split(",")]


def _as_text(value: Any) -> Any:
    """Returns the value of a field with text in place of paths, which programs in Python give."""
    if isinstance(value, tuple):
        return tuple(map(_as_text, value))
    return value.__fspath__() if hasattr(value, "__fspath__") else value


class Config:
    """The base class of all configurations. It checks the fields and converts them to and from plain data."""

    def __init_subclass__(cls, panel: str = "") -> None:
        """Puts options that name no section of the help page into this one, and moves limits from types to options."""
        for name, declared in vars(cls).items():
            if isinstance(declared, Field):
                cls.__annotations__[name], limits = _plain_type(cls.__annotations__[name])
                details = declared.metadata
                completed = {"panel": details["panel"] or panel, "limits": limits | details["limits"]}
                declared.metadata = {**details, **completed}  # type: ignore[assignment]

    def __post_init__(self) -> None:
        try:
            for declared in fields(self):  # type: ignore[arg-type]
                object.__setattr__(self, declared.name, _as_text(getattr(self, declared.name)))
                check_field(declared, getattr(self, declared.name))
            check_relations(self)
            self._check()
        except NmtError as error:
            raise OptionError(str(error)) from None

    def _check(self) -> None:
        """Raises NmtError if values of different fields do not go together in a way that `option` cannot declare."""

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as plain data."""
        return asdict(self)  # type: ignore[call-overload]

    def variants(self) -> dict[str, Any]:
        """Returns the fields that have a default value and another value here."""
        return {name: getattr(self, name) for name, value in self._defaults().items() if getattr(self, name) != value}

    def _defaults(self) -> dict[str, Any]:
        return {f.name: f.default for f in fields(self) if f.default is not MISSING}  # type: ignore[arg-type]

    def changed_from(self, other: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
        """Returns the fields that differ from an earlier configuration: name, earlier value, present value.

        `other` is the `to_dict` of that one, perhaps from JSON. A field that it lacks had its default value.
        """
        present = self.to_dict()
        earlier = self._defaults() | {name: value for name, value in with_tuples(other).items() if name in present}
        return [(name, earlier[name], present[name]) for name in earlier if earlier[name] != present[name]]

    @classmethod
    def checkpoint_options(cls) -> list[str]:
        """Returns the names of the fields that are checkpoints."""
        return [declared.name for declared in fields(cls) if declared.metadata.get("checkpoint")]  # type: ignore[arg-type]

    @classmethod
    def from_dict(cls, values: Any, origin: str) -> Self:
        """Returns the configuration with the values of `to_dict`, perhaps from JSON. The values are not trusted.

        Raises:
            NmtError: a field is missing, unknown or has a wrong value. The message names the field and `origin`.
        """
        try:
            return cls(**with_tuples(values if isinstance(values, Mapping) else {}))
        except TypeError as error:  # its message names a missing or unknown field
            cause = f"was written by another version of nmt ({error!s:.500})"
            raise NmtError(f"{origin} {cause}; read it with that version or make it again") from error
        except NmtError as error:
            raise NmtError(f"{origin} cannot be used: {error}") from error
