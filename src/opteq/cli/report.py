"""`opteq report`."""

from __future__ import annotations

import typer

from opteq.cli.options import DataDir, Run


def report(run: Run, data_dir: DataDir = None) -> None:
    """Rewrite the report of a run from its checkpoint and metrics, with the pictures that evaluate
    and certify have left in its folder.

    opteq report runs/geq_digits
    """
    from opteq.data.catalogue import load_data
    from opteq.report.run_page import write_report
    from opteq.training.folder import RunFolder

    folder = RunFolder(run)
    write_report(folder, load_data(folder.recipe.data, data_dir))
    typer.echo(f"report: {folder.report}")
