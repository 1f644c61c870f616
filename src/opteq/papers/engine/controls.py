"""What stands beside every comparison: the same model with its gates open, and with its map applied
once instead of solved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from opteq.papers.engine.experiment import APPLIED_ONCE, Paper, Row, Tiny
from opteq.papers.engine.results import Results
from opteq.papers.engine.verdicts import Statement, Verdict, points

GEQ = Row("GEQ", Tiny("geq"), control=True)
GATE_OFF = Row("GEQ, gate off", Tiny("geq", {"gamma": 1e-6}), control=True)
ONCE = Row("GEQ, map applied once", Tiny("geq", APPLIED_ONCE), control=True)
MOPTEQ_ONCE = Row("MOptEq, map applied once", Tiny("mopteq", APPLIED_ONCE), control=True)
DEEP_ONCE = Row("deep OptEq, map applied once", Tiny("deep", APPLIED_ONCE), control=True)
CONTROLS = (GATE_OFF, ONCE)


def at_paper_scale(row: Row, recipe: str, group: str = "") -> Row:
    """The same contender at the papers' scale too: the same changes to this recipe."""
    assert row.tiny is not None
    paper = Paper(recipe, row.tiny.options, row.tiny.settings)
    return replace(row, paper=paper, group=group)


def paper_controls(recipe: str, group: str) -> tuple[Row, ...]:
    """GEQ's two controls at the papers' scale alone, for one data set of several."""
    return tuple(replace(at_paper_scale(row, recipe, group), tiny=None) for row in CONTROLS)


Compare = Callable[[str, str, str], Callable[[Results], Verdict]]


def gate_claim(key: str = "accuracy", compare: Compare = points, where: str = "") -> Statement:
    """Ours: GEQ against itself with open gates."""
    return Statement(
        f"(ours) the gate makes the difference{where}", compare("GEQ", "GEQ, gate off", key)
    )


def equilibrium_claim(
    key: str = "accuracy",
    compare: Compare = points,
    name: str = "GEQ",
    once: str | None = None,
) -> Statement:
    """Ours: a model against one application of its map."""
    other = f"{name}, map applied once" if once is None else once
    return Statement("(ours) the equilibrium makes the difference", compare(name, other, key))
