"""`opteq export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opteq.cli.options import DataDir, MovedImages, RunOrName


def export(
    run: RunOrName,
    format: Annotated[str, typer.Option(help="onnx or torch-export.")] = "onnx",
    output: Annotated[
        Path | None, typer.Option(help="The file. (default: RUN/model.onnx or RUN/model.pt2)")
    ] = None,
    steps: Annotated[
        str, typer.Option(help="Steps of each equilibrium, or auto: as many as it needs.")
    ] = "auto",
    strict: Annotated[bool, typer.Option("--strict", help="torch.export's strict mode.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
    path: MovedImages = None,
    data_dir: DataDir = None,
) -> None:
    """Export a trained model so that it runs without opteq: a fixed number of steps, weights as
    numbers, class names inside. How far that is from the equilibrium is measured on test images and
    kept in the file.

    opteq export runs/geq_digits --format onnx
    """
    from opteq.errors import OptionError
    from opteq.workflow.export import export as exported

    if steps != "auto" and not steps.isdecimal():
        raise OptionError(f"--steps {steps!r} is not a number.", "Give a number, or auto.")
    found = exported(
        run,
        output,
        format=format,  # type: ignore[arg-type]
        steps="auto" if steps == "auto" else int(steps),
        path=path,
        data_dir=data_dir,
        strict=strict,
        force=force,
        progress=lambda text: typer.echo(text, err=True),
    )
    typer.echo(str(found))
