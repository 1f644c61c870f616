"""Recipes trained side by side, each with several seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from opteq.data.catalogue import load_data
from opteq.data.dataset import Data
from opteq.data.settings import DataSettings
from opteq.errors import OptionError, RunError
from opteq.training.build import shaped_model
from opteq.training.checkpoint import load_checkpoint
from opteq.training.folder import RunFolder
from opteq.training.progress import Progress
from opteq.training.recipe import Recipe
from opteq.training.session import Report, train
from opteq.training.state import require_same_data


@dataclass(frozen=True)
class Contender:
    """One recipe of a comparison."""

    recipe: Recipe
    parameters: int
    tests: list[dict[str, Any]]
    """Test figures of the last epoch, one for each seed."""
    seconds: list[float]
    """Training time of the fastest epoch, one for each seed."""

    def values(self, figure: str) -> list[float]:
        """A figure for each seed; empty if the model has none."""
        return [test[figure] for test in self.tests if figure in test]


def run_comparison(
    recipes: Sequence[Recipe],
    *,
    seeds: int,
    output: Path,
    data_dir: Path | None,
    progress: Callable[[], Progress],
    announce: Callable[[str], None],
    report: Report | None = None,
) -> list[Contender] | None:
    """Train what is not trained yet; None if the user stopped it. Seeds go in the outer loop, so
    that recipes are measured under the same conditions."""
    names = [recipe.name for recipe in recipes]
    if len(set(names)) != len(names):
        raise OptionError("A recipe is given twice.", "Give each once; names must differ.")
    records: dict[str, list[list[dict[str, Any]]]] = {name: [] for name in names}
    loaded: dict[DataSettings, Data] = {}
    for seed in range(seeds):
        for recipe in recipes:
            seeded = recipe.model_copy(update={"seed": seed})
            run = RunFolder(output / f"{recipe.name}-seed{seed}")
            exists = run.last.is_file()
            if exists and run.recipe != seeded:
                raise RunError(
                    f"{run.path} was trained with another recipe.",
                    "Give another --output, or remove that folder.",
                )
            if recipe.data not in loaded:
                loaded[recipe.data] = load_data(recipe.data, data_dir)
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
                data=loaded[recipe.data],
                progress=progress(),
                report=report,
            )
            if not outcome.finished:
                return None
            records[recipe.name].append(outcome.records)
    return [_row(recipe, records[recipe.name], output) for recipe in recipes]


def _row(recipe: Recipe, runs: list[list[dict[str, Any]]], output: Path) -> Contender:
    facts = load_checkpoint(RunFolder(output / f"{recipe.name}-seed0").best)[1]
    with torch.device("meta"):
        model = shaped_model(recipe.model, len(facts["classes"]), facts["shape"][0])
    return Contender(
        recipe,
        model.count_parameters(),
        [records[-1]["test"] for records in runs],
        [min(record["seconds"] for record in records) for records in runs],
    )
