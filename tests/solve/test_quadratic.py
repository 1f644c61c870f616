"""Conjugate gradients on quadratic problems, against dense systems."""

import pytest
import torch

import opteq
from narrow import a, tensor
from opteq.errors import NotConvergedWarning, OptionError
from opteq.kernels import Conductance, Gaussian, Linear, Measurement, Ridge
from opteq.kernels.conductance import BoundConductance
from opteq.operators import Conv2d, Dense, Mask
from opteq.penalties import Free, NonNegative
from opteq.potentials import Quadratic
from opteq.problem import Problem
from opteq.solve import ConjugateGradients, MemoryGradient


def layer_of(similarity, penalty=None, **options):
    problem = Problem(penalty=Free() if penalty is None else penalty, similarity=similarity)
    settings = {"tol": 1e-11, **options}
    return opteq.Equilibrium(
        problem, solver=ConjugateGradients(**settings), allow_uncertified=True
    ).double()


def wires(batch=3, height=5, width=4):
    torch.manual_seed(0)
    u = torch.randn(batch, 4, height, width, dtype=torch.float64)
    u[:, 1:3] *= 4  # wires of very different quality
    u[:, 3] -= 3
    return u


def laplacian(u, leak):
    """The matrix of the system in the potentials, wire by wire."""
    _, height, width = u.shape
    matrix = torch.zeros(height * width, height * width, dtype=torch.float64)
    for r in range(height):
        for c in range(width):
            i = r * width + c
            matrix[i, i] += leak + u[3, r, c].exp()
            for other, log in (
                ((r, c + 1), u[1, r, c]),
                ((r + 1, c), u[2, r, c]),
            ):
                if other[0] < height and other[1] < width:
                    j, w = other[0] * width + other[1], log.exp()
                    matrix[i, i] += w
                    matrix[j, j] += w
                    matrix[i, j] -= w
                    matrix[j, i] -= w
    return matrix


def test_potentials_solve_kirchhoffs_equations():
    u = wires()
    layer = layer_of(Conductance(leak=1e-3))
    solution = layer.solve(u)
    assert bool(solution.converged.all())
    bound = a(BoundConductance, Conductance(leak=1e-3).bind(u))
    v = bound.potentials(tensor(solution.state))
    for i in range(len(u)):
        expected = torch.linalg.solve(laplacian(u[i], 1e-3), u[i, 0].flatten())
        torch.testing.assert_close(v[i].flatten(), expected, rtol=1e-7, atol=1e-9)


def test_curvature_holds_the_spectrum_of_the_scaled_system():
    u = wires()
    similarity = Conductance(leak=1e-3)
    curvature = similarity.bind(u).curvature()
    for i in range(len(u)):
        matrix = laplacian(u[i], 1e-3)
        scale = matrix.diagonal().rsqrt()
        values = torch.linalg.eigvalsh(scale[:, None] * matrix * scale)
        assert 1 - float(values[-1]) >= float(curvature.low)
        assert 1 - float(values[0]) <= float(torch.as_tensor(curvature.high)[i]) + 1e-12
    assert opteq.certificate(layer_of(similarity)).unique


def test_gradients_equal_those_of_a_dense_solve():
    u = wires(1)
    layer = layer_of(Conductance(leak=1e-2))

    def dense(v):
        matrix = laplacian(v[0], 1e-2)
        potentials = torch.linalg.solve(matrix, v[0, 0].flatten())
        return matrix.diagonal().sqrt() * potentials

    found = torch.autograd.functional.jacobian(lambda v: tensor(layer(v)).flatten(), u)
    expected = torch.autograd.functional.jacobian(dense, u)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6 * float(expected.abs().max()))


def test_other_quadratic_problems_are_solved_too():
    torch.manual_seed(0)
    W = Dense(6, 5, norm_bound=0.9).double()
    u = torch.randn(3, 6, dtype=torch.float64)
    z = tensor(layer_of(Linear(W)).solve(u).state)
    dense = torch.eye(6, dtype=torch.float64) - W.weight.T @ W.weight
    torch.testing.assert_close(z, torch.linalg.solve(dense, u.T).T)
    tikhonov = Measurement(Mask(torch.ones(4, 4))) + Ridge(
        Conv2d(1, 2, norm_bound=1.0).double(), Quadratic(3.0)
    )
    assert bool(layer_of(tikhonov).solve(torch.rand(2, 1, 4, 4).double()).converged.all())


def test_what_is_not_quadratic_is_refused():
    u = torch.randn(2, 5, dtype=torch.float64)
    with pytest.raises(OptionError, match="quadratic"):
        layer_of(Gaussian(Dense(6, 5, norm_bound=0.9))).solve(u)
    with pytest.raises(OptionError, match="quadratic"):
        layer_of(Linear(Dense(5, 5, norm_bound=0.9)), NonNegative()).solve(u)


def test_the_residual_that_is_reported_is_the_true_one():
    """Ill-conditioned and in float32, where the recurrence drifts."""
    u = wires(2, 24, 24).float()
    u[:, 3] -= 12
    problem = Problem(penalty=Free(), similarity=Conductance(leak=1e-9))
    layer = opteq.Equilibrium(
        problem,
        solver=ConjugateGradients(tol=1e-5, max_steps=5000, on_failure="ignore"),
        allow_uncertified=True,
    )
    solution = layer.solve(u)
    gap = problem.stationarity(tensor(solution.state), u)
    size = problem.map(tensor(solution.state), u).flatten(1).norm(dim=1)
    true = gap / size
    assert bool((true[solution.converged] <= 1.01e-5).all())


@pytest.mark.parametrize("solver", [ConjugateGradients, MemoryGradient])
def test_an_absolute_tolerance_is_of_the_true_gap_too(solver):
    torch.manual_seed(0)
    turns = [torch.linalg.qr(torch.randn(60, 60, dtype=torch.float64))[0] for _ in range(2)]
    W = (turns[0] * torch.logspace(-1, 2, 60, dtype=torch.float64) @ turns[1]).float()
    similarity = Measurement() + Ridge(Dense.from_weight(W), Quadratic())
    problem = Problem(penalty=Free(), similarity=similarity)
    settings = solver(tol=0.0, atol=1e-3, max_steps=2000, on_failure="ignore")
    u = torch.randn(20, 60)
    solution = opteq.Equilibrium(problem, solver=settings, allow_uncertified=True).solve(u)
    gap = problem.stationarity(tensor(solution.state), u)
    assert bool((gap[solution.converged] <= 2e-3).all())  # up to float32


def test_a_bad_sample_does_not_touch_its_neighbours():
    u = wires()
    alone = tensor(layer_of(Conductance(leak=1e-3)).solve(u[1:]).state)
    u[0, 0, 0, 0] = float("nan")
    with pytest.warns(NotConvergedWarning):
        solution = layer_of(Conductance(leak=1e-3)).solve(u)
    assert solution.converged.tolist() == [False, True, True]
    torch.testing.assert_close(tensor(solution.state)[1:], alone, rtol=1e-6, atol=1e-9)
