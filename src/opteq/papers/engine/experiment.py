"""What an experiment is: rows that are trained and measured, claims that are checked, pictures.

An experiment is declared as data and small functions; `reproduction` does the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from opteq.data.dataset import Data
from opteq.exhibits import Dots, Picture
from opteq.models.network import Network
from opteq.papers.engine.results import GAIN, Results, Values
from opteq.papers.engine.verdicts import Statement
from opteq.training.folder import RunFolder
from opteq.training.recipe import Recipe
from opteq.training.recipe_files import load_recipe

Scale = Literal["tiny", "paper"]
SCALES: tuple[Scale, ...] = ("tiny", "paper")


@dataclass(frozen=True)
class Tiny:
    """A model family at the small scale, with settings changed: `small_scale` knows the recipe of
    each family for each data set."""

    family: str
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of the model."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of the recipe, by dotted key."""


@dataclass(frozen=True)
class Paper:
    """A recipe at the papers' scale, with settings changed."""

    recipe: str
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
    """One contender: how it is made at each scale (None: it is not there), and what was
    published."""

    label: str
    tiny: Tiny | None = None
    paper: str | Paper | None = None
    """A recipe, or one with changes."""
    published: Mapping[str, float] = field(default_factory=dict)
    """What the paper prints of it beside the figure that the recipe reports."""
    control: bool = False
    """Not in the paper."""
    like: str | None = None
    """For a row of the small scale alone: the recipe whose published figure stands beside it."""
    role: str = ""
    """What it is to claims and pictures, at either scale; by default its label."""
    group: str = ""
    """The data set, in tables of several at the papers' scale: claims are judged in each."""

    @property
    def recipe(self) -> str | None:
        """The recipe at the papers' scale."""
        return self.paper.recipe if isinstance(self.paper, Paper) else self.paper

    def exists(self, scale: Scale) -> bool:
        """Whether the row is there at a scale."""
        return (self.tiny if scale == "tiny" else self.paper) is not None

    def title(self, scale: Scale) -> str:
        """As it stands in a table; no two rows of a scale have the same."""
        return f"{self.group}, {self.label}" if scale == "paper" and self.group else self.label


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
TRAINING = Column("training_seconds", "training s", 0)
LEVEL = Column(GAIN, "last fifth, points", 1, percent=True)
"""What the last fifth of a row's training still gained."""
FEEDBACK = Column("feedback", "feedback %", 0, percent=True)
RESCALED = Column("feedback_rescaled", "rescaled %", 0, percent=True)
"""How far the equilibrium is from one application of its map, and after the best rescaling."""


@dataclass
class Trained:
    """A trained run with its model and data."""

    run: RunFolder
    recipe: Recipe
    model: Network
    data: Data
    limit: int | None
    rehearsed: bool = False
    """Whether its figures mean nothing, so that a measure need only run."""

    def at_most(self, count: int) -> int:
        """So many steps of an attack or a solve, or rounds of a search; two in a rehearsal."""
        return min(count, 2) if self.rehearsed else count

    @property
    def records(self) -> list[dict[str, Any]]:
        return self.run.metrics()


Measure = Callable[[Trained], Values]


Pictures = Callable[[Results], dict[str, Picture]]


@dataclass(frozen=True)
class Experiment:
    """One id."""

    rows: tuple[Row, ...]
    measure: Measure
    columns: tuple[Column, ...]
    claims: tuple[Statement, ...] = ()
    note: str = ""
    """What a reader must know of the paper's setting, and of ours where it differs."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of every recipe at the small scale."""
    pictures: Pictures | None = None
    data: str = "digits"
    """At the small scale, unless the user says otherwise."""
    reported_as: str | None = "accuracy"
    """Which figure of the table a recipe's reference is; None for figures of the papers, which
    print none."""
    steps: int | None = None
    """Training steps, where little has to be learnt: speed and memory need no accuracy."""

    def at(self, scale: Scale) -> list[Row]:
        """The rows that exist at a scale."""
        return [row for row in self.rows if row.exists(scale)]

    def published(self, row: Row) -> dict[str, float]:
        """What the papers print of a row: its recipe's reference, and what stands in the row."""
        source, found = row.recipe or row.like, dict(row.published)
        if isinstance(row.paper, Paper) and (row.paper.options or row.paper.settings):
            return found  # A variant, of which the recipe's figure is not that.
        if source is not None and self.reported_as is not None and not row.control:
            reference = load_recipe(source).reference
            if reference is not None and reference.accuracy is not None:
                found.setdefault(self.reported_as, reference.accuracy)
        return found

    def published_on(self, row: Row) -> str:
        """The data set of these figures, where it is known."""
        source = row.recipe or row.like
        if source is not None:
            return load_recipe(source).data.name
        return row.group


def first_column(experiment: Experiment, results: Results, rows: Iterable[str]) -> Column:
    """The first that any row has a figure in."""
    there = [c for c in experiment.columns if any(results.has(name, c.key) for name in rows)]
    return (there or experiment.columns)[0]


def dots(experiment: Experiment, results: Results, rows: Mapping[str, Row], title: str) -> Dots:
    """The default picture: the first figure that there is, of every row and seed. `rows` are by
    their titles."""
    column = first_column(experiment, results, rows)
    values = {
        name: [column.shown(v) for v in results.each(name, column.key)]
        for name in rows
        if results.has(name, column.key)
    }
    every = {name: experiment.published(row) for name, row in rows.items()}
    published = {name: found[column.key] for name, found in every.items() if column.key in found}
    return Dots(title, column.title, values, published)
