"""The result of a benchmark, which prints as a table or as JSON."""

import json
import statistics
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Figure:
    """One measured quantity.

    Attributes:
        values: one for each repeat.
        unit: such as tok/s or MiB.
    """

    values: tuple[float, ...]
    unit: str

    @property
    def median(self) -> float:
        """The median of the repeats."""
        return statistics.median(self.values)

    def __str__(self) -> str:
        digits = 0 if self.median >= 100 else 2
        unit = f" {self.unit}" if self.unit else ""
        text = f"{self.median:,.{digits}f}{unit}"
        if len(self.values) > 1:
            text += (
                f"  ({min(self.values):,.{digits}f} to {max(self.values):,.{digits}f}, median of {len(self.values)})"
            )
        return text


@dataclass
class Report:
    """The result of a benchmark.

    Attributes:
        subject: names and values that describe what was measured and where.
        figures: the measured figures by name.
    """

    subject: dict[str, str]
    figures: dict[str, Figure] = field(default_factory=dict)

    def add(self, name: str, unit: str, *values: float) -> None:
        """Adds a figure with one value for each repeat."""
        self.figures[name] = Figure(values, unit)

    def to_json(self) -> str:
        """Returns one JSON object with the subject, and the values, median and range of every figure."""
        figures: dict[str, Any] = {
            name: {"unit": f.unit, "median": f.median, "min": min(f.values), "max": max(f.values), "values": f.values}
            for name, f in self.figures.items()
        }
        return json.dumps({**self.subject, "figures": figures})

    def __str__(self) -> str:
        rows = {**self.subject, **{name: str(figure) for name, figure in self.figures.items()}}
        width = max(map(len, rows))
        return "\n".join(f"{name:>{width}}  {value}" for name, value in rows.items())
