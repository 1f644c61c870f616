"""How the cost of a solve grows with the batch, the channels, the image, the norm and the number
of branches."""

from __future__ import annotations

import math

import torch

import opteq
from opteq.evaluation.benchmark import Benchmark, Finding, Measurement, Outcome
from opteq.evaluation.timing import best_times
from opteq.kernels import GammaRule, Linear, PatchGaussian
from opteq.models import create_model
from opteq.operators import Conv2d, PatchProjection
from opteq.penalties import NonNegative
from opteq.problem import Problem
from opteq.solve import Anderson

BASE = {"batch": 32, "channels": 64, "side": 16}
AXES = {
    "batch": (1, 4, 16, 64, 256),
    "channels": (16, 32, 64, 128, 256),
    "side": (8, 16, 32, 64),
}
NORMS = (0.5, 0.7, 0.9, 0.95, 0.99, 0.999)


def run(seconds, show) -> Outcome:
    outcome = Outcome()
    for axis, values in AXES.items():
        points = []
        for value in values:
            show(f"{axis} {value}")
            points.append((value, _solve_time(seconds, **{**BASE, axis: value})))
            outcome.measurements.append(
                Measurement(f"{axis} {value}", "Gaussian, residual 1e-3", 1e3 * points[-1][1])
            )
        outcome.curves[axis, "seconds"] = points
        outcome.findings.append(Finding(f"exponent of time in {axis}", _slope(points)))
    for kernel in ("linear", "Gaussian"):
        points = []
        for norm in NORMS:
            show(f"|W| = {norm}, {kernel}")
            evaluations, spent = _norm_time(kernel, norm, seconds)
            points.append((1 / (1 - norm), evaluations))
            outcome.measurements.append(
                Measurement(f"|W| = {norm}", f"{kernel}, residual 1e-5", 1e3 * spent, evaluations)
            )
        outcome.curves["1 / (1 - |W|)", f"{kernel}: evaluations"] = points
        outcome.findings.append(
            Finding(f"exponent of evaluations in 1/(1-|W|), {kernel}", _slope(points))
        )
    points = []
    for branches in range(1, 7):
        show(f"{branches} branches")
        points.append((branches, _branch_time(branches, seconds)))
        outcome.measurements.append(
            Measurement(f"{branches} branches", "training step", 1e3 * points[-1][1])
        )
    outcome.curves["branches", "seconds"] = points
    outcome.findings.append(Finding("exponent of time in branches", _slope(points)))
    return outcome


@torch.no_grad()
def _solve_time(seconds: float, *, batch: int, channels: int, side: int) -> float:
    torch.manual_seed(0)
    W = Conv2d(channels, channels // 2, norm_bound=0.9)
    similarity = PatchGaussian(W, PatchProjection(), GammaRule())
    layer = opteq.Equilibrium(Problem(NonNegative(), similarity), solver=Anderson(tol=1e-3))
    u = torch.randn(batch, channels // 2, side, side)
    layer.solve(u)
    layer.eval()
    return best_times({"": lambda: layer.solve(u)}, seconds=seconds / 4)[""]


@torch.no_grad()
def _norm_time(kernel: str, norm: float, seconds: float) -> tuple[int, float]:
    torch.manual_seed(0)
    W = Conv2d(32, 32, norm_bound=norm)
    # Smooth kernels, whose slow directions are many.
    W.raw.copy_(torch.eye(32)[:, :, None, None] * torch.ones(3, 3) / 9)
    W.raw.add_(0.02 * torch.randn(32, 32, 3, 3) / 6).mul_(norm / W.norm())
    similarity = (
        Linear(W) if kernel == "linear" else PatchGaussian(W, PatchProjection(), GammaRule())
    )
    problem = Problem(NonNegative(), similarity)
    layer = opteq.Equilibrium(problem, solver=Anderson(tol=1e-5, max_steps=1000))
    u = torch.randn(16, 32, 16, 16)
    evaluations = layer.solve(u).evaluations
    layer.eval()
    return evaluations, best_times({"": lambda: layer.solve(u)}, seconds=seconds / 4)[""]


def _branch_time(branches: int, seconds: float) -> float:
    torch.manual_seed(0)
    model = create_model(
        "geq_tiny", channels=32, middle=(32,) * branches, sides=(16,) * branches, reductions=0
    )
    images = torch.rand(16, 3, 16, 16)
    return best_times({"": lambda: model(images).sum().backward()}, seconds=seconds / 4)[""]


def _slope(points: list[tuple[float, float]]) -> float:
    """Of a straight line through the logarithms, by least squares."""
    x, y = ([math.log(p[i]) for p in points] for i in (0, 1))
    mx, my = sum(x) / len(x), sum(y) / len(y)
    rise = sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True))
    return rise / sum((a - mx) ** 2 for a in x)


BENCHMARK = Benchmark(
    "growth",
    "How cost grows",
    "Solves of a patch-Gaussian cell (batch 32, 64 channels, 16 x 16, |W| = 0.9) along one axis at "
    "a time; evaluations on smooth kernels of several norms; training steps with more branches.",
    run,
)
