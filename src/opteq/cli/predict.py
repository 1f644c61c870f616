"""`opteq predict`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opteq.cli.options import Run


def predict(
    run: Run,
    images: Annotated[list[Path], typer.Argument(help="Image files.")],
    top: Annotated[int, typer.Option(help="How many classes to show.", min=1)] = 3,
) -> None:
    """Classify your own images with a trained model."""
    from opteq.errors import DataError
    from opteq.workflow.predict import each_prediction

    failed = 0
    for path, answer in each_prediction(run, images, top=top):
        if isinstance(answer, DataError):
            failed += 1
            typer.echo(f"{path}: {answer.problem}", err=True)
            continue
        typer.echo(f"{path}: {answer}")
    if failed:
        raise typer.Exit(2)
