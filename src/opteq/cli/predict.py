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
    from opteq.evaluation.predict import predict_files

    failed = 0
    for path, answer in predict_files(run, images, top=top):
        if isinstance(answer, DataError):
            failed += 1
            typer.echo(f"{path}: {answer.problem}", err=True)
            continue
        words = ", ".join(f"{name} {100 * p:.1f}%" for name, p in answer.classes)
        note = "" if answer.converged else "  (not all equilibria converged)"
        typer.echo(f"{path}: {words}{note}")
    if failed:
        raise typer.Exit(2)
