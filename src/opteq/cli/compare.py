"""`opteq compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opteq.cli.console import new_console
from opteq.cli.options import DataDir, Overrides


def compare(
    recipes: Annotated[list[str], typer.Argument(help="Recipes by name, or YAML files.")],
    seeds: Annotated[int, typer.Option(help="How many seeds, from 0 on.", min=1)] = 1,
    overrides: Overrides = None,
    output: Annotated[Path, typer.Option(help="A folder for the runs and the table.")] = Path(
        "runs/compare"
    ),
    data_dir: DataDir = None,
) -> None:
    """Train recipes side by side: one table, one report. Finished runs in the folder are not
    trained again, so a comparison that was stopped goes on when it is started again."""
    from opteq.training.recipe_files import load_recipe

    loaded = [load_recipe(name, overrides or []) for name in recipes]
    from opteq.report.comparison_page import comparison_table, write_comparison
    from opteq.report.run_page import write_report
    from opteq.training.comparison import run_comparison
    from opteq.training.progress import progress_for

    console = new_console()
    rows = run_comparison(
        loaded,
        seeds=seeds,
        output=output,
        data_dir=data_dir,
        progress=lambda: progress_for(console),
        report=write_report,
        announce=lambda text: console.print(text),
    )
    if rows is None:
        console.print("Stopped and saved. Give the same command to go on.")
        raise typer.Exit(130)
    write_comparison(rows, output)
    console.print(comparison_table(rows))
    console.print(f"report: {output / 'report.html'}")
