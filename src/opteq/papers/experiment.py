"""What an experiment is: rows that are trained and measured, claims that are checked, pictures.

An experiment is declared as data and small functions; `opteq.papers.run` does the rest.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opteq.data.dataset import Data
from opteq.exhibits import Dots, Picture
from opteq.models.network import Network
from opteq.training.folder import RunFolder
from opteq.training.recipe import Recipe

Value = float | list[Any]
Values = dict[str, Value]


@dataclass(frozen=True)
class Tiny:
    """A model family at the small scale, with settings changed: `opteq.papers.tiny` knows the
    recipe of each family for each data set."""

    family: str
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of the model."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of the recipe, by dotted key."""


APPLIED_ONCE: Mapping[str, Any] = {
    "gradient": {"name": "unrolled", "steps": 1},
    "solver": {"name": "picard", "on_failure": "ignore"},
}
"""Options of a model whose map is applied once instead of solved."""


@dataclass(frozen=True)
class Row:
    """One contender: how it is made at each scale (None: not there), and what was published."""

    label: str
    tiny: Tiny | None = None
    paper: str | None = None
    """A recipe."""
    published: Mapping[str, float] = field(default_factory=dict)
    control: bool = False
    """Not in the paper."""


@dataclass(frozen=True)
class Column:
    """A figure of the table. Keys are those of the measure; `percent` figures are shares."""

    key: str
    title: str
    digits: int = 2
    percent: bool = False
    scientific: bool = False

    def shown(self, value: float) -> float:
        return 100 * value if self.percent else value

    def text(self, value: float) -> str:
        """As it stands in a table."""
        kind = "e" if self.scientific else "f"
        return f"{self.shown(value):,.{self.digits}{kind}}"


ACCURACY = Column("accuracy", "accuracy %", percent=True)
PARAMETERS = Column("parameters", "parameters", 0)
STEPS = Column("steps", "solver steps", 1)


@dataclass
class Trained:
    """A trained run with its model and data."""

    run: RunFolder
    recipe: Recipe
    model: Network
    data: Data
    limit: int | None

    @property
    def records(self) -> list[dict[str, Any]]:
        return self.run.metrics()


Measure = Callable[[Trained], Values]


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


@dataclass(frozen=True)
class Verdict:
    """Whether a claim shows here."""

    word: str
    detail: str


SEEN, WITHIN, NOT_SEEN, OPEN = "seen", "within the spread", "not seen", "not judged"
YES_ONCE, NO_ONCE = "one seed: yes", "one seed: no"
"""Without a spread a difference shows nothing but its sign."""


@dataclass(frozen=True)
class Claim:
    """Something a paper says of its table, and a check of it on the results."""

    text: str
    check: Callable[[Results], Verdict]


def above(
    better: str, worse: str, key: str, *, scale: float = 1.0, unit: str = ""
) -> Callable[[Results], Verdict]:
    """`better` has the larger figure, by more than the spread over seeds."""

    def check(results: Results) -> Verdict:
        if not (results.has(better, key) and results.has(worse, key)):
            return Verdict(OPEN, "a row is missing at this scale")
        gap = scale * (results.mean(better, key) - results.mean(worse, key))
        noise = abs(scale) * math.hypot(results.spread(better, key), results.spread(worse, key))
        words = f"{better} - {worse}: {gap:+.3g}{unit}, {_noise(results, noise)}"
        if _single(results):
            return Verdict(YES_ONCE if gap > 0 else NO_ONCE, words)
        if gap > noise:
            return Verdict(SEEN, words)
        return Verdict(WITHIN if gap >= -noise else NOT_SEEN, words)

    return check


def _single(results: Results) -> bool:
    return all(len(values) < 2 for values in results.values.values())


def _noise(results: Results, noise: float) -> str:
    return "one seed" if _single(results) else f"spread {noise:.2g}"


def points(better: str, worse: str, key: str = "accuracy") -> Callable[[Results], Verdict]:
    """`above` for shares, in percentage points."""
    return above(better, worse, key, scale=100, unit=" points")


def below(lower: str, higher: str, key: str) -> Callable[[Results], Verdict]:
    """`lower` has the smaller figure."""
    return above(higher, lower, key)


def every(*checks: Callable[[Results], Verdict]) -> Callable[[Results], Verdict]:
    """All of several; the weakest decides."""
    order = [NOT_SEEN, NO_ONCE, OPEN, WITHIN, YES_ONCE, SEEN]

    def check(results: Results) -> Verdict:
        found = [one(results) for one in checks]
        word = min((v.word for v in found), key=order.index)
        return Verdict(word, "; ".join(v.detail for v in found))

    return check


def peaks_inside(labels: Sequence[str], key: str) -> Callable[[Results], Verdict]:
    """A figure first rises and then falls along the rows."""

    def check(results: Results) -> Verdict:
        known = [label for label in labels if results.has(label, key)]
        if len(known) < 3:
            return Verdict(OPEN, "too few rows at this scale")
        best = max(known, key=lambda label: results.mean(label, key))
        inside = best not in (known[0], known[-1])
        ends = max((known[0], known[-1]), key=lambda label: results.mean(label, key))
        gap = 100 * (results.mean(best, key) - results.mean(ends, key))
        noise = 100 * math.hypot(results.spread(best, key), results.spread(ends, key))
        if _single(results):
            return Verdict(YES_ONCE if inside else NO_ONCE, f"best at {best}, one seed")
        if not inside:
            return Verdict(NOT_SEEN, f"best at the end of the range: {best}")
        word = SEEN if gap > noise else WITHIN
        words = f"{gap:.2g} points above the ends, {_noise(results, noise)}"
        return Verdict(word, f"best at {best}, {words}")

    return check


Pictures = Callable[[Results], dict[str, Picture]]


@dataclass(frozen=True)
class Experiment:
    """One id."""

    rows: tuple[Row, ...]
    measure: Measure
    columns: tuple[Column, ...]
    claims: tuple[Claim, ...] = ()
    note: str = ""
    """What a reader must know of the paper's setting, and of ours where it differs."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of every recipe at the small scale."""
    pictures: Pictures | None = None
    data: str = "digits"
    """At the small scale, unless the user says otherwise."""
    steps: int | None = None
    """Training steps, where little has to be learnt: speed and memory need no accuracy."""

    def at(self, scale: str) -> list[Row]:
        """The rows that exist at a scale."""
        return [row for row in self.rows if (row.tiny if scale == "tiny" else row.paper)]


def dots(results: Results, rows: Sequence[Row], column: Column, title: str) -> Dots:
    """The default picture: one figure of every row and seed."""
    values = {
        row.label: [column.shown(v) for v in results.each(row.label, column.key)]
        for row in rows
        if results.has(row.label, column.key)
    }
    published = {
        row.label: row.published[column.key] for row in rows if column.key in row.published
    }
    return Dots(title, column.title, values, published)
