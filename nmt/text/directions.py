"""The direction of a translation."""

from typing import NamedTuple


class Direction(NamedTuple):
    """What a model of several languages is to do: translate from one language into another. "" names no language."""

    source: str = ""
    target: str = ""

    def __str__(self) -> str:
        return f"{self.source}-{self.target}"

    @classmethod
    def of(cls, source: str | None, target: str | None) -> "Direction":
        """Returns the direction between two languages, of which options may name none."""
        return cls(source or "", target or "")


# Names no language, which suffices for a model of one pair.
UNNAMED = Direction()
