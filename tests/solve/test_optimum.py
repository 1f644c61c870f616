"""The equilibrium is the optimum that independent solvers find."""

import cvxpy
import numpy as np
import pytest
import torch
from scipy import optimize

import opteq
from opteq.kernels import Gaussian, Linear
from opteq.operators import Dense
from opteq.penalties import Box, NonNegative, Shrinkage, Tanh
from opteq.problem import Problem
from opteq.solve import Anderson, Broyden, ForwardBackward, Picard

INSTANCES, PARTS = 510, 10
PENALTIES = [NonNegative(), Shrinkage(0.2), Box(-0.3, 0.6)]
SOLVERS = [
    Picard(tol=1e-10, max_steps=5000),
    Anderson(tol=1e-10, max_steps=500),
    Broyden(tol=1e-10, max_steps=500),
    ForwardBackward(tol=1e-10, max_steps=2000),
    ForwardBackward(tol=1e-10, max_steps=5000, accelerate=False),
]


def _clarabel(penalty, W, u):
    """min f(z) + 1/2 z'(I - W'W)z - u'z as a conic program."""
    z = cvxpy.Variable(len(u))
    root = np.linalg.cholesky(np.eye(len(u)) - W.T @ W)
    cost = cvxpy.sum_squares(root.T @ z) / 2 - u @ z
    constraints: list[cvxpy.Constraint] = []
    if isinstance(penalty, NonNegative):
        constraints = [z >= 0]
    elif isinstance(penalty, Box):
        constraints = [z >= penalty.low, z <= penalty.high]
    else:
        cost += penalty.threshold * cvxpy.norm1(z)
    settings = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}
    cvxpy.Problem(cvxpy.Minimize(cost), constraints).solve(solver=cvxpy.CLARABEL, **settings)
    return z.value


@pytest.mark.parametrize("part", range(PARTS))
def test_linear_kernel_against_clarabel(part):
    random = np.random.default_rng(part)
    for instance in range(part, INSTANCES, PARTS):
        size, rank = random.integers(2, 9, size=2)
        W = random.normal(size=(rank, size))
        W *= random.uniform(0.1, 0.97) / np.linalg.norm(W, 2)
        u = 2 * random.normal(size=size)
        penalty = PENALTIES[instance % len(PENALTIES)]
        problem = Problem(
            penalty=penalty, similarity=Linear(Dense.from_weight(torch.from_numpy(W)))
        )
        layer = opteq.Equilibrium(problem, solver=SOLVERS[instance % len(SOLVERS)])
        solution = layer.solve(torch.from_numpy(u)[None])
        assert bool(solution.converged.all())
        assert np.abs(solution.state[0].numpy() - _clarabel(penalty, W, u)).max() < 1e-6


@pytest.mark.parametrize(
    "penalty", [NonNegative(), Box(-0.3, 0.6), Tanh()], ids=["relu", "box", "tanh"]
)
def test_gaussian_kernel_against_bounded_quasi_newton(penalty):
    """Up to the edge of convexity, |W|^2 < 2.24, scipy's L-BFGS-B minimises the same objective."""
    random = np.random.default_rng(7)
    low, high = (None if np.isinf(end) else end for end in penalty.domain)
    if isinstance(penalty, Tanh):
        low, high = -1 + 1e-12, 1 - 1e-12
    for _ in range(25):
        W = torch.from_numpy(random.normal(size=(4, 5)))
        W *= random.uniform(0.3, 2.2) ** 0.5 / torch.linalg.matrix_norm(W, 2)
        gamma = random.uniform(0.05, 2)
        problem = Problem(penalty=penalty, similarity=Gaussian(Dense.from_weight(W), gamma=gamma))
        u = torch.from_numpy(2 * random.normal(size=(1, 4)))

        def objective(z, problem=problem, u=u):
            leaf = torch.from_numpy(z)[None].requires_grad_()
            value = problem.objective(leaf, u).sum()
            return value.item(), torch.autograd.grad(value, leaf)[0][0].numpy()

        found = optimize.minimize(
            objective,
            np.full(5, 0.1),
            jac=True,
            method="L-BFGS-B",
            bounds=[(low, high)] * 5,
            options={"ftol": 0, "gtol": 1e-11, "maxiter": 10_000, "maxls": 100},
        )
        solver = ForwardBackward(tol=1e-11, max_steps=5000)
        solution = opteq.Equilibrium(problem, solver=solver).solve(u)
        assert bool(solution.converged.all())
        assert np.abs(solution.state[0].numpy() - found.x).max() < 1e-6
