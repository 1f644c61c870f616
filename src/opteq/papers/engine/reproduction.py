"""An experiment from its runs to its page: table, verdicts, pictures."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from opteq.data.dataset import Data
from opteq.data.settings import DataSettings
from opteq.errors import OptionError, counted
from opteq.exhibits import Picture, Table
from opteq.papers.engine.experiment import (
    FEEDBACK,
    LEVEL,
    RESCALED,
    Column,
    Experiment,
    Row,
    Scale,
    dots,
    first_column,
)
from opteq.papers.engine.plan import Plan, recipes_of
from opteq.papers.engine.results import Results, Values
from opteq.papers.engine.runs import data_of, measured_run, of_training, rehearsed, run_folder
from opteq.papers.engine.verdicts import OPEN, Verdict
from opteq.training.progress import Progress
from opteq.training.recipe import Recipe


@dataclass(frozen=True)
class Reproduction:
    """What came out."""

    plan: Plan
    table: Table
    verdicts: list[tuple[str, Verdict]]
    pictures: dict[str, Picture]
    protocol: str
    note: str
    left_out: list[str]
    """Rows that do not exist at this scale, or were not selected."""

    @property
    def page(self) -> Path:
        """The page, with its table and pictures beside it."""
        return self.plan.output / f"{self.plan.stem}.md"

    @property
    def report(self) -> Path:
        """The same for a browser, with everything inside."""
        return self.page.with_suffix(".html")

    def claims(self) -> Table:
        """Each claim, and whether it shows here."""
        rows = [[text, verdict.word, verdict.detail] for text, verdict in self.verdicts]
        return Table("", ("claim", "here", "measured"), rows)

    def _repr_markdown_(self) -> str:
        return str(self)

    def __str__(self) -> str:
        parts = [self.protocol, self.table.markdown()]
        return "\n\n".join(parts + ([self.claims().markdown()] if self.verdicts else []))


def reproduce(
    experiment: Experiment,
    plan: Plan,
    *,
    announce: Callable[[str], object],
    progress: Callable[[], Progress],
) -> Reproduction:
    """Run an experiment. Runs and figures that are in the output folder already are used again, so
    that one that was stopped goes on, and experiments share what they have in common."""
    recipes = recipes_of(experiment, plan)
    if not recipes:
        raise OptionError(
            f"{plan.id} has no row at the scale {plan.scale!r} for this data.",
            "Choose another scale, or other data.",
        )
    loaded: dict[DataSettings, Data] = {}
    values: dict[str, list[Values]] = {title: [] for title in recipes}
    total = plan.seeds * len(recipes)
    for seed in range(plan.seeds):
        for i, (title, recipe) in enumerate(recipes.items()):
            seeded = recipe.model_copy(update={"seed": seed})
            if seeded.data not in loaded:
                loaded[seeded.data] = data_of(seeded, plan)
            if plan.rehearse:
                seeded = rehearsed(seeded, loaded[seeded.data])
            place = f"[{plan.id}, {seed * len(recipes) + i + 1} of {total}: {title}, seed {seed}]"
            data = loaded[seeded.data]

            def tell(text: str, place: str = place) -> None:
                announce(f"{place} {text}")

            measured = measured_run(experiment, plan, seeded, data, tell, progress)
            values[title].append(of_training(run_folder(plan.output, seeded), seeded) | measured)
    results = Results(values)
    rows = {row.title(plan.scale): row for row in experiment.at(plan.scale)}
    rows = {title: row for title, row in rows.items() if title in recipes}
    parts = _groups(rows, results, plan.scale)
    return Reproduction(
        plan,
        _table(experiment, rows, results),
        _verdicts(experiment, parts, plan),
        _pictures(experiment, rows, results, parts, plan),
        _protocol(plan, list(recipes.values()), loaded),
        experiment.note,
        _left_out(experiment, plan.scale, recipes),
    )


def _left_out(experiment: Experiment, scale: Scale, recipes: dict[str, Recipe]) -> list[str]:
    """Rows that are not there, under the title they have where they are. The small scale has one
    data set: rows for each of several are named once, and not where a row plays their part."""
    there = [row for row in experiment.at(scale) if row.title(scale) in recipes]
    missing = [row for row in experiment.rows if row not in there]
    if scale == "paper":
        return list(dict.fromkeys(row.title("tiny") for row in missing))
    parts = {row.label for row in experiment.at(scale)}
    twins = {row.label for row in missing if row.group and (row.role or row.label) in parts}
    names = (row.label for row in missing if not row.group or row.label not in twins)
    return list(dict.fromkeys(names))


def _groups(rows: dict[str, Row], results: Results, scale: Scale) -> dict[str, Results]:
    """The rows of each data set, by what they are; the small scale has one."""
    names: dict[str, dict[str, str]] = {}
    for title, row in rows.items():
        group = row.group if scale == "paper" else ""
        names.setdefault(group, {})[title] = row.role or row.label
    return {group: results.renamed(mapping) for group, mapping in names.items()}


def _verdicts(
    experiment: Experiment, parts: dict[str, Results], plan: Plan
) -> list[tuple[str, Verdict]]:
    """On every claim; of selected rows on those that they decide."""
    learning = experiment.steps is None
    found = [
        (f"{group}: {claim.text}" if group else claim.text, claim.judged(part, learning=learning))
        for group, part in parts.items()
        for claim in experiment.claims
    ]
    return [one for one in found if not plan.rows or one[1].word != OPEN]


def _table(experiment: Experiment, rows: dict[str, Row], results: Results) -> Table:
    more = (FEEDBACK, RESCALED) if experiment.steps else (FEEDBACK, RESCALED, LEVEL)
    every = (*experiment.columns, *(c for c in more if c not in experiment.columns))
    columns = [c for c in every if any(results.has(title, c.key) for title in rows)]
    known = {title: experiment.published(row) for title, row in rows.items()}
    published = [
        c for c in experiment.columns if any(c.key in figures for figures in known.values())
    ]
    # The paper's figures are of the paper's data.
    sets = {title: experiment.published_on(rows[title]) for title in rows if known[title]}
    shared = next(iter(sets.values()), "") if len(set(sets.values())) == 1 else ""
    theirs = f"paper, {shared}" if shared else "paper"
    header = ["", *(c.title for c in columns), *(f"{theirs}: {c.title}" for c in published)]
    lines = []
    for title, row in rows.items():
        cells = [f"{title} (control)" if row.control else title]
        cells += [_cell(results, title, column) for column in columns]
        where = "" if shared else sets.get(title, "")
        cells += [_published(known[title], column, where) for column in published]
        lines.append(cells)
    return Table("", tuple(header), lines)


def _cell(results: Results, label: str, column: Column) -> str:
    values = results.each(label, column.key)
    if not values:
        return "-"
    text = column.text(results.mean(label, column.key))
    same_count = column.digits == 0 and not column.percent and len(set(values)) == 1
    if len(values) < 2 or same_count:
        return text
    return f"{text} +- {column.text(results.spread(label, column.key))}"


def _published(figures: dict[str, float], column: Column, data: str) -> str:
    if column.key not in figures:
        return "-"
    return f"{figures[column.key]:g} ({data})" if data else f"{figures[column.key]:g}"


def _pictures(
    experiment: Experiment,
    rows: dict[str, Row],
    results: Results,
    parts: dict[str, Results],
    plan: Plan,
) -> dict[str, Picture]:
    if experiment.pictures is None or plan.rows:
        column = first_column(experiment, results, rows)
        return {column.key: dots(experiment, results, rows, plan.id)}
    found = {}
    for group, part in parts.items():
        prefix = f"{re.sub(r'[^a-z0-9]+', '', group.lower())}-" if group else ""
        found |= {f"{prefix}{key}": one for key, one in experiment.pictures(part).items()}
    return found


def _protocol(plan: Plan, recipes: Sequence[Recipe], loaded: dict[DataSettings, Data]) -> str:
    parts = []
    for settings, data in loaded.items():
        split = "" if settings.split == "standard" else f", split {settings.split}"
        part = (
            f"{data.name}{split}: {len(data.train):,} training and {len(data.test):,} test images"
        )
        parts.append(part if part not in parts else "")
    epochs = sorted({recipe.train.epochs for recipe in recipes})
    words = [
        "; ".join(dict.fromkeys(p for p in parts if p)),
        f"{' or '.join(str(n) for n in epochs)} epochs",
        f"{counted(plan.seeds, 'seed')} (mean +- standard deviation)",
        f"scale {plan.scale}",
    ]
    if plan.rehearse:
        words.append("REHEARSED: narrowed models after two steps on noise")
    if plan.limit:
        words.append(f"LIMITED to {plan.limit} test images")
    return ", ".join(words)
