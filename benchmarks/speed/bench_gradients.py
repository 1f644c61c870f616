"""What each gradient rule costs, and how near the exact gradient it is."""

from __future__ import annotations

import torch
from cells import CHANNELS, trained_cell
from torch import nn
from torch.nn import functional

import opteq
from opteq.evaluation.benchmark import Benchmark, Finding, Measurement, Outcome
from opteq.evaluation.timing import best_times
from opteq.gradient import Implicit, OneStep, Phantom, Unrolled
from opteq.solve import Anderson

RULES = {
    "one step": OneStep(),
    "phantom, 5 steps": Phantom(),
    "implicit to 1e-1": Implicit(tol=1e-1),
    "implicit to 1e-2": Implicit(tol=1e-2),
    "implicit to 1e-5": Implicit(tol=1e-5),
    "unrolled, 20 steps": Unrolled(steps=20),
}


def run(seconds, show) -> Outcome:
    outcome = Outcome()
    show("training the cell")
    cell, x = trained_cell()
    x = x[:16]
    torch.manual_seed(1)
    head, labels = nn.Linear(CHANNELS, 10), torch.randint(10, (len(x),))
    parameters = list(cell.parameters())

    def gradient(rule, tol):
        layer = opteq.Equilibrium(cell.problem, solver=Anderson(tol=tol), gradient=rule)
        loss = functional.cross_entropy(head(layer(cell.injection(x)).mean((2, 3))), labels)
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)])

    exact = gradient(Implicit(tol=1e-6), 1e-6)
    show("rules in turns")
    times = best_times(
        {name: lambda rule=rule: gradient(rule, 1e-3) for name, rule in RULES.items()},
        seconds=2 * seconds,
    )
    for name, rule in RULES.items():
        found = gradient(rule, 1e-3)
        cosine = float(functional.cosine_similarity(found, exact, dim=0))
        error = float((found - exact).norm() / exact.norm())
        outcome.measurements.append(
            Measurement(
                "forward to 1e-3",
                name,
                1e3 * times[name],
                note=f"cosine {cosine:.5f}, relative error {error:.1e}",
            )
        )
    ratio = times["one step"] / times["phantom, 5 steps"]
    outcome.findings.append(Finding("one step / phantom, time", ratio))
    return outcome


BENCHMARK = Benchmark(
    "gradients",
    "Gradient rules: cost and accuracy",
    "Forward and backward of the trained cell of s2, batch 16, one thread; errors of the gradient "
    "in all weights of cell and injection, against the implicit gradient with every solve to 1e-6.",
    run,
)
