"""Samples of a figure: one for each round."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field


@dataclass
class Samples:
    """Values of one figure, in the order of the rounds."""

    values: list[float] = field(default_factory=list)

    def add(self, value: float) -> None:
        """Enter the value of a round."""
        self.values.append(value)

    @property
    def median(self) -> float:
        """The median, which one disturbed round does not move."""
        return statistics.median(self.values)

    @property
    def deviation(self) -> float:
        """The standard deviation of a sample; 0 of a single value."""
        return statistics.stdev(self.values) if len(self.values) > 1 else 0.0

    @property
    def spread(self) -> float:
        """The deviation as a share of the median."""
        return self.deviation / self.median if self.median else 0.0

    @property
    def as_json(self) -> dict[str, object]:
        """The values and what follows from them."""
        return {"median": self.median, "deviation": self.deviation, "values": self.values}
