"""`opteq evaluate`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from opteq.cli.console import new_console
from opteq.cli.options import DataDir, Run


def evaluate(
    run: Run,
    suite: Annotated[
        list[str] | None,
        typer.Option(
            help="accuracy, calibration, corruption, attack, saliency, convergence or efficiency. "
            "May be repeated."
        ),
    ] = None,
    checkpoint: Annotated[str, typer.Option(help="best or last.")] = "best",
    data_dir: DataDir = None,
    limit: Annotated[int | None, typer.Option(help="Only so many test images.", min=1)] = None,
    adaptive: Annotated[
        bool,
        typer.Option("--adaptive", help="Also stop each image when its class can change no more."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Test a trained model: accuracy, loss, confusion, how its equilibria were reached."""
    from rich.table import Table

    from opteq.evaluation.evaluate import evaluate_run

    with new_console(stderr=True).status("") as status:
        found = evaluate_run(
            run,
            checkpoint=checkpoint,
            data_dir=data_dir,
            limit=limit,
            suites=suite or ["accuracy"],
            adaptive=adaptive,
            progress=status.update,
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
    if len(found.classes) <= 20:
        console.print(_confusion(found))
    if found.reliability is not None:
        from opteq.report.calibration import write_reliability

        path = write_reliability(found.reliability, run)
        console.print(f"reliability diagram: {path}")
    for part in found.tables:
        text = f"\n{part.title}\n{part.markdown()}"
        console.print(text)
    if found.pictures:
        from opteq.report.pictures import write_picture

        for name, picture in found.pictures.items():
            target = run / "evaluate" / f"{name}.png"
            write_picture(picture, target)
            console.print(f"picture: {target}")


def _confusion(found):
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
