"""What the backward pass takes over from the forward pass belongs to the same state."""

import pytest
import torch

import opteq
from narrow import known, tensor
from opteq.equilibrium.base import SymmetricLinearization
from opteq.gradient import Implicit, OneStep, Phantom
from opteq.kernels import Gaussian, Linear, PatchGaussian
from opteq.operators import Conv2d, Dense, PatchProjection
from opteq.penalties import NonNegative
from opteq.problem import Problem
from opteq.solve import Picard
from opteq.solve.layout import LastEvaluation


def test_the_graph_of_an_evaluation_is_given_for_its_own_state_only():
    last = LastEvaluation()
    last.expected = True
    z, other = torch.rand(2, 3), torch.rand(2, 3)
    last.apply(torch.cos, z)
    assert torch.equal(tensor(known(last.image_of(z))), z.cos())
    assert last.image_of(other) is None
    last.expected = False
    last.apply(torch.cos, other)
    assert last.image_of(z) is None


@pytest.mark.parametrize("rule", [Implicit(on_failure="ignore"), Phantom(), OneStep()])
def test_gradients_are_those_at_the_state_returned(rule):
    """Beyond contraction the best state is an early one, not the one evaluated last."""
    W = (1.2 * torch.eye(3, dtype=torch.float64)).requires_grad_()
    problem = Problem(penalty=NonNegative(), similarity=Linear(Dense.from_weight(W)))
    solver = Picard(tol=1e-9, max_steps=6, on_failure="ignore")
    layer = opteq.Equilibrium(problem, solver=solver, gradient=rule, allow_uncertified=True)
    u = torch.tensor([[1.0, 0.5, 2.0]], dtype=torch.float64)
    start = torch.full((1, 3), 0.1, dtype=torch.float64)
    solution = layer.solve(u, start)
    best = tensor(solution.state).detach()
    assert not torch.allclose(best, problem.map(best, u))  # nor is it an equilibrium
    bound = layer.map.bind(u)
    fresh = rule.attach(bound, best, solution)  # applies the map at the state itself
    (expected,) = torch.autograd.grad(fresh.sum(), W)
    (found,) = torch.autograd.grad(tensor(solution.state).sum(), W)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("kind", ["dense", "patches"])
def test_gates_of_another_state_are_not_taken(kind):
    torch.manual_seed(0)
    if kind == "dense":
        similarity, shape = Gaussian(Dense(4, 4, norm_bound=0.9), gamma=0.5), (2, 4)
    else:
        projection = PatchProjection(patch=2, split=2, hidden=4)
        similarity = PatchGaussian(Conv2d(4, 4, norm_bound=0.9), projection, 0.5)
        shape = (2, 4, 4, 4)
    similarity = similarity.double()
    u, z, other, v = (torch.randn(shape, dtype=torch.float64) for _ in range(4))
    bound = similarity.bind(u)
    bound.gradient(z)  # with a graph: the gates are kept
    with torch.no_grad():
        for point in (z, other):
            expected = similarity.bind(u).hessian(point)(v)
            torch.testing.assert_close(bound.hessian(point)(v), expected)


def test_what_passes_the_prox_needs_no_further_product():
    """At any v, however far from solved: D times the shortcut is D times the recovered w."""
    torch.manual_seed(0)
    A = torch.randn(5, 5, dtype=torch.float64)
    slope = torch.tensor([[0.0, 1.0, 0.3, 1.0, 0.0]], dtype=torch.float64)
    linear = SymmetricLinearization(slope, lambda v: v @ (A + A.T) / 20)
    g, v = torch.randn(2, 1, 5, dtype=torch.float64)
    residual = linear.right_side(g) - linear.system(v)
    w, own = linear.recover(g, v)
    torch.testing.assert_close(residual, own)
    assert residual.norm() > 0.1
    torch.testing.assert_close(slope * linear.visible(g, v, residual), slope * w)
