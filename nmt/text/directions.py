"""The direction of a translation."""

from typing import NamedTuple


class Direction(NamedTuple):
    """What a model of several languages is to do: translate from one language into another. "" names no language."""

    source: str = ""
    target: str = ""

    def __str__(self) -> str:
        return f"{self.source}-{self.target}"

    @property
    def is_copy(self) -> bool:
        """Whether it is from a language into itself: the source of such a pair is a copy of the target."""
        return self.source == self.target

    @property
    def stored(self) -> str:
        """The direction as files of the toolkit have it."""
        return " ".join(self)

    @classmethod
    def parsed(cls, stored: str) -> "Direction":
        """Returns the direction that files call so; see `stored`."""
        return cls(*stored.split())

    @classmethod
    def of(cls, source: str | None, target: str | None) -> "Direction":
        """Returns the direction between two languages, of which options may name none."""
        return cls(source or "", target or "")


# Names no language, which suffices for a model of one pair.
UNNAMED = Direction()
