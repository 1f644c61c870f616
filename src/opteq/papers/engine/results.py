"""Figures of all rows and seeds of an experiment."""

from __future__ import annotations

import statistics
from typing import Any

Value = float | list[Any]
Values = dict[str, Value]


class Results:
    """Figures of all rows and seeds."""

    def __init__(self, values: dict[str, list[Values]]) -> None:
        self.values = values

    def each(self, label: str, key: str) -> list[float]:
        """A figure, one for each seed; empty where a row has none."""
        found = [one[key] for one in self.values.get(label, []) if key in one]
        return [float(v) for v in found if not isinstance(v, list)]

    def curve(self, label: str, key: str) -> list[float]:
        """A list of figures, averaged over seeds."""
        lists = [one[key] for one in self.values[label] if isinstance(one.get(key), list)]
        return [statistics.mean(column) for column in zip(*lists, strict=True)]  # type: ignore[arg-type]

    def mean(self, label: str, key: str) -> float:
        return statistics.mean(self.each(label, key))

    def spread(self, label: str, key: str) -> float:
        """The standard deviation over seeds, 0 for one seed."""
        values = self.each(label, key)
        return statistics.stdev(values) if len(values) > 1 else 0.0

    def has(self, label: str, key: str) -> bool:
        return bool(self.each(label, key))
