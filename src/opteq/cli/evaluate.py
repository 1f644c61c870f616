"""`opteq evaluate`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from opteq.cli.console import new_console, progress_in_words
from opteq.cli.options import Checkpoint, DataDir, MovedImages, RunOrName

if TYPE_CHECKING:
    from rich.table import Table

    from opteq.evaluation.outcome import Evaluation


def evaluate(
    run: RunOrName,
    suite: Annotated[
        list[str] | None,
        typer.Option(
            help="accuracy, calibration, corruption, attack, saliency, convergence or efficiency. "
            "May be repeated."
        ),
    ] = None,
    checkpoint: Checkpoint = "best",
    path: MovedImages = None,
    data_dir: DataDir = None,
    limit: Annotated[int | None, typer.Option(help="At most this many test images.", min=1)] = None,
    adaptive: Annotated[
        bool,
        typer.Option(
            "--adaptive",
            help="Also stop each image once its class cannot change: proved, and calibrated.",
        ),
    ] = False,
    noise: Annotated[
        float | None,
        typer.Option(
            help="For models that restore images: standard deviation of the added noise, of 255.",
            min=0,
            max=255,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Test a trained model: accuracy, loss, confusion, how its equilibria were reached.

    opteq evaluate runs/geq_digits --suite calibration --suite attack
    """
    from rich.table import Table

    from opteq import workflow

    with progress_in_words() as tell:
        found = workflow.evaluate(
            run,
            checkpoint=checkpoint,
            path=path,
            data_dir=data_dir,
            limit=limit,
            suites=suite or ["accuracy"],
            adaptive=adaptive,
            noise=noise,
            progress=tell,
        )
    if as_json:
        print(json.dumps(found.as_dict()))
        return
    console = new_console()
    console.print(found.protocol)
    table = Table(show_header=False, box=None)
    for name, value in found.lines():
        table.add_row(name, value)
    console.print(table)
    if 0 < len(found.classes) <= 20:
        console.print(_confusion(found))
    for part in found.tables:
        console.print(f"\n{part.title}\n{part.markdown()}")
    for path in found.files:
        console.print(f"picture: {path}")


def _confusion(found: Evaluation) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(title="Confusion: true classes down, predictions across", box=None)
    table.add_column("")
    for name in found.classes:
        table.add_column(name[:6], justify="right")
    table.add_column("recall", justify="right")
    for name, row in zip(found.classes, found.confusion, strict=True):
        label = found.classes.index(name)
        cells = [
            Text(str(n), "bold") if i == label else Text(str(n) if n else ".", "" if n else "dim")
            for i, n in enumerate(row)
        ]
        recall = f"{100 * row[label] / sum(row):.1f}%" if sum(row) else "-"
        table.add_row(name, *cells, recall)
    return table
