"""S5: a problem that contracts slowly."""

from __future__ import annotations

import torch
from cells import solved, stiff_cell
from solves import Contender, fastest, peer, race

import opteq
from opteq.evaluation.benchmark import Benchmark, Finding, Outcome
from opteq.solve import Anderson, Broyden, ForwardBackward, Solver

TOL = 1e-5


def run(seconds, show) -> Outcome:
    outcome = Outcome()
    layer, u = stiff_cell()
    problem = layer.problem
    assert problem is not None
    show("|W| = 0.99")

    def ours(solver: Solver) -> Contender:
        own = opteq.Equilibrium(problem, solver=solver)
        return Contender(f"opteq, {type(solver).__name__}", lambda: solved(own, u))

    def bound():
        return problem.bind(u).map

    z0 = torch.zeros_like(u)
    peers = {"anderson": "Anderson", "broyden": "Broyden", "fixed_point_iter": "Picard"}
    contenders = [ours(s(tol=TOL, max_steps=400)) for s in (Anderson, Broyden, ForwardBackward)]
    contenders += [peer(f"torchdeq, {name}", kind, bound, z0, TOL) for kind, name in peers.items()]
    measured = race("|W| = 0.99", contenders, lambda z: problem.map(z, u), TOL, seconds)
    outcome.measurements += measured.values()
    names = [c.name for c in contenders if c.name.startswith("torchdeq")]
    reached = [measured[n].evaluations for n in names if not measured[n].note]
    best = min((n for n in reached if n is not None), default=400)
    mine = measured["opteq, Anderson"]
    assert mine.evaluations is not None
    assert mine.milliseconds is not None
    outcome.findings += [
        Finding("evaluations relative to the peer's fewest", mine.evaluations / best, at_most=1),
        Finding(
            "time relative to the peer's fastest",
            mine.milliseconds / fastest(measured, names),
            at_most=2 / 3,
        ),
    ]
    return outcome


BENCHMARK = Benchmark(
    "s5",
    "The stiff case",
    "Linear kernel, smooth 3x3 kernels of norm 0.99, state 64 x 16 x 16, batch 16, residual 1e-5, "
    "one thread. Both libraries with our cell; contenders that miss the tolerance do not count.",
    run,
)
