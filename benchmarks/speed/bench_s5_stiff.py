"""S5: a problem that contracts slowly."""

from __future__ import annotations

import torch
from cells import stiff_cell
from solves import Contender, fastest, peer, race

import opteq
from opteq.evaluation.benchmark import Benchmark, Finding, Outcome
from opteq.solve import Anderson, Broyden, ForwardBackward

TOL = 1e-5


def run(seconds, show) -> Outcome:
    outcome = Outcome()
    layer, u = stiff_cell()
    problem = layer.problem
    show("|W| = 0.99")

    def ours(solver) -> Contender:
        own = opteq.Equilibrium(problem, solver=solver)

        def solve() -> tuple[torch.Tensor, int]:
            solution = own.solve(u)
            return solution.state, solution.evaluations

        return Contender(f"opteq, {type(solver).__name__}", solve)

    z0 = torch.zeros_like(u)
    peers = {"anderson": "Anderson", "broyden": "Broyden", "fixed_point_iter": "Picard"}
    contenders = [ours(s(tol=TOL, max_steps=400)) for s in (Anderson, Broyden, ForwardBackward)]
    contenders += [
        peer(f"torchdeq, {name}", kind, lambda: problem.bind(u).map, z0, TOL)
        for kind, name in peers.items()
    ]
    measured = race("|W| = 0.99", contenders, lambda z: problem.map(z, u), TOL, seconds)
    outcome.measurements += measured.values()
    names = [c.name for c in contenders if c.name.startswith("torchdeq")]
    reached = [measured[n].evaluations for n in names if not measured[n].note]
    mine = measured["opteq, Anderson"]
    best = min(reached, default=400)
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
