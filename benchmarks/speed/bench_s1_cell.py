"""S1: a forward solve as users of each library would write it."""

from __future__ import annotations

import torch
from arithmetic import bare_rate, count_flops
from cells import CHANNELS, SIDE, GeqCell, PlainCell, geq_cell, solved
from solves import Contender, peer, race

import opteq
from opteq.evaluation.benchmark import Benchmark, Finding, Measurement, Outcome
from opteq.solve import Anderson


def ours(cell: GeqCell, x: torch.Tensor, tol: float) -> Contender:
    layer = opteq.Equilibrium(cell.problem, solver=Anderson(tol=tol))
    return Contender("opteq, Anderson", lambda: solved(layer, cell.injection(x)))


def run(seconds, show) -> Outcome:
    outcome = Outcome()
    cell, x = geq_cell()
    plain = PlainCell(cell)
    z0 = torch.zeros(len(x), CHANNELS, SIDE, SIDE)
    with torch.no_grad():
        u = cell.injection(x)
        assert torch.allclose(plain(z0 + 0.1, x), cell.problem.map(z0 + 0.1, u), atol=1e-5)
    for tol in (1e-3, 1e-5):
        show(f"residual {tol:g}")
        contenders = [
            ours(cell, x, tol),
            peer(
                "torchdeq, Anderson, plain cell", "anderson", lambda: lambda z: plain(z, x), z0, tol
            ),
        ]
        with torch.no_grad():
            measured = race(
                f"residual {tol:g}", contenders, lambda z: cell.problem.map(z, u), tol, seconds
            )
        outcome.measurements += measured.values()
        with torch.no_grad():
            alone = count_flops(contenders[0].solve) / bare_rate()
        outcome.measurements.append(
            Measurement(f"residual {tol:g}", "opteq's convolutions alone", 1e3 * alone)
        )
        times = (m.milliseconds for m in measured.values())
        mine, other = (t for t in times if t is not None)
        outcome.findings.append(
            Finding(
                f"times faster than torchdeq with a plain cell at {tol:g}", other / mine, at_least=3
            )
        )
    return outcome


BENCHMARK = Benchmark(
    "s1",
    "Forward solve, each library as its users write it",
    "Patch-Gaussian cell: state 128 x 32 x 32, middle 64, patch 2, split 8, hidden 64, |W| = 0.9, "
    "batch 32, random weights, one thread. The peer's cell follows the paper's algorithm.",
    run,
)
