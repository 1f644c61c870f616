"""S3: what a solve costs beyond its evaluations of the map."""

from __future__ import annotations

import torch
from cells import geq_cell

from opteq.equilibrium.proximal import Proximal
from opteq.evaluation.benchmark import Benchmark, Finding, Measurement, Outcome
from opteq.evaluation.timing import best_times
from opteq.kernels import Gaussian
from opteq.operators import Dense
from opteq.penalties import NonNegative
from opteq.problem import Problem
from opteq.solve import Anderson, solve
from opteq.states import fast_order, in_order


def run(seconds, show) -> Outcome:
    outcome = Outcome()
    cell, x = geq_cell()
    with torch.no_grad():
        _measure(outcome, "convolution", cell.problem, cell.injection(x), 1.10, seconds, show)
        torch.manual_seed(0)
        dense = Problem(
            penalty=NonNegative(), similarity=Gaussian(Dense(512, 512, norm_bound=0.9), gamma=0.001)
        )
        u = torch.randn(256, 512)
        _measure(outcome, "dense 512, batch 256", dense.eval(), u, 1.30, seconds, show)
    return outcome


def _measure(outcome, name, problem, u, target, seconds, show) -> None:
    u = fast_order(u)
    bound = Proximal(problem).bind(u)
    start = in_order(bound.start(), u)
    point = bound(bound(start))
    for tol in (1e-3, 1e-5):
        setting = f"{name}, residual {tol:g}"
        show(setting)
        solver = Anderson(tol=tol)
        solution = solve(bound, start, solver)
        times = best_times(
            {
                "bare map": lambda: bound(point),
                "solve": lambda solver=solver: solve(bound, start, solver),
            },
            seconds=seconds,
        )
        count, residual = solution.evaluations, float(solution.residual.max())
        outcome.measurements += [
            Measurement(setting, "bare map", 1e3 * times["bare map"], 1),
            Measurement(setting, "solve", 1e3 * times["solve"], count, residual),
        ]
        outcome.findings.append(
            Finding(
                f"solve / (evaluations x bare map), {setting}",
                times["solve"] / (count * times["bare map"]),
                at_most=target,
            )
        )


BENCHMARK = Benchmark(
    "s3",
    "Solver overhead",
    "Anderson on the cell of s1 and on a dense Gaussian kernel, |W| = 0.9, one thread.",
    run,
)
