"""The table and the page of a comparison."""

from __future__ import annotations

import csv
import io
import statistics
import sys
from pathlib import Path
from typing import Any

from opteq.environment import environment
from opteq.files import write_atomically
from opteq.report.page import ACCENT, MUTED, new_figure, render, svg
from opteq.training.comparison import Contender

_NOTE = (
    "Test figures of the last epoch, mean +- standard deviation over seeds. Time is that of the "
    "fastest training epoch, relative to the first row; solver steps are those of the test."
)
_HEADER = (
    "recipe",
    "parameters",
    "accuracy %",
    "each seed",
    "loss",
    "epoch s",
    "relative time",
    "solver steps",
    "not converged %",
)


def write_comparison(rows: list[Contender], output: Path) -> None:
    """table.csv, table.md, accuracy.png and report.html."""
    cells = [_cells(row, rows[0]) for row in rows]
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(_HEADER)
    writer.writerows(cells)
    write_atomically(output / "table.csv", buffer.getvalue().encode())
    write_atomically(output / "table.md", (comparison_table(rows) + "\n").encode())
    picture = io.BytesIO()
    _picture(rows).savefig(picture, format="png", dpi=130)
    write_atomically(output / "accuracy.png", picture.getvalue())
    # The picture shows each seed.
    shown = [i for i, name in enumerate(_HEADER) if name != "each seed"]
    render(
        "compare.html",
        output / "report.html",
        title="Comparison",
        protocol=_protocol(rows),
        picture=svg(_picture(rows)),
        header=[_HEADER[i] for i in shown],
        rows=[[line[i] for i in shown] for line in cells],
        note=_NOTE,
        command=environment()["command"],
    )


def comparison_table(rows: list[Contender]) -> str:
    """As Markdown, with the protocol."""
    cells = [list(_HEADER), *(_cells(row, rows[0]) for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(_HEADER))]
    lines = [
        "| "
        + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        + " |"
        for line in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join([*lines, "", _protocol(rows), _NOTE])


def _protocol(rows: list[Contender]) -> str:
    first = rows[0].recipe
    data, train = first.data, first.train
    limit = f"{data.limit_train:,} training images" if data.limit_train else "all images"
    tests = rows[0].tests[0]["images"]
    return (
        f"{data.name}, {limit}, {tests:,} test images, {train.epochs} epochs, "
        f"{len(rows[0].tests)} seeds; threads: {environment()['threads']}; "
        f"command: {' '.join([Path(sys.argv[0]).name, *sys.argv[1:]])}"
    )


def _cells(row: Contender, first: Contender) -> list[str]:
    accuracy = [100 * value for value in row.values("accuracy")]
    seconds = min(row.seconds)
    steps, bad = row.values("steps"), row.values("unconverged")
    return [
        row.recipe.name,
        f"{row.parameters:,}",
        _mean(accuracy, 2),
        " / ".join(f"{value:.2f}" for value in accuracy),
        _mean(row.values("loss"), 4),
        f"{seconds:.1f}",
        f"{seconds / min(first.seconds):.2f}",
        f"{statistics.mean(steps):.1f}" if steps else "-",
        f"{100 * statistics.mean(bad):.2f}" if bad else "-",
    ]


def _mean(values: list[float], digits: int) -> str:
    mean = f"{statistics.mean(values):.{digits}f}"
    return mean if len(values) < 2 else f"{mean} +- {statistics.stdev(values):.{digits}f}"


def _picture(rows: list[Contender]) -> Any:
    figure, axes = new_figure(8.4, 0.9 + 0.42 * len(rows))
    axis = axes[0, 0]
    for position, row in enumerate(rows):
        values = [100 * value for value in row.values("accuracy")]
        axis.plot(values, [position] * len(values), "o", color=ACCENT, alpha=0.5, markersize=5)
        axis.plot(statistics.mean(values), position, "|", color=ACCENT, markersize=16, mew=2.5)
    axis.set_yticks(range(len(rows)), [row.recipe.name for row in rows])
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.set_xlabel("test accuracy, %: each seed and their mean", color=MUTED)
    return figure
