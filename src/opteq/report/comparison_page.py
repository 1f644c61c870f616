"""The table and the page of a comparison."""

from __future__ import annotations

from opteq.environment import environment
from opteq.exhibits import Dots
from opteq.files import write_atomically
from opteq.report.page import png, render, svg
from opteq.report.pictures import draw
from opteq.training.comparison import COMPARISON_NOTE, Comparison


def write_comparison(found: Comparison) -> None:
    """table.csv, table.md, accuracy.png and report.html."""
    table, output = found.table(), found.output
    write_atomically(output / "table.csv", table.csv())
    write_atomically(output / "table.md", f"{found}\n".encode())
    write_atomically(output / "accuracy.png", png(draw(_scores(found))))
    # The picture shows each seed.
    shown = [i for i, name in enumerate(table.header) if name != "each seed"]
    render(
        "compare.html",
        found.report,
        title="Comparison",
        protocol=found.protocol(),
        picture=svg(draw(_scores(found))),
        header=[table.header[i] for i in shown],
        rows=[[line[i] for i in shown] for line in table.rows],
        note=COMPARISON_NOTE,
        command=environment()["command"],
    )


def _scores(found: Comparison) -> Dots:
    values = {one.recipe.name: one.scores for one in found.contenders}
    return Dots("", f"test {found.score_name}", values, {})
