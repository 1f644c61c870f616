"""Layers with random weights whose bounds are attacked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Literal

import torch
from ascent import ROUNDS
from torch import Tensor

import opteq
from opteq.equilibrium import Branch, Branches, Chain, EquilibriumMap, Monotone, Proximal, Unit
from opteq.gradient import Implicit
from opteq.kernels import Gaussian, Linear, Measurement, PatchGaussian, Ridge
from opteq.operators import AveragePool, Conv2d, Dense, PatchProjection
from opteq.penalties import Free, NonNegative, Shrinkage, Softplus
from opteq.potentials import Potential, Ramp, Spline, Welsch
from opteq.problem import HeritageDiversity, Penalty, Problem, Similarity
from opteq.solve import Anderson, ForwardBackward, MemoryGradient, Newton, Picard, Solver


def _problem(similarity: Similarity, penalty: Penalty | None = None) -> EquilibriumMap:
    return Proximal(Problem(penalty=penalty or NonNegative(), similarity=similarity))


def _linear(norm: float, penalty: Penalty | None = None) -> EquilibriumMap:
    return _problem(Linear(Dense(6, 6, norm_bound=norm)), penalty)


def _gaussian(norm: float, penalty: Penalty | None = None) -> EquilibriumMap:
    gamma = float(torch.empty(()).uniform_(0.1, 3))
    return _problem(Gaussian(Dense(6, 5, norm_bound=norm), gamma=gamma), penalty)


def _patches() -> EquilibriumMap:
    projection = PatchProjection(patch=2, split=2, hidden=6)
    return _problem(PatchGaussian(Conv2d(3, 4, norm_bound=1.2), projection, gamma=0.5))


def _chain() -> EquilibriumMap:
    return Chain(
        [
            Unit(Dense(5, 7, norm_bound=0.9), injection=torch.nn.Linear(5, 7), alpha=alpha)
            for alpha in (0.8, 1.0)
        ]
    )


def _branches(
    weight: float, diversity: Literal["smooth", "sign", "none"] = "smooth"
) -> EquilibriumMap:
    injections = [Conv2d(3, 4, norm_bound=1.0), Conv2d(3, 5, norm_bound=1.0) @ AveragePool(2)]
    weights = [Conv2d(3, 4, norm_bound=0.9), Conv2d(3, 5, norm_bound=0.9)]
    coupling = HeritageDiversity(weight, diversity=diversity if weight else "none")
    return Branches(
        [Branch(w, u, channels=c) for w, u, c in zip(weights, injections, (4, 5), strict=True)],
        coupling=coupling,
    )


def _denoising(potential: Potential) -> EquilibriumMap:
    """A prior with everything that training can do to it done at random."""
    with torch.no_grad():
        for parameter in potential.parameters():
            parameter.add_(torch.randn_like(parameter))
    operator = Conv2d(1, 8, 5, norm_bound=1.0, zero_sum=True)
    prior = Ridge(operator, potential, scale=torch.empty(8).uniform_(0.3, 3))
    return Proximal(Problem(penalty=Free(), similarity=Measurement() + prior))


def _proximal() -> EquilibriumMap:
    """A layer that cannot stretch, with large weights."""
    prior = Ridge(Dense(5, 7, norm_bound=6.0), Ramp(), bias=torch.randn(7))
    return Proximal(Problem(penalty=Free(), similarity=Measurement() + prior))


def _monotone() -> EquilibriumMap:
    return Monotone(Dense(5, 5, norm_bound=None), Dense(5, 5, norm_bound=None), modulus=0.4)


BEYOND = "Gaussian, |W| <= 1.45"
MAPS: dict[str, tuple[Callable[[], EquilibriumMap], tuple[int, ...], Solver]] = {
    "linear": (lambda: _linear(0.9), (6,), ForwardBackward()),
    "linear, shrinkage": (lambda: _linear(0.7, Shrinkage(0.1)), (6,), ForwardBackward()),
    "Gaussian": (lambda: _gaussian(0.95), (5,), ForwardBackward()),
    "Gaussian, softplus": (lambda: _gaussian(0.95, Softplus()), (5,), ForwardBackward()),
    BEYOND: (lambda: _gaussian(1.45), (5,), ForwardBackward()),
    "Gaussian patches": (_patches, (4, 4, 4), ForwardBackward()),
    "chain": (_chain, (5,), Anderson()),
    "branches": (lambda: _branches(0.0), (3, 4, 4), Anderson()),
    "branches with diversity": (lambda: _branches(0.1), (3, 4, 4), Picard(damping=0.5)),
    "denoising, convex": (lambda: _denoising(Spline(5.0)), (1, 6, 6), MemoryGradient()),
    "denoising, weakly convex": (
        lambda: _denoising(Spline(5.0, 0.8)),
        (1, 6, 6),
        MemoryGradient(),
    ),
    "denoising, Gaussians": (
        lambda: _denoising(Welsch((1.0, 1.0), (1.0, 30.0), rho=0.8)),
        (1, 6, 6),
        MemoryGradient(),
    ),
    "proximal, ramp": (_proximal, (5,), Newton()),
    "monotone": (_monotone, (5,), ForwardBackward()),
}


def instances(name: str, tries: int) -> Iterator[tuple[opteq.Equilibrium, Tensor]]:
    """Ten layers with random weights, each with inputs for a tenth of the tries."""
    make, shape, solver = MAPS[name]
    starts = max(1, math.ceil(tries / ROUNDS / 10))
    for seed in range(10):
        torch.manual_seed(seed)
        layer = opteq.Equilibrium(
            make(),
            solver=replace(solver, tol=1e-12, max_steps=5000, on_failure="ignore"),
            gradient=Implicit(),
            allow_uncertified=True,
        )
        size = float(torch.empty(()).uniform_(0.3, 4))
        yield layer.double().eval(), size * torch.randn(starts, *shape, dtype=torch.float64)
