"""S2: the solver alone, both libraries with our cell."""

from __future__ import annotations

import torch
from cells import CHANNELS, SIDE, GeqCell, geq_cell, solved, trained_cell
from solves import Contender, peer, race

import opteq
from opteq.evaluation.benchmark import Benchmark, Finding, Outcome
from opteq.solve import Anderson, Picard, Solver


def run(seconds, show) -> Outcome:
    outcome = Outcome()
    for weights, make in (("random", geq_cell), ("trained", trained_cell)):
        show(f"{weights} weights")
        cell, x = make()
        for tol in (1e-3, 1e-5):
            show(f"{weights} weights, residual {tol:g}")
            _compare(outcome, cell, x, weights, tol, seconds)
    return outcome


def _compare(outcome, cell: GeqCell, x, weights: str, tol: float, seconds: float) -> None:
    with torch.no_grad():
        u = cell.injection(x)
    z0 = torch.zeros(len(x), CHANNELS, SIDE, SIDE)

    def ours(name: str, solver: Solver) -> Contender:
        layer = opteq.Equilibrium(cell.problem, solver=solver)
        return Contender(name, lambda: solved(layer, u))

    def bound():
        # Once a solve, as in ours. The peer has no way to ask for another memory order.
        return cell.problem.bind(u).map

    contenders = [
        ours("opteq, Anderson", Anderson(tol=tol)),
        ours("opteq, Picard", Picard(tol=tol)),
        peer("torchdeq, Anderson", "anderson", bound, z0, tol),
        peer("torchdeq, Picard", "fixed_point_iter", bound, z0, tol),
    ]
    setting = f"{weights} weights, residual {tol:g}"
    measured = race(setting, contenders, lambda z: cell.problem.map(z, u), tol, seconds)
    outcome.measurements += measured.values()
    time = {n: m.milliseconds for n, m in measured.items() if m.milliseconds is not None}
    mine = time["opteq, Anderson"]
    outcome.findings += [
        Finding(
            f"times faster than torchdeq's Anderson, {setting}",
            time["torchdeq, Anderson"] / mine,
            at_least=1.5 if tol == 1e-3 else 2,
        ),
        Finding(
            f"time relative to the faster Picard, {setting}",
            mine / min(time["opteq, Picard"], time["torchdeq, Picard"]),
            at_most=1,
        ),
    ]


BENCHMARK = Benchmark(
    "s2",
    "Forward solve, both libraries with our cell",
    "The cell of s1. Trained weights: 12 steps on digits enlarged to 32 x 32. One thread.",
    run,
)
