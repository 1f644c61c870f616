"""How far an equilibrium is from one application of its map, against dense computations."""

import pytest
import torch

import opteq
from narrow import a, known
from opteq.gradient import Unrolled
from opteq.kernels import Gaussian, Linear
from opteq.operators import Dense
from opteq.penalties import NonNegative
from opteq.problem import Problem
from opteq.solve import Anderson, Picard
from opteq.states import as_tuple


def layer_of(W, **options):
    problem = Problem(penalty=NonNegative(), similarity=Linear(Dense.from_weight(W)))
    return opteq.Equilibrium(problem, solver=Anderson(tol=1e-12), **options)


def active_case():
    """Everything is positive, so the prox is the identity: z* = (I - W'W)^-1 u, T(0) = u."""
    torch.manual_seed(0)
    W = torch.rand(5, 4, dtype=torch.float64)
    W = 0.9 * W / torch.linalg.matrix_norm(W, 2)
    u = torch.rand(6, 4, dtype=torch.float64)
    z = torch.linalg.solve(torch.eye(4, dtype=torch.float64) - W.T @ W, u.T).T
    return W, u, z


def test_feedback_equals_a_dense_computation():
    W, u, z = active_case()
    found = known(layer_of(W).solve(u).feedback)
    assert torch.allclose(found.raw, (z - u).norm(dim=1) / z.norm(dim=1), atol=1e-9)
    for i in range(len(u)):
        scale = torch.linalg.lstsq(u[i][:, None], z[i][:, None]).solution
        left = (z[i] - scale * u[i]).norm() / z[i].norm()
        assert float(found.rescaled[i]) == pytest.approx(float(left), abs=1e-7)


def test_local_rate_is_the_largest_eigenvalue_of_the_jacobian():
    W, u, _ = active_case()
    rate = known(layer_of(W).solve(u).local_rate)
    largest = float(torch.linalg.eigvalsh(W.T @ W)[-1])
    assert torch.allclose(rate, torch.full_like(rate, largest), rtol=1e-3)


def test_local_rate_tells_where_plain_iteration_would_diverge():
    torch.manual_seed(0)
    W = 1.45 * torch.linalg.qr(torch.randn(8, 8, dtype=torch.float64)).Q
    problem = Problem(penalty=NonNegative(), similarity=Gaussian(Dense.from_weight(W), gamma=1e-6))
    layer = opteq.Equilibrium(problem, solver="forward_backward")
    u = W @ torch.rand(8, dtype=torch.float64)  # from a positive state, which stays active
    solution = layer.solve(u[None])
    assert bool(solution.converged.all())
    assert float(known(solution.local_rate)) == pytest.approx(1.45**2, rel=1e-2)


def test_one_application_has_no_feedback():
    W, u, _ = active_case()
    once = layer_of(W, gradient=None)
    once.gradient, once.solver = Unrolled(steps=1), Picard(on_failure="ignore")
    found = known(once.solve(u).feedback)
    assert torch.equal(found.raw, torch.zeros_like(found.raw))


def test_every_sample_and_every_part_of_a_state_counts():
    model = opteq.create_model("mopteq_digits").eval()
    solution = model.run(torch.rand(3, 1, 8, 8)).solutions[0]
    found, bound = known(solution.feedback), known(solution.map)
    once = torch.cat([p.flatten(1) for p in as_tuple(bound(bound.start()))], 1)
    z = torch.cat([p.flatten(1) for p in as_tuple(solution.state)], 1)
    assert torch.allclose(found.raw.float(), (z - once).norm(dim=1) / z.norm(dim=1), atol=1e-4)
    assert set(solution.diagnostics) >= {"feedback", "feedback_rescaled"}


def test_a_state_of_zero_is_no_division_by_zero():
    W, u, _ = active_case()
    found = known(layer_of(W).solve(-u).feedback)
    assert bool((found.raw == 0).all())
    assert bool((found.rescaled == 0).all())
    assert bool((known(layer_of(W).solve(-u).local_rate) == 0).all())
    assert a(Dense, Dense.from_weight(W)).norm() < 1
