"""Figures of all rows and seeds of an experiment."""

from __future__ import annotations

import statistics
from typing import Any

from opteq.training.levelling import STILL_RISING

Value = float | list[Any]
Values = dict[str, Value]
GAIN, NEVER_WARM = "last_fifth_gain", "never_left_warm_up"
"""What every run says of its training, beside the figures that are measured."""


class Results:
    """Figures of all rows and seeds."""

    def __init__(self, values: dict[str, list[Values]]) -> None:
        self.values = values
        self.asked: set[tuple[str, str]] = set()
        """Rows and figures that were asked for."""

    def renamed(self, names: dict[str, str]) -> Results:
        """Some of the rows under other names: {label: name}."""
        return Results({name: self.values[label] for label, name in names.items()})

    def each(self, label: str, key: str) -> list[float]:
        """A figure, one for each seed; empty where a row has none."""
        self.asked.add((label, key))
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

    def still_learning(self, label: str) -> str:
        """Why a row's training has not levelled off; empty if it has, or if that is not known."""
        runs = self.values.get(label, [])
        if any(one.get(NEVER_WARM) for one in runs):
            return f"{label} never left warm-up"
        gains = [float(gain) for one in runs if not isinstance(gain := one.get(GAIN, 0.0), list)]
        if gains and statistics.mean(gains) > STILL_RISING:
            return f"{label} gained {100 * statistics.mean(gains):.1f} points in its last fifth"
        return ""
