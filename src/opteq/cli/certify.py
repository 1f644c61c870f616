"""`opteq certify`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from opteq.cli.console import new_console, progress_in_words
from opteq.cli.options import Checkpoint, DataDir, MovedImages, RunOrName


def certify(
    run: RunOrName,
    radius: Annotated[
        list[float] | None,
        typer.Option(help="A radius (2-norm, pixels in [0, 1]). Repeatable. Default: chosen."),
    ] = None,
    steps: Annotated[int, typer.Option(help="Gradient steps of an attack.", min=1)] = 20,
    limit: Annotated[int, typer.Option(help="At most this many test images.", min=1)] = 200,
    checkpoint: Checkpoint = "best",
    path: MovedImages = None,
    data_dir: DataDir = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """What is proved about a trained model, its certified accuracy, and its accuracy under attack;
    the truth lies between the two.

    opteq certify runs/geq_digits --radius 0.25 --limit 100
    """
    from opteq import workflow

    console = new_console()
    with progress_in_words() as tell:
        found = workflow.certify(
            run,
            radii=radius,
            steps=steps,
            limit=limit,
            checkpoint=checkpoint,
            path=path,
            data_dir=data_dir,
            progress=tell,
        )
    if as_json:
        print(json.dumps(found.as_dict()))
        return
    console.print(str(found))
    if found.robust is not None:
        console.print(f"table and picture: {found.folder}")
