"""Running an experiment: train what is not trained yet, measure what is not measured yet."""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from opteq.data.catalogue import load_data
from opteq.data.dataset import Data
from opteq.data.fake import fake_like
from opteq.data.settings import DataSettings
from opteq.errors import (
    InertWarning,
    NotConvergedWarning,
    OptionError,
    RunError,
    StoppedError,
)
from opteq.exhibits import Picture, Table
from opteq.files import make_folder, write_atomically
from opteq.papers.engine.experiment import (
    FEEDBACK,
    LEVEL,
    RESCALED,
    Column,
    Experiment,
    Paper,
    Row,
    Scale,
    Trained,
    dots,
    first_column,
)
from opteq.papers.engine.results import GAIN, NEVER_WARM, Results, Values
from opteq.papers.engine.small_scale import changed_recipe, has_family, tiny_recipe
from opteq.papers.engine.verdicts import OPEN, Verdict
from opteq.training.build import narrowed_model, skeleton, task_of
from opteq.training.checkpoint import load_checkpoint, require_same_data
from opteq.training.folder import RunFolder
from opteq.training.levelling import last_fifth_gain, left_warm_up
from opteq.training.load import load
from opteq.training.progress import Progress
from opteq.training.recipe import Recipe, SolveSettings
from opteq.training.session import train

# Letters of row patterns in the name of a page.
_LONG = 60
# How exactly a rehearsal solves: its figures mean nothing.
_ROUGHLY = 0.3


@dataclass(frozen=True)
class Plan:
    """How an experiment is to be run."""

    id: str
    scale: Scale
    seeds: int
    output: Path
    data: str | None = None
    """At the small scale; None is the experiment's own."""
    data_dir: Path | None = None
    overrides: tuple[str, ...] = ()
    limit: int | None = None
    """Test images that are measured, all if None."""
    rehearse: bool = False
    """Everything end to end in seconds, to see that it works: models built at full size without
    memory, then narrowed and trained for two steps on noise of the data's shape."""
    rows: tuple[str, ...] = ()
    """Patterns of the rows that are wanted, such as "GEQ*"; all rows if there are none."""

    @property
    def stem(self) -> str:
        """What the files of the page are called: a selection overwrites neither the whole nor
        another one."""
        words = re.sub(r"[^a-z0-9]+", "-", " ".join(self.rows).lower()).strip("-")
        if len(words) > _LONG:
            digest = hashlib.sha256("\n".join(self.rows).encode()).hexdigest()[:6]
            words = f"{words[:_LONG]}-{digest}"
        return f"{self.id}-{words or 'all'}" if self.rows else self.id


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


def recipes_of(experiment: Experiment, plan: Plan) -> dict[str, Recipe]:
    """The recipe of each row at this scale, by title; all are checked before anything is
    trained."""
    data = plan.data or experiment.data
    if plan.scale == "paper" and plan.data is not None:
        raise OptionError("--data chooses data at the small scale.", "Leave it out.")
    overrides = list(plan.overrides)
    if experiment.steps is not None:
        overrides = [f"train.steps={experiment.steps}", *overrides]
    found = {}
    for row in experiment.at(plan.scale):
        title = row.title(plan.scale)
        if plan.scale == "paper":
            variant = row.paper if isinstance(row.paper, Paper) else Paper(str(row.paper))
            found[title] = changed_recipe(
                variant.recipe, {}, variant.options, variant.settings, overrides
            )
        elif row.tiny is not None and has_family(data, row.tiny.family):
            found[title] = tiny_recipe(row.tiny, data, experiment.settings, overrides)
    if not plan.rows:
        return found
    for pattern in plan.rows:
        if not any(_like(title, pattern) for title in found):
            raise OptionError(
                f"{plan.id} has no row like {pattern!r}.",
                f"It has {'; '.join(map(repr, found))}." if found else "It has none at all.",
            )
    return {
        title: recipe
        for title, recipe in found.items()
        if any(_like(title, pattern) for pattern in plan.rows)
    }


def _like(title: str, pattern: str) -> bool:
    """Whether a row is meant, in capitals or not."""
    return fnmatchcase(title.casefold(), pattern.casefold())


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
                loaded[seeded.data] = _load(seeded, plan)
            if plan.rehearse:
                seeded = _rehearsed(seeded, loaded[seeded.data])
            place = f"[{plan.id}, {seed * len(recipes) + i + 1} of {total}: {title}, seed {seed}]"
            data = loaded[seeded.data]

            def tell(text: str, place: str = place) -> None:
                announce(f"{place} {text}")

            measured = _one(experiment, plan, seeded, data, tell, progress)
            values[title].append(_of_training(run_folder(plan.output, seeded), seeded) | measured)
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


def _load(recipe: Recipe, plan: Plan) -> Data:
    if plan.rehearse:
        return fake_like(recipe.data, task_of(recipe.model))
    return load_data(recipe.data, plan.data_dir)


def _rehearsed(recipe: Recipe, data: Data) -> Recipe:
    """The recipe with its model narrowed, after that was built at full size; two steps."""
    skeleton(recipe.model, len(data.classes), data.shape[0])
    batch = max(1, min(2, len(data.train) // 2))
    roughly = SolveSettings(tolerance=_ROUGHLY, evaluation_tolerance=_ROUGHLY)
    changes = {"steps": 2, "batch_size": batch, "precision": "32-true", "solve": roughly}
    train = recipe.train.model_copy(update=changes)
    return recipe.model_copy(update={"model": narrowed_model(recipe.model), "train": train})


def _left_out(experiment: Experiment, scale: Scale, recipes: dict[str, Recipe]) -> list[str]:
    """Rows that are not there, under the title they have where they are."""
    there = [row for row in experiment.at(scale) if row.title(scale) in recipes]
    missing = (row for row in experiment.rows if row not in there)
    other: Scale = "paper" if scale == "tiny" else "tiny"
    return list(dict.fromkeys(row.title(other) for row in missing))


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


def run_folder(output: Path, recipe: Recipe) -> RunFolder:
    """Where a run lies: the same for every experiment that needs this recipe. Settings at their
    default do not count, so that a version with more settings finds the runs of this one."""
    words = {"name", "summary", "reference", "chosen", "seed"}
    facts = recipe.model_dump(mode="json", exclude=words, exclude_defaults=True)
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:8]
    return RunFolder(output / "runs" / f"{recipe.name}-{digest}-seed{recipe.seed}")


def _one(
    experiment: Experiment,
    plan: Plan,
    recipe: Recipe,
    data: Data,
    announce: Callable[[str], object],
    progress: Callable[[], Progress],
) -> Values:
    run = run_folder(plan.output, recipe)
    stem = f"{plan.id}-{plan.limit}" if plan.limit else plan.id
    known = run.path / "evaluate" / f"{stem}.json"
    trained = _train(run, recipe, data, announce, progress)
    if known.is_file():
        try:
            return json.loads(known.read_text(encoding="utf-8"))
        except ValueError:
            known.unlink()
    announce("measuring")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        model = load(trained.path, "last")
        done = Trained(trained, recipe, model, data, plan.limit, plan.rehearse)
        found = experiment.measure(done)
    found["parameters"] = float(model.count_parameters())
    make_folder(known.parent)
    write_atomically(known, json.dumps(found).encode())
    return found


def _of_training(run: RunFolder, recipe: Recipe) -> Values:
    """What the records of a run say, whatever is measured: how long its training took, whether it
    has levelled off, and whether its equilibria act."""
    records, found = run.metrics(), Values()
    found["training_seconds"] = float(sum(record["seconds"] for record in records))
    last = records[-1].get("test", {}) if records else {}
    found |= {c.key: float(last[c.key]) for c in (FEEDBACK, RESCALED) if c.key in last}
    gain = last_fifth_gain(records)
    if gain is not None:
        found[GAIN] = gain
    if not left_warm_up(recipe.train.schedule.warmup_epochs, records):
        found[NEVER_WARM] = 1.0
    return found


def _train(
    run: RunFolder,
    recipe: Recipe,
    data: Data,
    announce: Callable[[str], object],
    progress: Callable[[], Progress],
) -> RunFolder:
    exists = run.last.is_file()
    if exists:
        facts = load_checkpoint(run.last)[1]
        require_same_data(facts, data, run.last)
        if facts["finished"]:
            return run
    announce("training")
    with warnings.catch_warnings():
        # The table has a column for it.
        warnings.simplefilter("ignore", InertWarning)
        _, outcome = train(
            recipe,
            run.path,
            resume=exists,
            force=run.path.exists() and not exists,
            data=data,
            progress=progress(),
        )
    if not outcome.finished:
        raise StoppedError("The experiment was stopped and saved.", "Start it again to go on.")
    if not run.last.is_file():
        raise RunError(f"{run.path} has no checkpoint.", "Remove the folder and start again.")
    return run


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
    if len(values) < 2 or column.key == "parameters":
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
        f"{plan.seeds} seed{'s' if plan.seeds > 1 else ''} (mean +- standard deviation)",
        f"scale {plan.scale}",
    ]
    if plan.rehearse:
        words.append("REHEARSED: narrowed models after two steps on noise")
    if plan.limit:
        words.append(f"LIMITED to {plan.limit} test images")
    return ", ".join(words)
