"""Recipes trained side by side, each with several seeds."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opteq.data.catalogue import load_data
from opteq.environment import environment
from opteq.errors import OptionError, RunError, counted
from opteq.exhibits import Table
from opteq.training.build import skeleton
from opteq.training.checkpoint import load_checkpoint, require_same_data
from opteq.training.folder import RunFolder
from opteq.training.progress import Progress
from opteq.training.recipe import Recipe
from opteq.training.recipe_files import whole_recipe
from opteq.training.scores import part_tested, score_title, shown_score
from opteq.training.session import Report, train


@dataclass(frozen=True)
class Contender:
    """One recipe of a comparison."""

    recipe: Recipe
    parameters: int
    runs: list[RunFolder]
    """One for each seed."""
    records: list[list[dict[str, Any]]]
    """What each of them recorded, epoch by epoch."""

    @property
    def tests(self) -> list[dict[str, Any]]:
        """Test figures of the last epoch, one for each seed."""
        return [records[-1]["test"] for records in self.records]

    @property
    def seconds(self) -> list[float]:
        """Training time of the fastest epoch, one for each seed."""
        return [min(record["seconds"] for record in records) for records in self.records]

    @property
    def scores(self) -> list[float]:
        """The figure by which models of this task are compared, one for each seed, in its unit."""
        return [shown_score(test) for test in self.tests]

    def values(self, figure: str) -> list[float]:
        """A figure for each seed; empty if the model has none."""
        return [test[figure] for test in self.tests if figure in test]


@dataclass(frozen=True)
class Comparison:
    """Recipes side by side. It prints as a table with its protocol."""

    contenders: list[Contender]
    output: Path

    @property
    def report(self) -> Path:
        """The report page."""
        return self.output / "report.html"

    def table(self) -> Table:
        """A row for each recipe."""
        first = self.contenders[0]
        header = tuple(self.score_name if name == _SCORE else name for name in _HEADER)
        return Table("", header, [_cells(one, first) for one in self.contenders])

    @property
    def score_name(self) -> str:
        """What is compared, with its unit."""
        return score_title(self.contenders[0].tests[0])

    def protocol(self) -> str:
        """What was trained on what, and by which command."""
        recipe, tests = self.contenders[0].recipe, self.contenders[0].tests
        data, found = recipe.data, environment()
        limit = f"{data.limit_train:,} training images" if data.limit_train else "all images"
        part = part_tested(tests[0]) or f"{tests[0]['images']:,}"
        return (
            f"{data.name}, {limit}, {part} test images, "
            f"{counted(recipe.train.epochs, 'epoch')}, {counted(len(tests), 'seed')}; "
            f"threads: {found['threads']}; "
            f"command: {found['command']}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {
            "protocol": self.protocol(),
            "score": self.score_name,
            "rows": [
                {
                    "recipe": one.recipe.name,
                    "parameters": one.parameters,
                    "scores": one.scores,
                    "epoch_seconds": one.seconds,
                    "tests": one.tests,
                }
                for one in self.contenders
            ],
            "report": str(self.report),
        }

    def __str__(self) -> str:
        return "\n".join([self.table().markdown(), "", self.protocol(), COMPARISON_NOTE])

    def _repr_markdown_(self) -> str:
        return str(self)


COMPARISON_NOTE = (
    "Test figures of the last epoch, mean +- standard deviation over seeds. Time is that of the "
    "fastest training epoch, relative to the first row; solver steps are from the test. Feedback "
    "is how far the equilibrium is from one application of its map, also after the best rescaling."
)
_SCORE = "score"
_HEADER = (
    "recipe",
    "parameters",
    _SCORE,
    "each seed",
    "loss",
    "epoch s",
    "relative time",
    "solver steps",
    "not converged %",
    "feedback %",
    "rescaled %",
)


def _cells(row: Contender, first: Contender) -> list[str]:
    scores = row.scores
    seconds = min(row.seconds)
    steps, bad = row.values("steps"), row.values("unconverged")
    return [
        row.recipe.name,
        f"{row.parameters:,}",
        _mean(scores, 2),
        " / ".join(f"{value:.2f}" for value in scores),
        _mean(row.values("loss"), 4),
        f"{seconds:.1f}",
        f"{seconds / min(first.seconds):.2f}",
        f"{statistics.mean(steps):.1f}" if steps else "-",
        f"{100 * statistics.mean(bad):.2f}" if bad else "-",
        *(
            f"{100 * statistics.mean(values):.1f}" if values else "-"
            for values in (row.values("feedback"), row.values("feedback_rescaled"))
        ),
    ]


def _mean(values: list[float], digits: int) -> str:
    mean = f"{statistics.mean(values):.{digits}f}"
    return mean if len(values) < 2 else f"{mean} +- {statistics.stdev(values):.{digits}f}"


def run_comparison(
    recipes: Sequence[Recipe],
    *,
    seeds: int,
    output: Path,
    data_dir: Path | None,
    progress: Callable[[], Progress],
    announce: Callable[[str], None],
    report: Report | None = None,
) -> Comparison | None:
    """Train what is not trained yet; None if the user stopped it. Seeds are the outer loop, so
    that recipes are measured under the same conditions."""
    names = [recipe.name for recipe in recipes]
    if len(set(names)) != len(names):
        raise OptionError("A recipe is given twice.", "Give each once; names must differ.")
    records: dict[str, list[list[dict[str, Any]]]] = {name: [] for name in names}
    # All of it first: what is missing must not be found after hours of training.
    loaded = {recipe.data: load_data(recipe.data, data_dir) for recipe in recipes}
    tasks = {loaded[recipe.data].task for recipe in recipes}
    if len(tasks) > 1:
        raise OptionError(
            f"Recipes for {' and '.join(sorted(tasks))} cannot be compared.",
            "Compare recipes of one task.",
        )
    for seed in range(seeds):
        for recipe in recipes:
            seeded = recipe.model_copy(update={"seed": seed})
            run = RunFolder(output / f"{recipe.name}-seed{seed}")
            exists = run.last.is_file()
            if exists and run.recipe != whole_recipe(seeded):
                raise RunError(
                    f"{run.path} was trained with another recipe.",
                    "Give another --output, or remove that folder.",
                )
            if exists:
                facts = load_checkpoint(run.last)[1]
                require_same_data(facts, loaded[recipe.data], run.last)
                if facts["finished"]:
                    records[recipe.name].append(run.metrics())
                    continue
            announce(f"[{recipe.name}, seed {seed}]")
            _, outcome = train(
                seeded,
                run.path,
                resume=exists,
                force=run.path.exists() and not exists,
                data_dir=data_dir,
                data=loaded[recipe.data],
                progress=progress(),
                report=report,
            )
            if not outcome.finished:
                return None
            records[recipe.name].append(outcome.records)
    return Comparison([_row(recipe, records[recipe.name], output) for recipe in recipes], output)


def _row(recipe: Recipe, runs: list[list[dict[str, Any]]], output: Path) -> Contender:
    facts = load_checkpoint(RunFolder(output / f"{recipe.name}-seed0").best)[1]
    model = skeleton(recipe.model, len(facts["classes"]), facts["shape"][0])
    folders = [RunFolder(output / f"{recipe.name}-seed{seed}") for seed in range(len(runs))]
    return Contender(recipe, model.count_parameters(), folders, runs)
