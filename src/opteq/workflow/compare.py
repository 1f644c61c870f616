"""Train recipes side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opteq.errors import StoppedError
from opteq.report.comparison_page import write_comparison
from opteq.report.run_page import write_report
from opteq.training.comparison import Comparison, run_comparison
from opteq.training.progress import Progress, new_console, progress_for
from opteq.training.recipe import Recipe
from opteq.training.recipe_files import load_recipe
from opteq.workflow.train import RUNS


def compare(
    recipes: Sequence[str | Path | Recipe],
    *,
    seeds: int = 1,
    output: str | Path = RUNS / "compare",
    data_dir: str | Path | None = None,
    quiet: bool = False,
    **changes: Any,
) -> Comparison:
    """Train recipes with several seeds each: one table, one page in `output`. `changes` are made to
    all recipes, group by group. Finished runs in the folder are not trained again, so a stopped
    comparison continues when it is started again."""
    console = new_console()
    found = run_comparison(
        [load_recipe(recipe, changes=changes) for recipe in recipes],
        seeds=seeds,
        output=Path(output),
        data_dir=None if data_dir is None else Path(data_dir),
        progress=Progress if quiet else lambda: progress_for(console),
        announce=(lambda text: None) if quiet else console.print,
        report=write_report,
    )
    if found is None:
        raise StoppedError("The comparison was stopped and saved.", "Start it again to continue.")
    write_comparison(found)
    return found
