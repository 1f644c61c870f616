"""The automatic choice of a solver."""

from collections.abc import Callable

import pytest
import torch

import opteq
from narrow import tensor
from opteq.errors import IllPosedError
from opteq.kernels import Gaussian, Linear, Measurement, Ridge
from opteq.operators import Dense
from opteq.penalties import Free, NonNegative
from opteq.potentials import Ramp, Welsch
from opteq.problem import Problem, Similarity
from opteq.solve import Anderson, Auto, ForwardBackward, Picard, solve
from opteq.solve.forward_backward import _Accelerated
from opteq.solve.layout import FlatMap, Layout


def problem(norm_bound: float, kernel: Callable[[Dense], Similarity] = Gaussian):
    torch.manual_seed(0)
    W = Dense(12, 12, norm_bound=norm_bound).double()
    return Problem(penalty=NonNegative(), similarity=kernel(W))


@pytest.mark.parametrize(
    ("norm_bound", "kind"), [(0.1, Picard), (0.9, Anderson), (1.4, ForwardBackward)]
)
def test_the_choice_follows_the_certificate_and_the_answer_is_the_same(norm_bound, kind):
    u = torch.randn(8, 12, dtype=torch.float64)
    layer = opteq.Equilibrium(problem(norm_bound), solver=Auto(tol=1e-3))
    bound = layer.map.bind(u)
    chosen = kind(tol=1e-3).method(FlatMap(bound, Layout(bound.start())))
    assert type(layer.solver.method(FlatMap(bound, Layout(bound.start())))) is type(chosen)
    found = opteq.Equilibrium(problem(norm_bound), solver=Auto(tol=1e-10)).solve(u)
    exact = opteq.Equilibrium(problem(norm_bound), solver=ForwardBackward(tol=1e-12)).solve(u)
    assert bool(found.converged.all())
    torch.testing.assert_close(found.state, exact.state, rtol=0, atol=1e-8)


def test_auto_by_name_and_for_plain_functions():
    layer = opteq.Equilibrium(problem(1.4), solver="auto", gradient="implicit")
    assert isinstance(layer.solver, Auto)
    bound = layer.map.bind(torch.randn(2, 12, dtype=torch.float64))
    assert isinstance(layer.solver.method(FlatMap(bound, Layout(bound.start()))), _Accelerated)
    solution = solve(torch.cos, torch.zeros(1, 1, dtype=torch.float64), Auto(tol=1e-10))
    assert tensor(solution.state).item() == pytest.approx(0.7390851332, abs=1e-9)


def test_auto_does_not_promise_what_no_solver_can():
    with pytest.raises(IllPosedError, match="not certain"):
        opteq.Equilibrium(problem(1.2, Linear), solver="auto")


def large(norm: float) -> Dense:
    """Weights that are as large as they may be."""
    W = Dense(12, 20, norm_bound=norm)
    W.raw.data.mul_(100)
    return W


@pytest.mark.parametrize(
    ("similarity", "kind"),
    [
        (lambda: Measurement() + Ridge(Dense(12, 20, norm_bound=1.0), Welsch(2.0, 1.0)), "memory"),
        (lambda: Measurement(Dense(12, 8, norm_bound=3.0)), "conjugate"),
        (lambda: Measurement() + Ridge(large(4.0), Ramp()), "accelerated"),
        (lambda: Measurement() + Ridge(large(20.0), Ramp()), "newton"),
    ],
)
def test_problems_without_a_penalty_are_solved_as_such(similarity, kind):
    torch.manual_seed(0)
    own = Problem(penalty=Free(), similarity=similarity()).double()
    y = torch.randn(4, 8 if kind == "conjugate" else 12, dtype=torch.float64)
    layer = opteq.Equilibrium(own, solver=Auto(tol=1e-8, max_steps=500), allow_uncertified=True)
    bound = layer.map.bind(y)
    method = layer.solver.method(FlatMap(bound, Layout(bound.start())))
    assert kind in type(method).__name__.lower()
    found = layer.solve(y)
    assert bool(found.converged.all())
    slope = tensor(found.state) - tensor(bound(found.state))
    torch.testing.assert_close(slope, torch.zeros_like(slope), rtol=0, atol=1e-6)
