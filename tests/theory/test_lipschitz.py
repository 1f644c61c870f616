"""Bounds against attacks: never violated, and reached where they claim to be sharp."""

import math

import pytest
import torch
from torch import Tensor

import opteq
from opteq.equilibrium.chain import Chain
from opteq.equilibrium.unit import Unit
from opteq.errors import OptionError
from opteq.kernels import Gaussian, Linear, PatchGaussian
from opteq.operators import Conv2d, Dense, PatchProjection
from opteq.penalties import NonNegative
from opteq.problem import Problem, Similarity
from opteq.solve import Anderson, ForwardBackward
from opteq.theory import (
    certificate,
    gaussian_lipschitz,
    linear_lipschitz,
    sector_lipschitz,
    stretch,
)


def moved(layer, u, d):
    """|z(u + d) - z(u)| / |d| for each sample."""
    difference = layer(u + d) - layer(u)
    return difference.flatten(1).norm(dim=1) / d.flatten(1).norm(dim=1)


@pytest.mark.parametrize("w", [0.3, 0.6, 0.9, 1.0, 1.2, 1.4])
def test_the_gaussian_bound_is_sharp_within_one_percent(w):
    """10,000 injections of a two-dimensional layer: none above, the best within 1%."""
    torch.manual_seed(0)
    W = Dense.from_weight(w * torch.eye(2, dtype=torch.float64))
    problem = Problem(penalty=NonNegative(), similarity=Gaussian(W, gamma=1.0))
    layer = opteq.Equilibrium(problem, solver=ForwardBackward(tol=1e-12, max_steps=3000))
    u, best = 3 * torch.rand(5000, 2, dtype=torch.float64), 0.0
    for spread in (0.05, 0.005):
        angle = 2 * math.pi * torch.rand(5000, dtype=torch.float64)
        with torch.no_grad():
            ratios = moved(layer, u, 1e-4 * torch.stack([angle.cos(), angle.sin()], 1))
        best = max(best, float(ratios.max()))
        u = u[ratios.argmax()] + spread * torch.randn(5000, 2, dtype=torch.float64)
    bound = certificate(layer).lipschitz
    assert bound == pytest.approx(gaussian_lipschitz(w, parts=False), rel=1e-8)
    assert 0.99 * bound <= best <= bound


def drawn(kind: str) -> tuple[Similarity, Tensor]:
    """A similarity with random weights, and injections."""
    if kind == "dense":
        return Gaussian(Dense(6, 5, norm_bound=0.95), gamma=0.7), 2 * torch.randn(150, 5)
    if kind == "patches":
        projection = PatchProjection(patch=2, split=2, hidden=6)
        similarity = PatchGaussian(Conv2d(3, 4, norm_bound=1.2), projection, gamma=0.5)
        return similarity, 2 * torch.randn(60, 4, 4, 4)
    return Linear(Dense(6, 6, norm_bound=0.9)), 2 * torch.randn(150, 6)


@pytest.mark.parametrize("kind", ["dense", "patches", "linear", "chain"])
def test_attacks_do_not_exceed_the_bound(kind):
    found, bounds = [], []
    for seed in range(5):
        torch.manual_seed(seed)
        if kind == "chain":
            units = [
                Unit(Dense(5, 7, norm_bound=0.9), injection=torch.nn.Linear(5, 7), alpha=alpha)
                for alpha in (0.8, 1.0)
            ]
            problem, u = Chain(units), 2 * torch.randn(150, 5)
            solver = Anderson(tol=1e-11, max_steps=500)
        else:
            similarity, u = drawn(kind)
            problem = Problem(penalty=NonNegative(), similarity=similarity)
            solver = ForwardBackward(tol=1e-11, max_steps=500)
        layer = opteq.Equilibrium(problem, solver=solver).double()
        found.append(float(stretch(layer, u.double(), rounds=10).max()))
        bounds.append(certificate(layer).lipschitz)
        assert found[-1] <= bounds[-1] * (1 + 1e-6)  # what solves to 1e-11 leave
    assert max(a / b for a, b in zip(found, bounds, strict=True)) > 0.05


def test_the_linear_bound_is_reached():
    W = Dense.from_weight(0.9 * torch.eye(3, dtype=torch.float64))
    layer = opteq.Equilibrium(
        Problem(penalty=NonNegative(), similarity=Linear(W)), solver=Anderson(tol=1e-13)
    )
    u = torch.ones(1, 3, dtype=torch.float64)
    with torch.no_grad():
        ratio = float(moved(layer, u, 1e-3 * u))
    assert ratio == pytest.approx(linear_lipschitz(0.9), rel=1e-6)


def test_the_sector_bound_is_the_least_over_tau_of_a_maximum_over_s():
    """Against a plain search over both."""
    a, b = 1.0, 2 * math.exp(-1.5)
    for w in (0.2, 0.7, 1.0, 1.3):
        s = torch.linspace(0, w**2, 4001, dtype=torch.float64)[None]
        tau = torch.logspace(-3, 2, 4001, dtype=torch.float64)[:, None]
        D = tau * (1 + a * s) * (1 - b * s) - s
        value = tau * a * b + tau**2 * ((a - b) - 2 * a * b * s) ** 2 / (4 * D)
        value = torch.where((D > 0).all(1, keepdim=True), value, math.inf)
        searched = math.sqrt(float(value.amax(1).min()))
        assert sector_lipschitz(w) == pytest.approx(searched, rel=2e-3)


def test_bounds_end_where_uniqueness_ends():
    assert gaussian_lipschitz(1.4969) < math.inf == gaussian_lipschitz(1.4971)
    assert linear_lipschitz(1.0) == math.inf
    assert sector_lipschitz(0.0) == 0
    with pytest.raises(OptionError, match="at least 0"):
        sector_lipschitz(math.nan)
