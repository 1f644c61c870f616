"""`opteq report`."""

from __future__ import annotations

import typer

from opteq.cli.options import DataDir, MovedImages, Run


def report(run: Run, path: MovedImages = None, data_dir: DataDir = None) -> None:
    """Rewrite the report of a run from its checkpoint and metrics, with the pictures that evaluate
    and certify have left in its folder.

    opteq report runs/geq_digits
    """
    from opteq.report.run_page import write_report
    from opteq.training.folder import RunFolder

    folder = RunFolder(run)
    write_report(folder, folder.data(data_dir, path))
    typer.echo(f"report: {folder.report}")
