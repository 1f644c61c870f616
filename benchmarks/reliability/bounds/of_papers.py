"""The papers' own bounds, where their conditions hold."""

from __future__ import annotations

import torch
from ascent import Ratios, ascend, stretched
from torch import Tensor

import opteq
from opteq.gradient import Implicit
from opteq.kernels import Gaussian
from opteq.operators import Dense
from opteq.penalties import NonNegative
from opteq.problem import Problem
from opteq.solve import Anderson
from opteq.theory.propositions import (
    arc_cosine,
    lipschitz_bound,
    similarity,
    similarity_bound,
    truncated_kernel,
    truncation_error,
)


def first_proposition(tries: int) -> Ratios:
    for terms in (1, 2, 5, 10, 20):
        torch.manual_seed(terms)
        a, b = torch.randn(2, max(1, tries // 100), 6, dtype=torch.float64)

        def ratio(a: Tensor, b: Tensor, terms: int = terms) -> Tensor:
            exact = torch.exp(-0.3 * (a - b).square().sum(1))
            gap = (truncated_kernel(a, b, 0.3, terms) - exact).abs()
            return gap / (truncation_error(a, b, 0.3, terms) + 1e-14)

        yield from ascend(ratio, a, b)


def third_proposition(tries: int) -> Ratios:
    """Where its condition holds: |x| and |z| at most B, features to equilibrium."""
    torch.manual_seed(0)
    for gamma, mu in ((0.02, 0.5), (0.1, 0.6), (0.5, 0.5), (0.1, 0.7)):
        W = torch.randn(5, 4, dtype=torch.float64)
        W = mu * W / torch.linalg.matrix_norm(W, 2)
        U = torch.randn(5, 6, dtype=torch.float64)
        U = mu * U / torch.linalg.matrix_norm(U, 2)
        problem = Problem(penalty=NonNegative(), similarity=Gaussian(Dense.from_weight(W), gamma))
        layer = opteq.Equilibrium(
            problem, solver=Anderson(tol=1e-12, max_steps=500), gradient=Implicit()
        )
        bound = lipschitz_bound(mu=mu, inputs=1.0, beta=1.0, gamma=gamma)
        assert bound.holds

        def inside(x: Tensor, layer: opteq.Equilibrium = layer, U: Tensor = U) -> Tensor:
            x = x / x.norm(dim=1, keepdim=True).clamp(min=1.0)
            return layer(x @ U.T)

        x = torch.randn(max(1, tries // 80), 6, dtype=torch.float64)
        yield from stretched(inside, x, bound.value)


def fourth_proposition(tries: int) -> Ratios:
    """The similarity of outputs over random U, five standard errors below: GEQ's bound."""
    torch.manual_seed(0)
    W = torch.randn(20, 20, dtype=torch.float64)
    W = 0.7 * W / torch.linalg.matrix_norm(W, 2)
    problem = Problem(penalty=NonNegative(), similarity=Gaussian(Dense.from_weight(W), 0.2))
    layer = opteq.Equilibrium(problem, solver=Anderson(tol=1e-6, max_steps=200))
    for k in range(tries):
        x, y = torch.randn(2, 8, dtype=torch.float64)
        x, y = x / x.norm(), y / y.norm()
        y = x + (y - x) * (k % 5) / 4
        mean, error = similarity(layer, x, y, rows=20, variance=0.02, draws=40, seed=k)
        base, distance = float(arc_cosine(x, y, 0.02)), float((x - y).norm())
        bound = similarity_bound(base, distance, mu=0.7, beta=1.0, gamma=0.2, outputs=1.0)
        yield torch.tensor([(mean - 5 * error) / bound.value])
