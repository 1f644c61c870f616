"""What stands beside every comparison: the same model with its gates open, and with its map applied
once instead of solved."""

from __future__ import annotations

from collections.abc import Callable

from opteq.papers.engine.experiment import APPLIED_ONCE, Row, Tiny
from opteq.papers.engine.results import Results
from opteq.papers.engine.verdicts import Statement, Verdict, points

GEQ = Row("GEQ", Tiny("geq"), control=True)
GATE_OFF = Row("GEQ, gate off", Tiny("geq", {"gamma": 1e-6}), control=True)
ONCE = Row("GEQ, map applied once", Tiny("geq", APPLIED_ONCE), control=True)
MOPTEQ_ONCE = Row("MOptEq, map applied once", Tiny("mopteq", APPLIED_ONCE), control=True)
DEEP_ONCE = Row("deep OptEq, map applied once", Tiny("deep", APPLIED_ONCE), control=True)
CONTROLS = (GATE_OFF, ONCE)

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
