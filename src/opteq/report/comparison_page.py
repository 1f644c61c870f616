"""The table and the page of a comparison."""

from __future__ import annotations

import itertools
import os
import statistics

from opteq.environment import environment
from opteq.exhibits import Curves, Dots, Series
from opteq.files import write_atomically
from opteq.report.page import png, render, svg
from opteq.report.pictures import draw
from opteq.training.comparison import COMPARISON_NOTE, Comparison, Contender
from opteq.training.scores import shown_score


def write_comparison(found: Comparison) -> None:
    """table.csv, table.md, accuracy.png and report.html; epochs.png and seconds.png if runs were
    tested more than once."""
    table, output = found.table(), found.output
    write_atomically(output / "table.csv", table.csv())
    write_atomically(output / "table.md", f"{found}\n".encode())
    write_atomically(output / "accuracy.png", png(draw(_scores(found))))
    learning = _learning(found)
    for name, curves in zip(("epochs", "seconds"), learning, strict=False):
        write_atomically(output / f"{name}.png", png(draw(curves)))
    # The picture shows each seed.
    shown = [i for i, name in enumerate(table.header) if name != "each seed"]
    render(
        "compare.html",
        found.report,
        title="Comparison",
        protocol=found.protocol(),
        picture=svg(draw(_scores(found))),
        learning=[svg(draw(curves)) for curves in learning],
        header=[table.header[i] for i in shown],
        rows=[
            (_links(one, found), [line[i] for i in shown])
            for one, line in zip(found.contenders, table.rows, strict=True)
        ],
        note=COMPARISON_NOTE.replace("+-", "±"),
        command=environment()["command"],
    )


def _scores(found: Comparison) -> Dots:
    values = {one.recipe.name: one.scores for one in found.contenders}
    return Dots("", f"test {found.score_name}", values, {}, _most(found))


def _learning(found: Comparison) -> list[Curves]:
    """The score over epochs and over training time, means over seeds, with an epoch taking as long
    as that of the fastest seed; nothing where runs were tested once."""
    epochs, seconds = {}, {}
    for one in found.contenders:
        tested = [[i for i, r in enumerate(records) if "test" in r] for records in one.records]
        common = [i for i in tested[0] if all(i in places for places in tested)]
        if len(common) < 2:
            continue
        scores = [[shown_score(records[i]["test"]) for i in common] for records in one.records]
        mean = [statistics.mean(at) for at in zip(*scores, strict=True)]
        spread = None
        if len(scores) > 1:
            spread = [statistics.stdev(at) for at in zip(*scores, strict=True)]
        fastest = (min(r["seconds"] for r in at) for at in zip(*one.records, strict=False))
        times = list(itertools.accumulate(fastest))
        name = one.recipe.name
        epochs[name] = Series([one.records[0][i]["epoch"] for i in common], mean, spread)
        seconds[name] = Series([times[i] for i in common], mean, spread)
    if not epochs:
        return []
    score = f"test {found.score_name}"
    return [
        Curves("Over epochs", "epoch", score, epochs, most=_most(found)),
        Curves("Over time", "seconds of training", score, seconds, most=_most(found)),
    ]


def _most(found: Comparison) -> float | None:
    return 100.0 if found.score_name.endswith("%") else None


def _links(one: Contender, found: Comparison) -> list[tuple[str, str]]:
    """(seed, address) of the report of each run, from where the page is."""
    return [
        (str(seed), os.path.relpath(run.report, found.output).replace(os.sep, "/"))
        for seed, run in enumerate(one.runs)
        if run.report.is_file()
    ]
