"""Memory gradient steps: the optimum, descent, samples that stop, and what they refuse."""

import pytest
import torch

import opteq
from opteq.errors import OptionError
from opteq.kernels import Linear, Measurement, Ridge
from opteq.operators import AveragePool, Conv2d, Dense, FourierSample, Mask
from opteq.penalties import Box, Free
from opteq.potentials import Huber, MinimaxConcave, Potential, Quadratic, Spline, Welsch
from opteq.problem import Problem
from opteq.problem.parabolas import products
from opteq.solve import MemoryGradient, Nesterov

POTENTIALS = {
    "quadratic": lambda: Quadratic(3.0),
    "huber": lambda: Huber(20.0, 0.02),
    "welsch": lambda: Welsch((2.0, 2.0), (1.0, 300.0)),
    "minimax-concave": lambda: MinimaxConcave(15.0, 0.03, 0.7),
    "spline": lambda: Spline(15.0, 0.9),
}
MEASUREMENTS = {
    "denoising": lambda: None,
    "missing pixels": lambda: Mask(torch.rand(12, 14) > 0.4),
    "half the size": lambda: AveragePool(2),
    "frequencies": lambda: FourierSample(torch.rand(12, 14) > 0.3),
}


def problem_of(potential, H=None, *, group=1, side=5, filters=8, **options):
    torch.manual_seed(0)
    W = Conv2d(1, filters, side, norm_bound=1.0)
    scale = torch.rand(filters // group) + 0.5
    prior = Ridge(W, potential, group=group, scale=scale, **options)
    return Problem(penalty=Free(), similarity=Measurement(H) + prior).double()


def solved(problem, y, solver):
    layer = opteq.Equilibrium(problem, solver=solver, allow_uncertified=True)
    return layer.solve(y, trace=True)


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("name", POTENTIALS)
def test_it_finds_the_minimum_that_accelerated_steps_find(name, group):
    problem = problem_of(POTENTIALS[name](), group=group)
    y = torch.rand(3, 1, 12, 14, dtype=torch.float64)
    ours = solved(problem, y, MemoryGradient(tol=1e-10, max_steps=2000))
    theirs = solved(problem, y, Nesterov(tol=1e-10, max_steps=20000))
    assert bool(ours.converged.all() & theirs.converged.all())
    torch.testing.assert_close(ours.state, theirs.state, rtol=1e-7, atol=1e-8)
    assert int(ours.steps.max()) < int(theirs.steps.min())


@pytest.mark.parametrize("name", MEASUREMENTS)
def test_the_objective_never_rises_whatever_is_measured(name):
    torch.manual_seed(1)
    H = MEASUREMENTS[name]()
    problem = problem_of(Spline(15.0, 0.9), H)
    truth = torch.rand(2, 1, 12, 14, dtype=torch.float64)
    y = truth if H is None else H.double()(truth)
    found = solved(problem, y, MemoryGradient(tol=1e-9, max_steps=3000))
    assert bool(found.converged.all())
    assert found.trace is not None
    values = found.trace.objective
    assert values is not None
    falls = values.diff(dim=0)
    assert float(falls[falls.isfinite()].max()) <= 1e-9


def test_each_sample_is_solved_as_if_it_were_alone():
    problem = problem_of(Spline(15.0, 0.9))
    y = torch.rand(4, 1, 12, 14, dtype=torch.float64)
    y *= torch.tensor([0.01, 1, 3, 10]).view(4, 1, 1, 1)
    solver = MemoryGradient(tol=1e-9, max_steps=2000)
    together = solved(problem, y, solver)
    assert len(set(together.steps.tolist())) > 1
    for i in range(4):
        alone = solved(problem, y[i : i + 1], solver)
        torch.testing.assert_close(together.state[i : i + 1], alone.state, rtol=1e-6, atol=1e-9)


def test_a_sample_that_is_not_finite_is_reported_and_harms_no_other():
    problem = problem_of(Huber(5.0, 0.1))
    y = torch.rand(3, 1, 12, 14, dtype=torch.float64)
    y[1, 0, 0, 0] = torch.nan
    layer = opteq.Equilibrium(problem, solver=MemoryGradient(tol=1e-9, on_failure="ignore"))
    found = layer.solve(y)
    assert found.converged.tolist() == [True, False, True]
    alone = layer.solve(y[[0, 2]])
    assert isinstance(found.state, torch.Tensor)
    torch.testing.assert_close(found.state[[0, 2]], alone.state)


def test_it_is_near_conjugate_gradients_on_a_quadratic_problem():
    """In a plane of gradient and last movement both take the same steps."""
    problem = problem_of(Quadratic(40.0))
    y = torch.rand(1, 1, 12, 14, dtype=torch.float64)
    ours = solved(problem, y, MemoryGradient(tol=1e-8))
    theirs = solved(problem, y, opteq.solve.ConjugateGradients(tol=1e-8))
    assert int(ours.steps[0]) <= int(theirs.steps[0]) + 1


class Steep(Potential):
    """t^4: its slope over t rises, so no parabola lies above it."""

    def forward(self, t):
        return t**4

    def slope(self, t):
        return 4 * t**3

    def bend(self, t):
        return 12 * t**2

    def bends(self):
        return Huber(1.0).bends()


@pytest.mark.parametrize(
    "problem",
    [
        lambda: Problem(penalty=Box(0, 1), similarity=Measurement() + Ridge(Dense(3, 2), Huber())),
        lambda: Problem(penalty=Free(), similarity=Linear(Dense(3, 2))),
        lambda: Problem(penalty=Free(), similarity=Measurement() + Ridge(Dense(3, 2), Steep())),
    ],
    ids=["penalty", "kernel", "potential"],
)
def test_problems_without_parabolas_are_refused(problem):
    layer = opteq.Equilibrium(problem(), solver=MemoryGradient(), allow_uncertified=True)
    with pytest.raises(OptionError, match="Nesterov"):
        layer.solve(torch.rand(2, 3))


def test_products_do_not_depend_on_how_numbers_lie():
    torch.manual_seed(0)
    parts = [torch.randn(2, 6, 5, 7, dtype=torch.float64) for _ in range(3)]
    expected = [(parts[0] * a * b).sum((1, 2, 3)) for a, b in _pairs(parts[1], parts[2])]
    for lie in (torch.contiguous_format, torch.channels_last):
        found = products(*(part.contiguous(memory_format=lie) for part in parts))
        for got, right in zip(found, expected, strict=True):
            torch.testing.assert_close(got, right)


def _pairs(a, b):
    return (a, a), (a, b), (b, b)
