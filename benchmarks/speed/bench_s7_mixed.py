"""S7: a batch in which most samples are easy."""

from __future__ import annotations

import torch
from solves import peer

import opteq
from opteq.evaluation.benchmark import Benchmark, Finding, Measurement, Outcome
from opteq.evaluation.timing import best_times
from opteq.kernels import Linear
from opteq.operators import Dense
from opteq.penalties import NonNegative
from opteq.problem import Problem
from opteq.solve import Picard

WIDTH, BATCH, HARD, TOL = 1024, 500, 50, 1e-4


def run(seconds, show) -> Outcome:
    outcome = Outcome()
    show("90% easy, 10% hard")
    torch.manual_seed(0)
    # Two blocks: in one the map contracts fast, in the other slowly. A sample lives in one of them.
    easy, slow = (torch.linalg.qr(torch.randn(WIDTH // 2, WIDTH // 2))[0] for _ in range(2))
    W = torch.block_diag(easy * 0.1**0.5, slow * 0.857**0.5)
    problem = Problem(penalty=NonNegative(), similarity=Linear(Dense.from_weight(W)))
    u = torch.zeros(BATCH, WIDTH)
    u[HARD:, : WIDTH // 2] = torch.rand(BATCH - HARD, WIDTH // 2)
    u[:HARD, WIDTH // 2 :] = torch.rand(HARD, WIDTH // 2)
    layer = opteq.Equilibrium(problem, solver=Picard(tol=TOL))
    with torch.no_grad():
        solution = layer.solve(u)
        bound = problem.bind(u)
        point = torch.rand(BATCH, WIDTH)
        other = peer("torchdeq, Picard", "fixed_point_iter", lambda: bound.map, 0 * u, TOL)
        count = other.solve()[1]
        times = best_times(
            {
                "bare map": lambda: bound.map(point),
                "opteq, Picard": lambda: layer.solve(u),
                "torchdeq, Picard": other.solve,
            },
            seconds=seconds,
        )
    steps = solution.steps.float()
    mean = float(steps.mean())
    outcome.measurements += [
        Measurement("mixed batch", "bare map", 1e3 * times["bare map"], 1),
        Measurement(
            "mixed batch",
            "opteq, Picard",
            1e3 * times["opteq, Picard"],
            solution.evaluations,
            float(solution.residual.max()),
            f"{float(steps[HARD:].mean()):.0f} steps for the easy, "
            f"{float(steps[:HARD].mean()):.0f} for the hard",
        ),
        Measurement("mixed batch", "torchdeq, Picard", 1e3 * times["torchdeq, Picard"], count),
    ]
    ideal = mean * times["bare map"]
    outcome.findings += [
        Finding(
            "time / ideal (each sample stops when it is done)",
            times["opteq, Picard"] / ideal,
            at_most=1.5,
        ),
        Finding("the peer's time / ideal", times["torchdeq, Picard"] / ideal),
    ]
    return outcome


BENCHMARK = Benchmark(
    "s7",
    "Mixed difficulty",
    "500 samples of width 1024, linear kernel: 90% need about 4 steps, 10% about 60 to a residual "
    "of 1e-4. The ideal is the mean number of steps times the time of the map on the whole batch.",
    run,
)
