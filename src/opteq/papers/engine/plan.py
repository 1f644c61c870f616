"""How an experiment is to be run, and the recipe that this means for each of its rows."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from opteq.errors import OptionError
from opteq.papers.engine.experiment import Experiment, Paper, Scale
from opteq.papers.engine.small_scale import changed_recipe, has_family, tiny_recipe
from opteq.training.recipe import Recipe

# Letters of row patterns in the name of a page.
_LONG = 60


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
