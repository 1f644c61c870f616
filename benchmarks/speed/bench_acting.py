"""Equilibria that act: GEQ beyond contraction, where plain steps diverge."""

from __future__ import annotations

import torch
from cells import solved
from solves import Contender, fastest, peer, race
from torch import Tensor

import opteq
from opteq.evaluation.benchmark import Benchmark, Finding, Outcome
from opteq.kernels import GammaRule, PatchGaussian
from opteq.operators import Conv2d, PatchProjection, start_orthogonal
from opteq.penalties import NonNegative
from opteq.problem import BoundProblem, Problem
from opteq.problem.statistics import statistics_move
from opteq.solve import Anderson, ForwardBackward, Nesterov

NORMS = (1.45, 3.0)
TOL = 1e-3
CHANNELS, MIDDLE, SIDE, BATCH = 32, 32, 16, 32
MOST = 400


def run(seconds, show) -> Outcome:
    outcome = Outcome()
    for norm in NORMS:
        setting = f"|W| = {norm:g}"
        show(setting)
        problem, u = _cell(norm)
        z0 = problem.bind(u).similarity.zeros()

        def ours(name, solver, problem=problem, u=u) -> Contender:
            layer = opteq.Equilibrium(problem, solver=solver, allow_uncertified=True)
            return Contender(name, lambda: solved(layer, u))

        def bound(problem=problem, u=u):
            return problem.bind(u).map

        quiet = {"tol": TOL, "max_steps": MOST, "on_failure": "ignore"}
        mine = "opteq, ForwardBackward"
        peers = {"anderson": "Anderson", "broyden": "Broyden"}
        contenders = [
            ours(mine, ForwardBackward(**quiet)),
            ours("opteq, Nesterov", Nesterov(**quiet)),
            ours("opteq, Anderson", Anderson(**quiet)),
            Contender("accelerated descent", lambda p=problem, u=u, n=norm: _accelerated(p, u, n)),
            *(peer(f"torchdeq, {name}", kind, bound, z0, TOL) for kind, name in peers.items()),
        ]
        measured = race(setting, contenders, lambda z, p=problem, u=u: p.map(z, u), TOL, seconds)
        outcome.measurements += measured.values()
        others = [c.name for c in contenders if not c.name.startswith("opteq")]
        there = [name for name in others if not measured[name].note]
        if not there:
            continue
        milliseconds, evaluations = measured[mine].milliseconds, measured[mine].evaluations
        assert milliseconds is not None
        assert evaluations is not None
        fewest = min(measured[name].evaluations or MOST for name in there)
        outcome.findings += [
            Finding(
                f"time relative to the fastest other, {setting}",
                milliseconds / fastest(measured, there),
                at_most=1,
            ),
            Finding(
                f"evaluations relative to the fewest of others, {setting}", evaluations / fewest
            ),
        ]
    return outcome


def _cell(norm: float) -> tuple[Problem, Tensor]:
    """A patch-Gaussian branch near an isometry, with gates of this batch."""
    torch.manual_seed(0)
    W = Conv2d(CHANNELS, MIDDLE, norm_bound=norm)
    start_orthogonal(W)
    projection = PatchProjection(patch=2, split=8, hidden=32)
    problem = Problem(
        penalty=NonNegative(), similarity=PatchGaussian(W, projection, GammaRule(0.2, "mean"))
    )
    u = torch.randn(BATCH, MIDDLE, SIDE, SIDE)
    with torch.no_grad(), statistics_move():
        problem.train().bind(u)
    return problem.eval(), u


@torch.no_grad()
def _accelerated(problem: Problem, u: Tensor, norm: float) -> tuple[Tensor, int]:
    """Projected gradient steps of 1 / (1 + |W|^2) with Nesterov's momentum, started again whenever
    the gradient turns against the movement, as a user would write them [O'Donoghue and Candes];
    all samples together, until the last is done."""
    bound: BoundProblem = problem.bind(u)
    step = 1 / (1 + norm**2)
    z = bound.similarity.zeros()
    ahead, t = z, 1.0
    for count in range(1, MOST + 1):
        gradient = bound.similarity.gradient(ahead)
        image = torch.relu(gradient)
        gap = (image - ahead).flatten(1).norm(dim=1)
        if bool((gap <= TOL * image.flatten(1).norm(dim=1)).all()):
            return ahead, count
        following = torch.relu(ahead + step * (gradient - ahead))
        if bool(((ahead - following) * (following - z)).sum() > 0):
            t = 1.0
        longer = (1 + (1 + 4 * t * t) ** 0.5) / 2
        ahead = following + (t - 1) / longer * (following - z)
        z, t = following, longer
    return ahead, MOST


BENCHMARK = Benchmark(
    "acting",
    "Equilibria that act",
    f"Patch-Gaussian branch near an isometry, state {CHANNELS} x {SIDE} x {SIDE}, batch {BATCH}, "
    "residual 1e-3, one thread. At a norm of 1.45 the equilibrium is proved unique, at 3 it is a "
    "stationary point. Contenders that miss the tolerance do not count.",
    run,
)
