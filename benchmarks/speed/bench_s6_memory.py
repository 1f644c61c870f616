"""S6: peak memory of a training step against the number of solver steps."""

from __future__ import annotations

import subprocess
import sys

from opteq.evaluation.benchmark import Benchmark, Finding, Measurement, Outcome

STEPS = (5, 10, 25, 50, 100)
RULES = ("Implicit", "Phantom", "OneStep", "Unrolled")
_PROGRAM = """
import resource, sys, torch, opteq
from opteq.operators import Conv2d
from opteq.kernels import Gaussian
from opteq.penalties import NonNegative
from opteq.problem import Problem
from opteq.solve import Picard
torch.set_num_threads(1)
rule, steps = sys.argv[1], int(sys.argv[2])
torch.manual_seed(0)
kernel = Gaussian(Conv2d(32, 32, norm_bound=0.9), gamma=1e-3)
problem = Problem(penalty=NonNegative(), similarity=kernel)
options = {"Unrolled": {"steps": steps}}.get(rule, {})
solver = Picard(tol=0.0, max_steps=steps, on_failure="ignore")
layer = opteq.Equilibrium(problem, solver=solver, gradient=getattr(opteq.gradient, rule)(**options))
u = torch.randn(64, 32, 32, 32, requires_grad=True)
warm = torch.randn(1, 32, 8, 8, requires_grad=True)
layer(warm).sum().backward()
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
pages = int(open("/proc/self/statm").read().split()[1])
# Imports needed more than is in use now: fill up to that, so that what follows shows.
ballast = torch.ones(max(0, peak() - pages * resource.getpagesize()) // 4)
before = peak()
layer(u).square().sum().backward()
print(peak() - before)
"""


def run(seconds, show) -> Outcome:
    outcome = Outcome()
    for rule in RULES:
        peaks = []
        for steps in STEPS:
            show(f"{rule}, {steps} steps")
            peaks.append(min(_peak(rule, steps) for _ in range(3)))
            outcome.measurements.append(
                Measurement(f"{steps} steps", rule, note=f"{peaks[-1]:.1f} MB")
            )
        outcome.curves["solver steps", f"{rule} (MB)"] = list(zip(STEPS, peaks, strict=True))
        growth = max(peaks) / min(peaks)
        if rule == "Unrolled":
            outcome.findings.append(Finding("largest / least peak, Unrolled", growth, at_least=2))
        else:
            outcome.findings.append(Finding(f"largest / least peak, {rule}", growth, at_most=1.05))
    return outcome


def _peak(rule: str, steps: int) -> float:
    command = [sys.executable, "-c", _PROGRAM, rule, str(steps)]
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(finished.stdout) / 2**20


BENCHMARK = Benchmark(
    "s6",
    "Memory of a training step",
    "Growth of the process's peak memory over one forward and backward pass, each in a process of "
    "its own; state 32 x 32 x 32, batch 64, exactly so many Picard steps.",
    run,
)
