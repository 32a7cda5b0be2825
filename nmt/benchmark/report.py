"""What a benchmark found: figures, each measured several times, as a table or as JSON."""

import json
import statistics
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Figure:
    """Attributes:
    values: one for each repeat.
    unit: tok/s, MiB, ….
    """

    values: tuple[float, ...]
    unit: str

    @property
    def median(self) -> float:
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
    """Attributes:
    subject: what was measured, and on what, by name.
    figures: what was found, by name.
    """

    subject: dict[str, str]
    figures: dict[str, Figure] = field(default_factory=dict)

    def add(self, name: str, unit: str, *values: float) -> None:
        self.figures[name] = Figure(values, unit)

    def to_json(self) -> str:
        figures: dict[str, Any] = {
            name: {"unit": f.unit, "median": f.median, "min": min(f.values), "max": max(f.values), "values": f.values}
            for name, f in self.figures.items()
        }
        return json.dumps({**self.subject, "figures": figures})

    def __str__(self) -> str:
        rows = {**self.subject, **{name: str(figure) for name, figure in self.figures.items()}}
        width = max(map(len, rows))
        return "\n".join(f"{name:>{width}}  {value}" for name, value in rows.items())
