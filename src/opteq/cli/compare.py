"""`opteq compare`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from opteq.cli.console import new_console
from opteq.cli.options import DataDir, Overrides


def compare(
    recipes: Annotated[list[str], typer.Argument(help="Recipes by name, or YAML files.")],
    seeds: Annotated[int, typer.Option(help="How many seeds, starting at 0.", min=1)] = 1,
    overrides: Overrides = None,
    output: Annotated[Path, typer.Option(help="A folder for the runs and the table.")] = Path(
        "runs/compare"
    ),
    data_dir: DataDir = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Train recipes side by side: one table, one report. Finished runs in the folder are not
    trained again, so a stopped comparison continues when it is started again.

    opteq compare geq_digits resnet_digits --seeds 3
    """
    from opteq.training.recipe_files import load_recipe

    loaded = [load_recipe(name, overrides or []) for name in recipes]
    from opteq import workflow

    found = workflow.compare(loaded, seeds=seeds, output=output, data_dir=data_dir, quiet=as_json)
    if as_json:
        print(json.dumps(found.as_dict()))
        return
    console = new_console()
    console.print(str(found))
    console.print(f"report: {found.report}")
