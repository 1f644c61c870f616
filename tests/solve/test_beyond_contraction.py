"""What holds for the Gaussian kernel up to and beyond |W| = 1."""

import math

import numpy as np
import pytest
import torch
from scipy import optimize

import opteq
from narrow import a, known, tensor
from opteq.equilibrium import Proximal
from opteq.kernels import Gaussian, PatchGaussian
from opteq.operators import Conv2d, Dense, PatchProjection
from opteq.penalties import NonNegative, Shrinkage, Tanh
from opteq.problem import Problem
from opteq.problem.curvature import GAUSSIAN_BACKWARD
from opteq.solve import Anderson, Broyden, ForwardBackward, Picard, Status, solve

EDGE = 1 / GAUSSIAN_BACKWARD


def _weight(rows, columns, square):
    W = torch.randn(rows, columns, dtype=torch.float64)
    return W * (square**0.5 / torch.linalg.matrix_norm(W, 2))


def test_edge_is_that_of_the_theory():
    assert pytest.approx(math.exp(1.5) / 2) == EDGE
    assert pytest.approx(2.2408, abs=1e-4) == EDGE


@pytest.mark.parametrize("gamma", [1e-3, 0.1, 1.0, 30.0, 1e3])
def test_contraction_for_every_gamma(gamma):
    """|T(z1) - T(z2)| <= |W|^2 |H|^2 |z1 - z2|, near and far."""
    W = _weight(6, 8, 0.9)
    dense = Problem(penalty=NonNegative(), similarity=Gaussian(Dense.from_weight(W), gamma=gamma))
    conv = Conv2d.from_weight(torch.randn(4, 3, 3, 3, dtype=torch.float64) / 6, image_size=4)
    H = PatchProjection.from_weight(_weight(8, 5, 0.8))
    patches = Problem(penalty=Tanh(), similarity=PatchGaussian(conv, H, gamma=gamma))
    for problem, state, injection in (
        (dense, (8,), (6,)),
        (patches, (3, 4, 4), (4, 4, 4)),
    ):
        factor = problem.curvature().contraction
        for distance in (1e-3, 0.1, 1.0, 10.0):
            u = torch.randn(500, *injection, dtype=torch.float64)
            z = torch.randn(500, *state, dtype=torch.float64)
            other = z + distance * torch.randn_like(z)
            moved = (problem.map(z, u) - problem.map(other, u)).flatten(1).norm(dim=1)
            assert (moved <= factor * (z - other).flatten(1).norm(dim=1) * (1 + 1e-12)).all()


def _problem_on_which_picard_fails(square):
    """A hidden problem at |W|^2 = square whose Picard iteration does not converge."""
    for seed in range(200):
        torch.manual_seed(seed)
        W = _weight(5, 5, square)
        problem = Problem(
            penalty=Shrinkage(0.01), similarity=Gaussian(Dense.from_weight(W), gamma=0.3)
        )
        u = torch.randn(1, 5, dtype=torch.float64)
        bound = Proximal(problem).bind(u)
        quiet = Picard(tol=1e-10, max_steps=2000, on_failure="ignore")
        if not bool(solve(bound, bound.start(), quiet).converged):
            return problem, u
    raise AssertionError("Picard converged on every draw")


def test_unique_equilibrium_at_2_2_from_twenty_starts_where_picard_fails():
    problem, u = _problem_on_which_picard_fails(2.2)
    starts = 3 * torch.randn(20, 5, dtype=torch.float64)
    many = u.expand(20, -1)
    picard = opteq.Equilibrium(
        problem, solver=Picard(tol=1e-10, max_steps=2000, on_failure="ignore")
    )
    failed = picard.solve(many, starts)
    assert not failed.converged.any()
    assert set(failed.status) <= {Status.STALLED, Status.DIVERGED}
    found = []
    for accelerate in (True, False):
        solver = ForwardBackward(tol=1e-13, max_steps=20_000, accelerate=accelerate)
        solution = opteq.Equilibrium(problem, solver=solver).solve(many, starts)
        assert bool(solution.converged.all()), str(solution)
        found.append(solution.state)
    states = torch.cat(found)
    assert float((states - states[0]).abs().max()) < 1e-10


@pytest.mark.parametrize("square", [0.5, 1.2, 2.2])
def test_forward_backward_never_increases_the_objective(square):
    problem = Problem(
        penalty=NonNegative(),
        similarity=Gaussian(Dense.from_weight(_weight(6, 8, square)), gamma=0.5),
    )
    u = 2 * torch.randn(30, 6, dtype=torch.float64)
    layer = opteq.Equilibrium(
        problem, solver=ForwardBackward(tol=1e-10, accelerate=False, max_steps=3000)
    )
    solution = layer.solve(u, torch.rand(30, 8, dtype=torch.float64), trace=True)
    assert bool(solution.converged.all())
    objective = known(known(solution.trace).objective)
    rises = (objective[1:] - objective[:-1]).nan_to_num(0)
    assert float(rises.max()) <= 1e-12


def test_forward_backward_rate_is_the_promised_one():
    """Rate (L - m)/(L + m) with m = 1 - 0.4463 w^2 and L = 1 + w^2, e.g. 0.478 at w = 0.9."""
    w2 = 0.81
    rate = (1 + GAUSSIAN_BACKWARD) * w2 / (2 + (1 - GAUSSIAN_BACKWARD) * w2)
    assert rate == pytest.approx(0.478, abs=1e-3)
    problem = Problem(
        penalty=NonNegative(), similarity=Gaussian(Dense.from_weight(_weight(6, 8, w2)), gamma=0.5)
    )
    u = torch.randn(20, 6, dtype=torch.float64)
    solver = ForwardBackward(tol=1e-12, accelerate=False)
    equilibrium = tensor(opteq.Equilibrium(problem, solver=solver).solve(u).state)
    step, promised = solver.step_for(Proximal(problem).bind(u))
    assert promised == pytest.approx(rate, abs=1e-9)
    assert step == pytest.approx(2 / (2 + (1 - GAUSSIAN_BACKWARD) * w2), abs=1e-9)
    z = 5 * torch.rand(20, 8, dtype=torch.float64)
    for _ in range(10):
        following = problem.bind(u).forward_backward(z, step)[1]
        before = (z - equilibrium).norm(dim=1)
        assert ((following - equilibrium).norm(dim=1) <= rate * before + 1e-10).all()
        z = following


def test_three_equilibria_at_2_25():
    """Just beyond the edge uniqueness ends: one dimension, W = 1.5, three stationary points."""
    gamma, w = 1.0, 1.5
    problem = Problem(
        penalty=NonNegative(),
        similarity=Gaussian(
            Dense.from_weight(torch.tensor([[w]], dtype=torch.float64)), gamma=gamma
        ),
    )
    assert w**2 > EDGE
    r = math.sqrt(1.5 / gamma)  # where the Hessian of S is largest
    u = torch.tensor([[r + w**2 * math.exp(-1.5) * r]], dtype=torch.float64)

    def gap(z):
        state = torch.tensor([[z]], dtype=torch.float64)
        return float(state - problem.map(state, u))

    grid = np.linspace(0, 2, 2_001)
    signs = np.sign([gap(z) for z in grid])
    brackets = [
        (a, b) for a, b, s, t in zip(grid, grid[1:], signs, signs[1:], strict=False) if s != t
    ]
    found = (a(float, optimize.brentq(gap, *ends, xtol=1e-15)) for ends in brackets)
    roots = sorted({round(root, 9) for root in found})
    assert len(roots) == 3
    state = torch.tensor(roots, dtype=torch.float64)[:, None]
    many = u.expand(3, -1)
    assert float(problem.stationarity(state, many).max()) < 1e-8
    # Forward-backward finds the two minima from either side, Broyden the maximum between them.
    descent = ForwardBackward(tol=1e-13, accelerate=False, max_steps=100_000)
    sides = torch.tensor([[roots[0] - 0.1], [roots[2] + 0.1]], dtype=torch.float64)
    minima = opteq.Equilibrium(problem, solver=descent).solve(many[:2], sides)
    assert bool(minima.converged.all())
    expected = torch.tensor([[roots[0]], [roots[2]]], dtype=torch.float64)
    torch.testing.assert_close(minima.state, expected, rtol=0, atol=1e-6)
    middle = state[1:2] + 1e-4
    top = opteq.Equilibrium(problem, solver=Broyden(tol=1e-13)).solve(u, middle)
    assert bool(top.converged.all())
    assert float(tensor(top.state)) == pytest.approx(roots[1], abs=1e-6)


def test_no_second_equilibrium_just_below_the_edge():
    w = (0.999 * EDGE) ** 0.5
    z = torch.linspace(0, 3, 300_001, dtype=torch.float64)[:, None]
    similarity = Gaussian(Dense.from_weight(torch.tensor([[w]], dtype=torch.float64)), gamma=1.0)
    problem = Problem(penalty=NonNegative(), similarity=similarity)
    for r in np.linspace(1.0, 1.5, 11):
        u = torch.full_like(z, r + w**2 * math.exp(-(r**2)) * r)
        gap = (z - problem.map(z, u)).sign()[:, 0]
        assert int((gap[1:] != gap[:-1]).sum()) == 1


def test_acceleration_saves_steps_near_the_edge():
    problem = Problem(
        penalty=NonNegative(),
        similarity=Gaussian(Dense.from_weight(_weight(20, 20, 2.2)), gamma=0.05),
    )
    u = torch.randn(20, 20, dtype=torch.float64)
    steps = [
        opteq.Equilibrium(problem, solver=ForwardBackward(tol=1e-10, accelerate=a, max_steps=5000))
        .solve(u)
        .steps.double()
        .mean()
        for a in (True, False)
    ]
    assert steps[0] < steps[1]


def test_trained_bound_beyond_contraction_still_solves():
    problem = Problem(
        penalty=NonNegative(), similarity=Gaussian(Dense(8, 8, norm_bound=2.2**0.5), gamma=0.5)
    )
    layer = opteq.Equilibrium(problem, solver=ForwardBackward(tol=1e-5, max_steps=1000))
    assert bool(layer.solve(torch.randn(16, 8)).converged.all())
    anyway = opteq.Equilibrium(
        problem, solver=Anderson(on_failure="ignore"), allow_uncertified=True
    )
    anyway.solve(torch.randn(16, 8))


@pytest.mark.parametrize(("norm", "unique"), [(0.9, True), (1.4, True), (2.0, False)])
def test_a_solution_says_whether_it_is_proved_to_be_the_only_one(norm, unique):
    problem = Problem(
        penalty=NonNegative(), similarity=Gaussian(Dense(6, 6, norm_bound=norm), gamma=0.5)
    )
    layer = opteq.Equilibrium(problem, solver="forward_backward", allow_uncertified=True)
    solution = layer.solve(torch.randn(3, 6))
    assert solution.proved_unique is not None
    assert solution.proved_unique.tolist() == [unique] * 3
    assert ("Stationary points" in str(solution)) != unique
